package host

import (
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// writer is a group as the append lane sees it: appendlane.Client.
type writer Group

func (w *writer) Appended() {
	if w.writes.logReaders.Load() > 0 {
		w.writes.logGrown.notify()
	}
}

func (w *writer) Answer(answers []raftpb.Message, woken *sched.Woken) {
	if (*Group)(w).give(answers, &w.writes.awaitsAppend) {
		woken.Add(&w.seat)
	}
}

func (w *writer) DiskFull(err error) {
	w.host.reports.events.Emit(event.DiskFull{Group: w.id, Err: err})
	what := "millrace: the disk is full; until there is space this member votes and accepts nothing else"
	if vfs.IsShort(err) {
		what = "millrace: the log cannot open another segment; until it can this member votes and accepts nothing else"
	}
	w.host.env.logger.Warn(what, "group", w.id, "host", w.self, "err", err)
}

func (w *writer) Restore(s *raftpb.Snapshot, restored func()) {
	(*Group)(w).startRestore(s, restored)
}

func (w *writer) Discarded(o appendlane.Outcome) {
	w.inbox.recordForgot(o)
	(*Group)(w).wake()
}

func (w *writer) Fail(err error) { (*Group)(w).fail(err) }

func (w *writer) Released() { (*Group)(w).partDone(theAppendLane) }

// laneLog is the log of a host as its append lane has it.
type laneLog struct{ Log }

func (l laneLog) TakeSync() (appendlane.Flush, time.Duration, error) { return l.Log.TakeSync() }
