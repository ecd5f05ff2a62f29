package wal

// Event is something that happened to a log and that a program may want to count or show: for metrics, a
// console or a simulation. It is a TailCut, an AmnesiaFound or an AmnesiaEnded.
type Event interface{ isEvent() }

// TailCut reports that recovery has cut a torn tail: bytes after the last whole record. No watermark says
// that they were durable. Log.Doubt says whether they may have been acknowledged all the same.
type TailCut struct {
	File   string
	Offset int64 // where the file's records end now
	Bytes  int64 // how many bytes were cut
	Reason string
}

// AmnesiaFound reports that a power cut took what a log in an unsafe mode had acknowledged, or may have taken
// it (Fence.Amnesia). It is emitted by the Open that finds out; not by later ones, and not for what was lost
// in a repair.
type AmnesiaFound struct {
	Dir        string
	Generation uint64 // of the life that may have lost something
}

// AmnesiaEnded reports that the log holds again what it may have lost, or that the loss was accepted
// (Log.CaughtUp). The next Open finds no amnesia.
type AmnesiaEnded struct {
	Dir        string
	Generation uint64 // of this life
}

func (TailCut) isEvent()      {}
func (AmnesiaFound) isEvent() {}
func (AmnesiaEnded) isEvent() {}

// emit passes an event to Options.Events, if that is set.
func (o *Options) emit(e Event) {
	if o.Events != nil {
		o.Events(e)
	}
}
