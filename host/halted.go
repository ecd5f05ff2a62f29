package host

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
)

// A command that the state machine cannot apply, because it panics, returns an error or ends its goroutine,
// halts the machine and not the group. The member keeps its log, votes and replicates. It applies nothing
// more, takes no snapshots, and refuses commands and reads with the reason. So a command that every machine
// refuses halts every machine, and the group still commits what its members need to get past it (skipped.go).
//
//	lane or turn   Apply fails: halt, with the range of commands of the call
//	turn           answers the clients that wait (answerHalted). A leader hands over to a member that has
//	               applied more (stuckapply.go)
//	lane           answers the core as if it had applied what waits, and keeps it as a range of the log
//	lane           writes the range into a note, so that the next start applies it one command at a time
//	               (machinenote.go). If there is a snapshot to begin from, the machine is made again from it
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
	now   atomic.Pointer[halt] // nil: it works
	count atomic.Uint64        // halts in this life
	// answered is the halt whose clients a turn has answered. The machine is not made again before that.
	answered atomic.Pointer[halt]
}

// restate says more of the present halt. Its clients were answered.
func (s *halting) restate(e *outcome.HaltedError) {
	was := s.now.Load()
	next := &halt{err: e, since: was.since}
	s.now.Store(next)
	s.answered.CompareAndSwap(was, next)
}

// halt is one halt. It does not change.
type halt struct {
	err   *outcome.HaltedError
	since int64 // tick that was not missed
}

// halted returns why the machine of a group is halted, or nil.
func (q *applyQueue) halted() *outcome.HaltedError {
	if h := q.halting.now.Load(); h != nil {
		return h.err
	}
	return nil
}

// Halted returns why the state machine of this member is halted, a HaltedError, or nil while it works. A
// group whose machine is halted has not failed: Err is nil, and Failed stays open. The event.MachineHalted
// tells a supervisor. It never waits.
func (g *Group) Halted() error {
	if e := g.machine.apply.halted(); e != nil {
		return e
	}
	return nil
}

// Halts returns how often the state machine of this member has halted since the group was opened. A machine
// that is made again from a snapshot has an older state for a while. So a reader that reads the state after
// StartRead, and not in a function of StartBetween, must compare. What it has read counts if Halts is the
// same before and after, and Halted is nil both times. Halts never waits.
func (g *Group) Halts() uint64 { return g.machine.apply.halting.count.Load() }

// worksSince reports whether the machine works, and has not halted since Halts had returned a count.
func (g *Group) worksSince(halts uint64) bool {
	return g.machine.apply.halted() == nil && g.Halts() == halts
}

// rejectHalted says why a command is not taken, or returns nil.
func (g *Group) rejectHalted() error {
	if g.Err() != nil {
		return nil // which is said instead
	}
	return g.Halted()
}

// haltAt returns the halt for an error of the machine in a call for commands. doing begins its sentence.
func (q *applyQueue) haltAt(commands []raftpb.Entry, doing string, err error) *outcome.HaltedError {
	e := &outcome.HaltedError{Group: q.group.id, First: commands[0].Index, Last: commands[len(commands)-1].Index}
	if at := (*outcome.CommandError)(nil); errors.As(err, &at) && at.Index >= e.First && at.Index <= e.Last {
		e.First, e.Last = at.Index, at.Index
	}
	if p := (*containment.Panic)(nil); errors.As(err, &p) {
		e.Stack = p.Stack
	}
	if e.Cause = fmt.Errorf("%s entries %d to %d: %w", doing, commands[0].Index, commands[len(commands)-1].Index, err); errors.As(err, new(*appliedSkippedError)) {
		e.Cause, e.Final = err, true
	}
	return e
}

