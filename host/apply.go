package host

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// applyQueue is what one group has for the apply lanes (internal/apply): committed entries for its state
// machine, most of them as ranges of the log. The core bounds how much can wait (MaxCommittedSizePerReady).
type applyQueue struct {
	workqueue.Queue
	group   *Group
	machine statemachine.Machine
	calls   atomic.Uint64
	entries atomic.Uint64
	applied atomic.Uint64 // the last entry
	through atomic.Uint64 // the last entry that the machine has, which may be in the middle of a message,
	term    atomic.Uint64 // and its term
	owed    atomic.Uint64 // through here the core was told that it is applied, by a halted machine
	// unanswered is the last entry of what is handed out, is not in the log, and waits for a halted machine.
	unanswered atomic.Uint64
	drained    atomic.Pointer[func()] // to be called when everything is applied (install.go)
	parked     atomic.Pointer[parked] // the entry that must wait (applywait.go); nil: none does
	lost       atomic.Uint64          // the entry that waits for what no member has; 0: none does
	// passing is a snapshot that takes the machine past that entry (applywait.go).
	passing atomic.Pointer[snapshots.Published]
	hook    applyHook  // nil: the machine gets each command as it is
	calling sync.Mutex // held while the machine is called in a turn, or a function of StartBetween
	halting halting    // halted.go

	seat apply.Seat // at the lanes

	// Owned by the lane that works on it.
	work      []raftpb.Message // taken, and not finished
	workBytes int64
	failed    bool
	short     bool // what it was to read could not be opened: shortages

	// Owned by the lane or the turn that calls the machine.
	passed []uint64 // commands that it was not given because the group skips them (skipped.go), ascending

	// Owned by the lane.
	note       machineText    // machinenote.go
	rebuilt    rebuildPurpose // for which the machine was made again last, or could not be (rebuild.go)
	noteFailed bool           // it is not on the disk
	rebuilding bool
	rebuildTo  uint64 // what it must have before it works again, at least
}

// retried says that entries could not be read for lack of a descriptor, or a note not written for lack of a
// descriptor or of space. It is tried again.
type retried struct{ error }

// apply passes entries to the state machine, except Raft's own, and those that the group skips. If the
// machine fails, the error is a HaltedError: a panic of the machine becomes one, and so does the end of the
// goroutine, for which there is no caller. A *parked says at which entry it has stopped.
func (q *applyQueue) apply(entries []raftpb.Entry) (err error) {
	returned, with := false, entries // with is never empty
	defer func() {
		p := recover()
		switch {
		case p == nil && !returned:
			q.halt(q.haltAt(with, q.callee()+" ended its goroutine while applying", errors.New("runtime.Goexit, as t.Fatal does")))
		case p != nil:
			err = q.haltAt(with, q.callee()+" panicked while applying", &containment.Panic{Text: fmt.Sprint(p), Stack: debug.Stack()})
		}
	}()
	for rest := entries; len(rest) > 0; {
		n := q.together(rest)
		if n > 0 {
			with = rest[:n:n]
			if err := q.machine.Apply(with); err != nil {
				returned = true
				if at, ok := err.(*parked); ok {
					q.noteApplied(entries[:at.index-entries[0].Index])
					return at
				}
				return q.haltAt(with, "state machine failed to apply", err)
			}
			q.calls.Add(1)
			q.entries.Add(uint64(n))
		}
		for n < len(rest) && (!isCommand(&rest[n]) || q.group.machine.skips.Of(rest[n].Index) > 0) {
			with = rest[n : n+1 : n+1]
			if err := q.applyOwn(&rest[n]); err != nil {
				if returned = true; errors.As(err, new(retried)) {
					q.noteApplied(entries[:len(entries)-len(rest)+n])
				}
				return err
			}
			n++
		}
		rest = rest[n:]
	}
	returned = true
	q.noteApplied(entries)
	return nil
}

// together returns how many of the first entries are one call of the machine.
func (q *applyQueue) together(rest []raftpb.Entry) (n int) {
	for n < len(rest) && isCommand(&rest[n]) && q.group.machine.skips.Of(rest[n].Index) == 0 {
		if n > 0 && (q.isSuspect(rest[n].Index) || q.isSuspect(rest[n-1].Index)) {
			return n
		}
		n++
	}
	return n
}

