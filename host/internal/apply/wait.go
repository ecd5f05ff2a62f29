package apply

import (
	"fmt"

	"github.com/millrace/millrace/vfs"
)

// A member whose entry waits for what no member has any more (a large object) cannot apply what its log
// has. The others have removed the files, because they have compacted the log behind the end of the set: so
// they have a snapshot that is beyond it. The member says so to the leader, which offers that snapshot,
// although the member's log needs none; and the member restores its machine from it, and goes on behind.
//
// The log is not touched: it has every entry that the snapshot covers. After a restart the snapshot on the
// disk is one like those that the member takes itself.

// WaitingForObject says that an entry must wait, and what is before it is applied.
type WaitingForObject struct {
	Index uint64
	Since int64 // tick, not missed; 0: it has not waited before
}

func (p *WaitingForObject) Error() string {
	return fmt.Sprintf("millrace: entry %d must wait", p.Index)
}

// Waits returns the entry that must wait, or nil, and whether it waits for what no member has.
func (q *Queue) Waits() (p *WaitingForObject, lost bool) {
	p = q.waiting.Load()
	return p, p != nil && q.lost.Load() == p.Index
}

// Lose says that an entry waits for what no member has.
func (q *Queue) Lose(index uint64) { q.lost.Store(index) }

// UnavailableAt returns the entry at which the machine waits for what no member has, or 0. It may have gone
// on since the entry was noted: it has come after all, or another snapshot.
func (q *Queue) UnavailableAt() uint64 {
	lost := q.lost.Load()
	if q.WaitsAt() != lost {
		return 0
	}
	return lost
}

// SkipsPast reports whether a snapshot through an index would take the machine past the entry at which it
// waits for what no member has.
func (q *Queue) SkipsPast(index uint64) bool {
	lost := q.UnavailableAt()
	return lost > 0 && index >= lost
}

// Passage is a snapshot that takes the machine past the entry.
type Passage struct {
	Index   uint64
	Restore func() error // the machine, from the snapshot
	Passed  func()       // says that the machine goes on behind it
	Drop    func()       // says that it is not needed
}

// Pass hands a snapshot to the lanes.
func (q *Queue) Pass(p *Passage) {
	q.passing.Store(p)
	q.Wake()
}

// pass is called by a lane while an entry waits, or a snapshot is there that may have its effect.
func (q *Queue) pass() {
	waits := q.WaitsAt()
	if waits > 0 && q.drained.Load() != nil {
		q.runDrained() // it restores from a snapshot that is being installed; all that waits here is before it
		return
	}
	p := q.passing.Swap(nil)
	switch {
	case p == nil:
		return
	case waits == 0 || p.Index < waits: // the entry waits no more
		p.Drop()
		return
	}
	q.calling.Lock()
	defer q.calling.Unlock()
	if err := p.Restore(); vfs.IsShort(err) {
		q.passing.CompareAndSwap(nil, p)
		q.retry(err)
		return
	} else if err != nil {
		q.failed = true
		q.member.Fail(err)
		return
	}
	q.lost.Store(0)
	p.Passed()
}

// Park notes which entry must wait; nil: none does.
func (q *Queue) Park(p *WaitingForObject) {
	was := q.waiting.Load()
	switch {
	case p == nil && was == nil:
		return
	case p != nil && was != nil && p.Index == was.Index:
		p.Since = was.Since
	case p != nil && p.Since == 0:
		p.Since = q.Ticks()
	}
	q.waiting.Store(p)
}

// WaitsAt returns the entry that must wait, or 0.
func (q *Queue) WaitsAt() uint64 {
	if p := q.waiting.Load(); p != nil {
		return p.Index
	}
	return 0
}
