package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/vfs"
)

// A member whose entry waits for what no member has any more (a large object) cannot apply what its log
// has. The others have removed the files, because they have compacted the log behind the end of the set: so
// they have a snapshot that is beyond it. The member says so to the leader, which offers that snapshot,
// although the member's log needs none; and the member restores its machine from it, and goes on behind.
//
// The log is not touched: it has every entry that the snapshot covers. After a restart the snapshot on the
// disk is one like those that the member takes itself.

// parked says that an entry must wait, and what is before it is applied.
type parked struct {
	index uint64
	since int64 // tick, not missed
}

func (p *parked) Error() string {
	return fmt.Sprintf("millrace: entry %d must wait", p.index)
}

// cannotApply reports whether an entry waits, or one may come that must wait: this member lacks something.
func (g *Group) cannotApply() bool {
	return g.machine.apply.parkedAt() > 0 || g.snapshots.Section != nil && !g.snapshots.Section.IsWhole()
}

// passes reports whether a snapshot through an index would take this member's machine past the entry at which
// it waits for what no member has.
func (q *applyQueue) passes(index uint64) bool {
	lost := q.lostAt()
	return lost > 0 && index >= lost
}

// lostAt returns the entry at which the machine waits for what no member has, or 0. It may have gone on since
// the entry was noted: it has come after all, or another snapshot.
func (q *applyQueue) lostAt() uint64 {
	lost := q.lost.Load()
	if q.parkedAt() != lost {
		return 0
	}
	return lost
}

// Passes hands a snapshot that was received to the apply lane, if the machine needs it. It is part of a turn.
func (g *snapshotGroup) Passes(p *snapshots.Published) bool {
	if !g.machine.apply.passes(p.ID.Index) {
		return false
	}
	g.machine.apply.passing.Store(p)
	g.host.appliers.Enqueue(&g.machine.apply.seat)
	return true
}

// pass is called by an apply lane while an entry waits, or a snapshot is there that may have its effect.
func (q *applyQueue) pass() {
	g, waits := q.group, q.parkedAt()
	if waits > 0 && q.drained.Load() != nil {
		q.runDrained() // it restores from a snapshot that is being installed; all that waits here is before it
		return
	}
	p := q.passing.Swap(nil)
	switch {
	case p == nil:
		return
	case waits == 0 || p.ID.Index < waits: // the entry waits no more
		g.snapshots.EndTransfer(p)
		return
	}
	q.calling.Lock()
	defer q.calling.Unlock()
	if err := g.restoreReceived(p); vfs.IsShort(err) {
		q.passing.CompareAndSwap(nil, p)
		g.host.storage.shortages.Later(func() { g.host.appliers.Enqueue(&q.seat) }, err)
		return
	} else if err != nil {
		q.failed = true
		g.fail(errRestore(err))
		return
	}
	g.proposals.Overtaken(p.ID.Index)
	g.proposals.OvertakeRouted(q.machine.(*commandGroup).table, q.refusedBefore)
	q.lost.Store(0)
	g.snapshots.Publish(p)
	g.host.reports.events.emit(event.SnapshotPassed{Group: g.id, Index: p.ID.Index, Bytes: p.Bytes})
	g.snapshots.EndTransfer(p)
}
