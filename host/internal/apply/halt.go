package apply

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A command that the state machine cannot apply, because it panics, returns an error or ends its goroutine,
// halts the machine and not the group. The member keeps its log, votes and replicates. It applies nothing
// more, takes no snapshots, and refuses commands and reads with the reason. So a command that every machine
// refuses halts every machine, and the group still commits what its members need to get past it (skip.go).
//
//	lane or turn   Apply fails: halt, with the range of commands of the call
//	turn           answers the clients that wait (answerHalted). A leader hands over to a member that has
//	               applied more (host/internal/leadership)
//	lane           answers the core as if it had applied what waits, and keeps it as a range of the log
//	lane           writes the range into a note, so that the next start applies it one command at a time
//	               (note.go). If there is a snapshot to begin from, the machine is made again from it
//	               at once (rebuild.go)
//
// Invariant: the machine is not called again after it has halted, before its whole state was restored: a
// panic in the middle of a batch may have left anything.
//
// Rejected: to stop the group, as before. A poison command then stopped all members, again at each start, and
// no entry could be committed that would have led past it.
//
// The pipelines that apply in the turn (basic, parallel) stop the group: they have no place to wait.
// Decision 0030 has the reasons.

// halting is the halt of a group's machine.
type halting struct {
	now   atomic.Pointer[Halt] // nil: it works
	count atomic.Uint64        // halts in this life
	// answered is the halt whose clients a turn has answered. The machine is not made again before that.
	answered atomic.Pointer[Halt]
}

// restate says more of the present halt. Its clients were answered.
func (s *halting) restate(e *outcome.HaltedError) {
	was := s.now.Load()
	next := &Halt{Err: e, Since: was.Since}
	s.now.Store(next)
	s.answered.CompareAndSwap(was, next)
}

// Halt is one halt. It does not change.
type Halt struct {
	Err   *outcome.HaltedError
	Since int64 // tick that was not missed
}

// Halted returns why the machine of a group is halted, or nil.
func (q *Queue) Halted() *outcome.HaltedError {
	if h := q.halting.now.Load(); h != nil {
		return h.Err
	}
	return nil
}

// haltAt returns the halt for an error of the machine in a call for commands. doing begins its sentence.
func (q *Queue) haltAt(commands []statemachine.Entry, doing string, err error) *outcome.HaltedError {
	first, last := commands[0].Position(), commands[len(commands)-1].Position()
	e := &outcome.HaltedError{Group: q.Group, First: first.Index, FirstPos: first.Pos, Last: last.Index, LastPos: last.Pos}
	if c := (*outcome.CommandError)(nil); errors.As(err, &c) {
		if at := (raftpb.Position{Index: c.Index, Pos: c.Pos}); at.Compare(first) >= 0 && at.Compare(last) <= 0 {
			e.First, e.FirstPos, e.Last, e.LastPos = at.Index, at.Pos, at.Index, at.Pos
		}
	}
	e.Undivided = q.isOnDisk() && e.First == e.Last && e.FirstPos < e.LastPos
	if p := (*containment.Panic)(nil); errors.As(err, &p) {
		e.Stack = p.Stack
	}
	if e.Cause = fmt.Errorf("%s entries %v to %v: %w", doing, first, last, err); errors.As(err, new(*AppliedSkippedError)) {
		e.Cause, e.Final = err, true
	}
	return e
}

// halt halts the machine. It is called where the machine is called, and does no I/O: the lane writes the
// note.
func (q *Queue) halt(e *outcome.HaltedError) {
	was := q.halting.now.Swap(&Halt{Err: e, Since: q.Ticks()})
	q.member.Suspend(e) // its next turn answers the clients that wait
	q.Wake()
	if was != nil && was.Err.At() == e.At() {
		return // it was said
	}
	q.halting.count.Add(1)
	q.member.Report(e)
	q.Lanes.Event(event.MachineHalted{Group: q.Group, First: e.First, Last: e.Last, Err: e})
	if e.Held > 0 {
		q.Logger.Warn("state machine waits in front of a command, which may be skipped", "group", q.Group, "host", q.Self, "command", e.At(), "entry", e.Held)
		return
	}
	about := []any{"group", q.Group, "host", q.Self, "first", e.First, "last", e.Last, "cause", e.Cause}
	if e.Stack != nil {
		about = append(about, "stack", string(e.Stack))
	}
	q.Logger.Error("state machine halted; the member votes and replicates, and refuses commands and reads", about...)
}