// applyOwn does what an entry means for the machine that the machine is not given.
func (q *applyQueue) applyOwn(e *raftpb.Entry) error {
	if q.group.machine.skips.Of(e.Index) > 0 {
		return q.skip(e)
	}
	if entry.IsSkip(e.Type, e.Data) {
		if halted := q.checkSkip(e); halted != nil {
			return halted
		}
	}
	return nil
}

// noteApplied notes that entries are applied.
func (q *applyQueue) noteApplied(entries []raftpb.Entry) {
	if len(entries) > 0 {
		if q.setPosition(entries[len(entries)-1].ID()); q.rebuilding {
			return // it was counted
		}
		q.group.snapshots.noteApplied(entries)
		if q.hook != nil {
			q.hook.applied()
		}
	}
}

// setPosition notes what the machine has applied. position returns it: exactly, for a caller that
// may call the machine.
func (q *applyQueue) setPosition(id raftpb.EntryID) {
	q.through.Store(id.Index)
	q.term.Store(id.Term)
}

func (q *applyQueue) position() raftpb.EntryID {
	return raftpb.EntryID{Index: q.through.Load(), Term: q.term.Load()}
}

func isCommand(e *raftpb.Entry) bool { return e.Type == raftpb.EntryNormal && len(e.Data) > 0 }

// newApplyQueue returns the queue of a group.
func newApplyQueue(g *Group, machine statemachine.Machine) *applyQueue {
	q := &applyQueue{group: g, machine: machine}
	q.seat.Init(q)
	return q
}

// ID implements apply.Owner.
func (q *applyQueue) ID() uint64 { return q.group.id }

// Leads implements apply.Owner.
func (q *applyQueue) Leads() bool { return q.group.life.status.leads.Load() }

// Wants implements apply.Owner.
func (q *applyQueue) Wants(more bool) bool {
	return !q.failed && (more || !q.Empty() && q.parkedAt() == 0 && !q.short && q.halted() == nil)
}

// Released implements apply.Owner.
func (q *applyQueue) Released() { q.group.partDone(theApplyLanes) }

// Round applies what is queued, about maxBytes of it, and answers the group for what is done. It reports
// whether anything is left.
func (q *applyQueue) Round(maxBytes int64) (left bool) {
	switch {
	case q.failed:
		return false
	case q.halted() != nil:
		return q.applyHalted()
	}
	q.short = false
	q.group.reads.queue.RunBetween(&q.calling)
	q.group.snapshots.Capture(&q.calling)
	if len(q.work) == 0 {
		q.work = q.Take(maxBytes) // which Round clears: a message keeps an array of the core's alive
		q.workBytes = q.TakenBytes()
	}
	if q.parkedAt() > 0 || q.passing.Load() != nil {
		q.pass()
	}
	if len(q.work) == 0 {
		q.runDrained()
	}
	answers, done, err := q.applyWork(maxBytes)
	if done > 0 {
		storeMax(&q.applied, lastIndex(&q.work[done-1])) // what a halted machine had left may be behind a snapshot that was installed
		q.group.reads.queue.Applied(lastIndex(&q.work[done-1]))
		q.group.inbox.putAnswers(answers)
		if q.group.writes.awaitsApply.Load() {
			q.group.wake()
		} else {
			q.group.wakeLazily()
		}
	}
	clear(q.work[:done])
	if q.work = q.work[done:]; len(q.work) == 0 {
		q.Hold(-q.workBytes)
		q.work, q.workBytes = nil, 0
	}
	if short := (retried{}); errors.As(err, &short) {
		q.short = true
		q.group.host.storage.shortages.Later(func() { q.group.host.appliers.Enqueue(&q.seat) }, short.error)
		return false
	}
	if halted := (*outcome.HaltedError)(nil); errors.As(err, &halted) {
		q.halt(halted)
		return false
	} else if err != nil {
		q.failed = true
		q.group.fail(err)
		return false
	}
	if q.parkedAt() > 0 {
		return false // it comes back when the entry need not wait
	}
	return len(q.work) > 0 || q.drained.Load() != nil // what waits for the end of all this is next
}