// halt halts the machine. It is called where the machine is called, and does no I/O: the lane writes the
// note.
func (q *applyQueue) halt(e *outcome.HaltedError) {
	g := q.group
	was := q.halting.now.Swap(&halt{err: e, since: g.host.clock.livedAtBeat()})
	g.reads.queue.Suspend(e)
	g.want(dutyHalted)
	g.wake() // its next turn answers the clients that wait
	g.host.appliers.Enqueue(&q.seat)
	if was != nil && was.err.First == e.First && was.err.Last == e.Last {
		return // it was said
	}
	q.halting.count.Add(1)
	g.reportFailure(e)
	g.host.reports.events.emit(event.MachineHalted{Group: g.id, First: e.First, Last: e.Last, Err: e})
	about := []any{"group", g.id, "host", g.self, "first", e.First, "last", e.Last, "cause", e.Cause}
	if e.Stack != nil {
		about = append(about, "stack", string(e.Stack))
	}
	g.host.env.logger.Error("state machine halted; the member votes and replicates, and refuses commands and reads", about...)
}

// resume makes a machine whose state was restored work again.
func (q *applyQueue) resume() {
	h := q.halting.now.Swap(nil)
	if h == nil {
		return
	}
	g := q.group
	g.reads.queue.Resume()
	g.host.reports.events.emit(event.MachineResumed{Group: g.id, Applied: q.through.Load()})
	g.host.env.logger.Info("state machine works again", "group", g.id, "host", g.self, "halted", h.err.At(), "applied", q.through.Load())
	g.wake()
}

// applyHalted is a round of a lane for a machine that is halted. It reports whether anything is left.
func (q *applyQueue) applyHalted() (left bool) {
	q.refuseCapture()
	if q.halting.answered.Load() != q.halting.now.Load() {
		q.answerUnapplied()
		q.writeNote()
		return false // the turn that answers its clients enqueues it again
	}
	if q.drained.Load() != nil { // all that waits here is before the snapshot that is being installed
		before := q.through.Load()
		if q.runDrained(); q.group.Err() == nil && q.through.Load() > before {
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
// The core elects, changes members and hands out more only while its applied index follows what is
// committed. Otherwise a halted member could not campaign over a membership change that it has not
// acknowledged, and a group of such members would have no leader that could skip the command. What is not in
// the log yet, which only a volatile machine is handed, waits until it is.
func (q *applyQueue) answerUnapplied() {
	storeMax(&q.applied, q.through.Load())
	var answers []raftpb.Message
	q.unanswered.Store(0)
	written := q.group.writes.storage.log.LastIndex()
	keep := func(work []raftpb.Message) (kept []raftpb.Message, freed int64) {
		kept = work[:0]
		for i, m := range work {
			last := lastIndex(&m)
			if last > written {
				q.unanswered.Store(last)
				q.group.want(dutyHalted)
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
		q.group.inbox.putAnswers(answers)
		q.group.wake()
	}
}

// machineApplied returns the last entry that the machine has applied, of which the core knows less, or more
// if the machine was halted.
func (q *applyQueue) machineApplied(core uint64) uint64 {
	applied := q.applied.Load()
	if applied < q.owed.Load() {
		return applied
	}
	return max(core, applied)
}

// refuseCapture ends a snapshot that is wanted: the state is suspect.
func (q *applyQueue) refuseCapture() {
	q.group.snapshots.Refuse(q.group.Halted())
}

// answerHalted answers the clients that wait when the machine has halted. It is part of a turn.
func (g *Group) answerHalted() (again bool) {
	s := &g.machine.apply.halting
	h := s.now.Load()
	if last := g.machine.apply.unanswered.Load(); h != nil && last > 0 && last <= g.writes.storage.log.LastIndex() {
		g.host.appliers.Enqueue(&g.machine.apply.seat)
	}
	if h == s.answered.Load() || h == nil {
		return h != nil && g.machine.apply.unanswered.Load() > 0
	}
	defer g.host.appliers.Enqueue(&g.machine.apply.seat)
	defer s.answered.Store(h)
	why := error(h.err)
	left := g.inbox.dropProposals()
	g.proposals.AnswerAll(left, why)
	st := g.core.node.BasicStatus()
	g.proposals.AnswerByTerm(0, st.Commit, st.CommittedBy, g.core.node.EntryTerm)
	g.proposals.EndCalls(why)
	g.proposals.spaces.release()
	return g.machine.apply.unanswered.Load() > 0
}