// resume makes a machine whose state was restored work again.
func (q *Queue) resume() {
	h := q.halting.now.Swap(nil)
	if h == nil {
		return
	}
	q.member.Resume()
	q.Lanes.Event(event.MachineResumed{Group: q.Group, Applied: q.through.Load()})
	q.Logger.Info("state machine works again", "group", q.Group, "host", q.Self, "halted", h.Err.At(), "applied", q.through.Load())
	q.member.Wake()
}

// applyHalted is a round of a lane for a machine that is halted. It reports whether anything is left.
func (q *Queue) applyHalted() (left bool) {
	q.member.Between(&q.calling)
	if q.halting.answered.Load() != q.halting.now.Load() {
		q.answerUnapplied()
		q.writeNote()
		return false // the turn that answers its clients enqueues it again
	}
	if q.drained.Load() != nil { // all that waits here is before the snapshot that is being installed
		before := q.through.Load()
		if q.runDrained(); q.member.Err() == nil && q.through.Load() > before && !q.hasWrongVersion() {
			q.resume()
			return true
		}
		return false
	}
	q.answerUnapplied()
	q.writeNote()
	return q.rebuild()
}

// answerUnapplied answers the core for what waits, as if it were applied, and keeps it as a range of the log.
// The core elects, changes members and hands out more only while its applied index follows what is committed.
// Otherwise a halted member could not campaign over a membership change that it has not acknowledged. A group
// of such members would have no leader that could skip the command. What is not in the log yet, which only a
// volatile machine is handed, waits until it is. The log may have an entry of another leader at its index
// until then.
func (q *Queue) answerUnapplied() {
	storeMax(&q.applied, q.through.Load())
	var answers []raftpb.Message
	q.unanswered.Store(0)
	keep := func(work []raftpb.Message) (kept []raftpb.Message, freed int64) {
		kept = work[:0]
		for i, m := range work {
			last := LastIndex(&m)
			if n := len(m.Entries); n > 0 && !q.holds(m.Entries[n-1].ID()) {
				q.unanswered.Store(last)
				q.member.Want()
				return append(kept, work[i:]...), freed
			}
			if answers = append(answers, m.Responses...); len(m.Responses) > 0 {
				storeMax(&q.owed, last)
			}
			freed += workqueue.MessageBytes(&m)
			m = raftpb.Message{Type: m.Type, To: m.To, From: m.From, Index: firstIndex(&m) - 1, Commit: last}
			if n := len(kept); n > 0 && kept[n-1].Commit == m.Index {
				kept[n-1].Commit = last
				continue
			}
			freed -= workqueue.MessageBytes(&m)
			kept = append(kept, m)
		}
		return kept, freed
	}
	work, freed := keep(q.work)
	clear(q.work[len(work):])
	q.work, q.workBytes = work, q.workBytes-freed
	if q.unanswered.Load() == 0 {
		freed += q.Rewrite(keep)
	}
	q.Hold(-freed)
	if len(answers) > 0 {
		q.member.Done(0, answers)
	}
}

// holds reports whether the log has an entry: so it has all before it, too (thesis §3.5). What is compacted
// it had.
func (q *Queue) holds(e raftpb.EntryID) bool {
	if e.Index < q.Log.FirstIndex() {
		return true
	}
	term, err := q.Log.Term(e.Index)
	return err == nil && term == e.Term
}

// MachineApplied returns the last entry that the machine has applied, of which the core knows less, or more
// if the machine was halted.
func (q *Queue) MachineApplied(core uint64) uint64 {
	if had := q.versions.had.Load(); had > 0 {
		return had - 1
	}
	applied := q.applied.Load()
	if applied < q.owed.Load() {
		return applied
	}
	return max(core, applied)
}

// Halt returns the present halt, or nil.
func (q *Queue) Halt() *Halt { return q.halting.now.Load() }

// Halts returns how often the machine has halted in this life.
func (q *Queue) Halts() uint64 { return q.halting.count.Load() }

// Untold returns the present halt, unless its clients know it (Told). It is called by a turn.
func (q *Queue) Untold() *Halt {
	h := q.halting.now.Load()
	if last := q.unanswered.Load(); h != nil && last > 0 && last <= q.Log.LastIndex() {
		q.Wake()
	}
	if h == q.halting.answered.Load() {
		return nil
	}
	return h
}

// AwaitsLog reports whether something of a halted machine waits until the log has it: a turn looks again.
func (q *Queue) AwaitsLog() bool { return q.Halted() != nil && q.unanswered.Load() > 0 }

// Told says that the clients know a halt. The machine may be made again now.
func (q *Queue) Told(h *Halt) {
	q.halting.answered.Store(h)
	q.Wake()
}
