package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/vfs"
)

// A member that waits for an object which no member has any more (groupObjects) cannot apply what its log
// has. The others have removed the files, because they have compacted the log behind the end of the set: so
// they have a snapshot that is beyond it. The member says so to the leader, which offers that snapshot,
// although the member's log needs none; and the member restores its machine from it, and goes on behind.
//
// The log is not touched: it has every entry that the snapshot covers. After a restart the snapshot on the
// disk is one like those that the member takes itself.

// passes reports whether a snapshot through an index would take this member's machine past the entry at which
// it waits for an object that no member has.
func (o *groupObjects) passes(index uint64) bool {
	lost := o.lostAt()
	return lost > 0 && index >= lost
}

// lostAt returns the entry at which the machine waits for an object that no member has, or 0. It may have
// gone on since the entry was noted: the object has come after all, or another snapshot.
func (o *groupObjects) lostAt() uint64 {
	lost := o.lost.Load()
	if o.group.machine.apply.parkedAt() != lost {
		return 0
	}
	return lost
}

// passParked hands a snapshot that was received to the apply lane, if the machine needs it. It is part of a
// turn.
func (g *Group) passParked(p *snapshots.Published) bool {
	if !g.machine.objects.passes(p.ID.Index) {
		return false
	}
	g.machine.objects.passing.Store(p)
	g.snapshots.installs.received.CompareAndSwap(p, nil)
	g.host.appliers.enqueue(g.machine.apply)
	return true
}

// pass is called by an apply lane while an entry waits for an object, or a snapshot is there that may have
// the effect of such an entry.
func (q *applyQueue) pass() {
	g, waits := q.group, q.parkedAt()
	if waits > 0 && q.drained.Load() != nil {
		q.runDrained() // it restores from a snapshot that is being installed; all that waits here is before it
		return
	}
	p := g.machine.objects.passing.Swap(nil)
	switch {
	case p == nil:
		return
	case waits == 0 || p.ID.Index < waits: // the object has come meanwhile
		g.host.bulk.transfers.installed(g, p)
		return
	}
	q.calling.Lock()
	defer q.calling.Unlock()
	if err := g.restoreReceived(p); vfs.IsShort(err) {
		g.machine.objects.passing.CompareAndSwap(nil, p)
		g.host.storage.shortages.later(func() { g.host.appliers.enqueue(q) }, err)
		return
	} else if err != nil {
		q.failed = true
		g.fail(errRestore(err))
		return
	}
	g.proposals.overtaken(p.ID.Index)
	g.overtakeRouted(g.machine.apply.machine.(*commandGroup).table)
	g.machine.objects.lost.Store(0)
	g.snapshots.publish(p)
	g.host.reports.events.emit(event.SnapshotPassed{Group: g.id, Index: p.ID.Index, Bytes: p.Bytes})
	g.host.bulk.transfers.installed(g, p)
}
