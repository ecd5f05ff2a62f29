package apply

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// Round applies what is queued, about maxBytes of it, and answers the group for what is done. It reports
// whether anything is left.
func (q *Queue) Round(maxBytes int64) (left bool) {
	defer q.inside.Store(q.enter())
	switch {
	case q.failed:
		return false
	case q.Halted() != nil:
		return q.applyHalted()
	}
	q.short = false
	q.member.Between(&q.calling)
	if len(q.work) == 0 {
		q.work = q.Dequeue(maxBytes, nil) // which Round clears: a message keeps an array of the core's alive
		q.workBytes = q.TakenBytes()
	}
	if q.WaitsAt() > 0 || q.passing.Load() != nil {
		q.pass()
	}
	if q.Halted() != nil {
		return true // at the version of a snapshot
	}
	if len(q.work) == 0 {
		q.runDrained()
	}
	done, err := q.applyWork(maxBytes)
	if done > 0 {
		storeMax(&q.applied, LastIndex(&q.work[done-1])) // what a halted machine had left may be behind a snapshot that was installed
		q.member.Done(LastIndex(&q.work[done-1]), q.answers)
	}
	q.forgetAnswers()
	clear(q.work[:done])
	if q.work = q.work[done:]; len(q.work) == 0 {
		q.Hold(-q.workBytes)
		q.work, q.workBytes = nil, 0
	}
	if err != nil {
		q.stopFor(err)
		return false
	}
	if q.WaitsAt() > 0 {
		return false // it comes back when the entry need not wait
	}
	return len(q.work) > 0 || q.drained.Load() != nil // what waits for the end of all this is next
}

// stopFor acts on what has ended a round: it is tried again, or the machine is halted, or the group has
// failed.
func (q *Queue) stopFor(err error) {
	if short := (retried{}); errors.As(err, &short) {
		q.short = true
		q.retry(short.error)
		return
	}
	if halted := (*outcome.HaltedError)(nil); errors.As(err, &halted) {
		q.halt(halted)
		return
	}
	q.failed = true
	q.member.Fail(err)
}

// applyWork applies messages of the core in order, and collects the answers of those that it has finished. A
// message has entries, or names a range of them that is in the log. Entries that follow one another, in
// several messages, are one call of the state machine.
func (q *Queue) applyWork(maxBytes int64) (done int, err error) {
	q.forgetAnswers() // of a round whose goroutine the machine has ended
	var waits *WaitingForObject
	defer func() { q.Park(waits) }()
	defer q.giveBack() // if the machine ends its goroutine
	for bytes := int64(0); done < len(q.work) && bytes < maxBytes && waits == nil; {
		if m, has := &q.work[done], q.through.Load(); LastIndex(m) <= has {
			q.answers = append(q.answers, m.Responses...) // a snapshot was restored that has its effect
			done++
			continue
		} else {
			leaveRest(m, has)
		}
		entries, last, err := q.next(q.work[done:], maxBytes-bytes)
		if err == nil {
			err = q.apply(entries)
		}
		size := workqueue.EntryBytes(entries)
		q.giveBack()
		if at, ok := err.(*WaitingForObject); ok {
			last = at.Index - 1
			waits = at
		} else if err != nil {
			return done, err
		}
		bytes += size
		for done < len(q.work) && LastIndex(&q.work[done]) <= last {
			q.answers = append(q.answers, q.work[done].Responses...)
			done++
		}
		if done < len(q.work) {
			leaveRest(&q.work[done], last)
		}
	}
	return done, nil
}

// forgetAnswers empties the scratch. The group has copied what it was given.
func (q *Queue) forgetAnswers() {
	clear(q.answers)
	if q.answers = q.answers[:0]; cap(q.answers) > maxUnpacked {
		q.answers = nil
	}
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

// next returns the entries to apply now, beginning with the first message, and the index of the last. They
// are valid until giveBack.
func (q *Queue) next(work []raftpb.Message, maxBytes int64) (entries []raftpb.Entry, last uint64, err error) {
	first := &work[0]
	if len(first.Entries) == 0 {
		through := first.Commit
		for i := 1; i < len(work) && len(work[i].Entries) == 0 && work[i].Index == through; i++ {
			through = work[i].Commit
		}
		entries, err := q.read(first.Index+1, through+1, maxBytes)
		if err != nil {
			if vfs.IsShort(err) {
				return nil, 0, retried{err}
			}
			return nil, 0, fmt.Errorf("millrace: read entries %d to %d of group %d, which must be applied: %w", first.Index+1, through, q.Group, err)
		}
		return entries, entries[len(entries)-1].Index, nil
	}
	n, bytes := 1, workqueue.EntryBytes(first.Entries)
	for n < len(work) && len(work[n].Entries) > 0 && bytes < maxBytes {
		bytes += workqueue.EntryBytes(work[n].Entries)
		n++
	}
	if n == 1 {
		return first.Entries, LastIndex(first), nil
	}
	for i := range work[:n] {
		entries = append(entries, work[i].Entries...)
	}
	return entries, LastIndex(&work[n-1]), nil
}

// read returns entries of the log, at least one, about maxBytes at most. They are valid until giveBack.
func (q *Queue) read(lo, hi uint64, maxBytes int64) ([]raftpb.Entry, error) {
	most := uint64(min(max(maxBytes, 1), storage.MaxReadBytes))
	if q.lends != nil && q.Hook == nil {
		if entries, ok := q.lends.Borrow(lo, hi, most, q.loan, q.borrowed[:0]); ok {
			q.borrowed = entries
			return entries, nil
		}
		return q.Log.Entries(lo, hi, most)
	}
	if entries, ok := q.Log.Recent(lo, hi, most); ok {
		return entries, nil
	}
	return q.Log.Entries(lo, hi, most)
}

// giveBack ends the loan of what read has returned.
func (q *Queue) giveBack() {
	if q.loan != nil {
		q.loan.Return()
	}
	clear(q.borrowed)
	if q.borrowed = q.borrowed[:0]; cap(q.borrowed) > maxUnpacked {
		q.borrowed = nil
	}
}

// firstIndex returns the first entry that a message hands out.
func firstIndex(m *raftpb.Message) uint64 {
	if len(m.Entries) > 0 {
		return m.Entries[0].Index
	}
	return m.Index + 1
}

// LastIndex returns the last entry that a message hands out.
func LastIndex(m *raftpb.Message) uint64 {
	if n := len(m.Entries); n > 0 {
		return m.Entries[n-1].Index
	}
	return m.Commit
}
