package wal

// Event is something that happened to a log and that a program may want to count or show: for metrics, a
// console or a simulation. It is one of the types of this file.
type Event interface{ isEvent() }

// TailCut reports that recovery has cut a torn tail: bytes after the last whole record, which were never
// acknowledged.
type TailCut struct {
	File   string
	Offset int64 // where the file's records end now
	Bytes  int64 // how many bytes were cut
	Reason string
}

// AmnesiaFound reports that Open found that the log may lack what it said it had (Fence.Amnesia).
type AmnesiaFound struct {
	Dir        string
	Generation uint64 // of the life that may have lost something
}

func (TailCut) isEvent()      {}
func (AmnesiaFound) isEvent() {}

// emit passes an event to Options.Events, if that is set.
func (o *Options) emit(e Event) {
	if o.Events != nil {
		o.Events(e)
	}
}
