package appendlane

import "github.com/millrace/millrace/wal"

// Compact makes the lane compact the log of a group through an index, which is durable and applied.
func (l *Lane) Compact(q *Queue, through uint64) {
	for {
		was := q.compact.Load()
		if through <= was || q.compact.CompareAndSwap(was, through) {
			break
		}
	}
	l.Enqueue(q)
}

// compact compacts a group's log, if that was asked for. It changes nothing of what waits, also behind a full
// disk: the entries that it drops are durable and applied. It reports whether it wrote.
func (l *Lane) compact(q *Queue) (wrote bool) {
	through := q.compact.Load()
	if through == 0 {
		return false
	}
	if through < q.log.FirstIndex() {
		q.compact.CompareAndSwap(through, 0)
		return false
	}
	err := l.append([]wal.Write{{Group: q.group, CompactThrough: through}})
	switch verdictOn(err) {
	case written:
		l.sync = true // with the next round: nothing waits for it
		q.compact.CompareAndSwap(through, 0)
		return true
	case noSpace:
		return false // it is tried again with the next write of the group, or at the next snapshot
	case invalid:
		q.compact.CompareAndSwap(through, 0)
		q.client.Fail(err)
	default:
		l.stop(err)
	}
	return false
}
