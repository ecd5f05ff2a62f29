package host

import "github.com/millrace/millrace/wal"

// compactLog asks the append lane to compact the log through an index. It is part of a turn. What the core
// has not seen applied stays, until it has.
func (g *Group) compactLog(through, applied uint64) {
	if may := min(through, applied); may >= g.writes.storage.log.FirstIndex() {
		raise(&g.writes.append.compact, may)
		g.host.storage.lane.enqueue(g.writes.append)
	}
	if through <= applied {
		g.snapshots.compact.CompareAndSwap(through, 0)
	}
}

// compact compacts a group's log, if that was asked for. It changes nothing of what waits, also behind a full
// disk: the entries that it drops are durable and applied. It reports whether it wrote.
func (l *appendLane) compact(q *appendQueue) (wrote bool) {
	through := q.compact.Load()
	if through == 0 {
		return false
	}
	if g := q.group; through < g.writes.storage.log.FirstIndex() {
		q.compact.CompareAndSwap(through, 0)
		return false
	}
	err := l.append([]wal.Write{{Group: q.group.id, CompactThrough: through}})
	switch verdictOn(err) {
	case written:
		l.sync = true // with the next round: nothing waits for it
		q.compact.CompareAndSwap(through, 0)
		q.compacted.Add(1)
		return true
	case noSpace:
		return false // it is tried again with the next write of the group, or at the next snapshot
	case invalid:
		q.compact.CompareAndSwap(through, 0)
		q.group.fail(err)
	default:
		l.stop(err)
	}
	return false
}