// applyWork applies messages of the core in order, and returns the answers of those that it has finished. A
// message has entries, or names a range of them that is in the log. Entries that follow one another, in
// several messages, are one call of the state machine.
func (q *applyQueue) applyWork(maxBytes int64) (answers []raftpb.Message, done int, err error) {
	var waits *parked
	defer func() { q.setParked(waits) }()
	for bytes := int64(0); done < len(q.work) && bytes < maxBytes && waits == nil; {
		if m, has := &q.work[done], q.through.Load(); lastIndex(m) <= has {
			answers = append(answers, m.Responses...) // a snapshot was restored that has its effect
			done++
			continue
		} else {
			leaveRest(m, has)
		}
		entries, last, err := q.next(q.work[done:], maxBytes-bytes)
		if err == nil {
			err = q.apply(entries)
		}
		if at, ok := err.(*parked); ok {
			last = at.index - 1
			waits = at
		} else if err != nil {
			return answers, done, err
		}
		bytes += workqueue.EntryBytes(entries)
		for done < len(q.work) && lastIndex(&q.work[done]) <= last {
			answers = append(answers, q.work[done].Responses...)
			done++
		}
		if done < len(q.work) {
			leaveRest(&q.work[done], last)
		}
	}
	return answers, done, nil
}

// setParked notes which entry must wait; nil: none does.
func (q *applyQueue) setParked(p *parked) {
	was := q.parked.Load()
	switch {
	case p == nil && was == nil:
		return
	case p != nil && was != nil && p.index == was.index:
		p.since = was.since
	case p != nil:
		p.since = q.group.host.clock.livedAtBeat()
	}
	q.parked.Store(p)
}

// parkedAt returns the entry that must wait, or 0.
func (q *applyQueue) parkedAt() uint64 {
	if p := q.parked.Load(); p != nil {
		return p.index
	}
	return 0
}

// leaveRest makes a message hand out only what is behind an entry.
func leaveRest(m *raftpb.Message, last uint64) {
	switch {
	case len(m.Entries) == 0:
		m.Index = max(m.Index, last)
	case last >= m.Entries[0].Index:
		m.Entries = m.Entries[last+1-m.Entries[0].Index:]
	}
}

// next returns the entries to apply now, beginning with the first message, and the index of the last. The
// state machine may keep the slice, so the entries of several messages need a new one.
func (q *applyQueue) next(work []raftpb.Message, maxBytes int64) (entries []raftpb.Entry, last uint64, err error) {
	first := &work[0]
	if len(first.Entries) == 0 {
		through := first.Commit
		for i := 1; i < len(work) && len(work[i].Entries) == 0 && work[i].Index == through; i++ {
			through = work[i].Commit
		}
		entries, err := q.read(first.Index+1, through+1, maxBytes)
		if vfs.IsShort(err) {
			return nil, 0, retried{err}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("millrace: read entries %d to %d of group %d, which must be applied: %w", first.Index+1, through, q.group.id, err)
		}
		return entries, entries[len(entries)-1].Index, nil
	}
	n, bytes := 1, workqueue.EntryBytes(first.Entries)
	for n < len(work) && len(work[n].Entries) > 0 && bytes < maxBytes {
		bytes += workqueue.EntryBytes(work[n].Entries)
		n++
	}
	if n == 1 {
		return first.Entries, lastIndex(first), nil
	}
	for i := range work[:n] {
		entries = append(entries, work[i].Entries...)
	}
	return entries, lastIndex(&work[n-1]), nil
}

// read returns entries of the log, at least one, about maxBytes at most.
func (q *applyQueue) read(lo, hi uint64, maxBytes int64) ([]raftpb.Entry, error) {
	most := uint64(min(max(maxBytes, 1), maxReadBytes))
	if entries, ok := q.group.writes.storage.log.Recent(lo, hi, most); ok {
		return entries, nil
	}
	return q.group.writes.storage.log.Entries(lo, hi, most)
}

// firstIndex returns the first entry that a message hands out.
func firstIndex(m *raftpb.Message) uint64 {
	if len(m.Entries) > 0 {
		return m.Entries[0].Index
	}
	return m.Index + 1
}

// lastIndex returns the last entry that a message hands out.
func lastIndex(m *raftpb.Message) uint64 {
	if n := len(m.Entries); n > 0 {
		return m.Entries[n-1].Index
	}
	return m.Commit
}

// groupMachine is the way of a group to its state machine.
type groupMachine struct {
	apply      *applyQueue
	time       apply.LogTime
	skips      apply.Skips
	divergence divergence.Comparison
	objects    *objects.Keeper // nil: there are none
}
