package host

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
)

// applier passes committed entries to the state machine.
type applier struct {
	machine StateMachine
	calls   atomic.Uint64
	entries atomic.Uint64
}

// apply passes entries to the state machine, except Raft's own. A panic of the state machine becomes an
// error: it is the user's code, and breaks one member, not the process.
func (a *applier) apply(entries []raftpb.Entry) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: state machine panicked while applying entries %d to %d: %v\n%s",
				entries[0].Index, entries[len(entries)-1].Index, p, debug.Stack())
		}
	}()
	for rest := entries; len(rest) > 0; {
		n := 0
		for n < len(rest) && isCommand(&rest[n]) {
			n++
		}
		if n > 0 {
			if err := a.machine.Apply(rest[:n:n]); err != nil {
				return fmt.Errorf("millrace: state machine failed to apply entries %d to %d: %w", rest[0].Index, rest[n-1].Index, err)
			}
			a.calls.Add(1)
			a.entries.Add(uint64(n))
		}
		for n < len(rest) && !isCommand(&rest[n]) {
			n++
		}
		rest = rest[n:]
	}
	return nil
}

func isCommand(e *raftpb.Entry) bool { return e.Type == raftpb.EntryNormal && len(e.Data) > 0 }

// applyWorker applies what the async pipeline queues, in rounds of up to maxRoundBytes, and answers when the
// state machine has applied it. The core bounds how much can wait (MaxCommittedSizePerReady).
type applyWorker struct {
	*applier
	queue
	answer func([]raftpb.Message)
	fail   func(error)

	// Owned by RunOnce.
	answers []raftpb.Message
	stopped bool
}

// RunOnce implements env.Worker.
func (w *applyWorker) RunOnce() (more bool) {
	if w.stopped {
		return false
	}
	if len(w.take(maxRoundBytes)) == 0 {
		return false
	}
	if err := w.applier.apply(w.gather()); err != nil {
		w.stopped = true
		w.fail(err)
		return false
	}
	w.answers = w.answers[:0]
	for i := range w.taken {
		w.answers = append(w.answers, w.taken[i].Responses...)
	}
	w.answer(w.answers)
	clear(w.answers)
	w.held.Add(-w.takenBytes)
	return true
}

// gather joins the entries of the round. The state machine may keep the slice, so several messages need a new
// one.
func (w *applyWorker) gather() []raftpb.Entry {
	if len(w.taken) == 1 {
		return w.taken[0].Entries
	}
	n := 0
	for i := range w.taken {
		n += len(w.taken[i].Entries)
	}
	batch := make([]raftpb.Entry, 0, n)
	for i := range w.taken {
		batch = append(batch, w.taken[i].Entries...)
	}
	return batch
}
