package host

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
)

// applyQueue is what one group has for the apply lanes (applylanes.go): committed entries for its state
// machine. The core bounds how much can wait (MaxCommittedSizePerReady).
type applyQueue struct {
	queue
	group   *Group
	machine StateMachine
	calls   atomic.Uint64
	entries atomic.Uint64

	// Guarded by the lock of the lanes.
	ready   place[*applyQueue]
	running bool // a lane works on it
	again   bool // and there is more
	leaving bool // the group is closed

	failed bool // owned by the lane that works on it
}

// apply passes entries to the state machine, except Raft's own. A panic of the state machine becomes an
// error: it is the user's code, and breaks one member, not the process.
func (q *applyQueue) apply(entries []raftpb.Entry) (err error) {
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
			if err := q.machine.Apply(rest[:n:n]); err != nil {
				return fmt.Errorf("millrace: state machine failed to apply entries %d to %d: %w", rest[0].Index, rest[n-1].Index, err)
			}
			q.calls.Add(1)
			q.entries.Add(uint64(n))
		}
		for n < len(rest) && !isCommand(&rest[n]) {
			n++
		}
		rest = rest[n:]
	}
	return nil
}

func isCommand(e *raftpb.Entry) bool { return e.Type == raftpb.EntryNormal && len(e.Data) > 0 }

// applyRound applies what is queued, up to maxBytes, and answers the group.
func (q *applyQueue) applyRound(maxBytes int64) {
	if q.failed || len(q.take(maxBytes)) == 0 {
		return
	}
	if err := q.apply(q.gather()); err != nil {
		q.failed = true
		q.group.fail(err)
		return
	}
	answers := make([]raftpb.Message, 0, len(q.taken))
	for i := range q.taken {
		answers = append(answers, q.taken[i].Responses...)
	}
	q.group.inbox.putAnswers(answers)
	q.group.wake()
	q.hold(-q.takenBytes)
}

// gather joins the entries of the round. The state machine may keep the slice, so several messages need a new
// one.
func (q *applyQueue) gather() []raftpb.Entry {
	if len(q.taken) == 1 {
		return q.taken[0].Entries
	}
	n := 0
	for i := range q.taken {
		n += len(q.taken[i].Entries)
	}
	batch := make([]raftpb.Entry, 0, n)
	for i := range q.taken {
		batch = append(batch, q.taken[i].Entries...)
	}
	return batch
}
