package bulk

// queue is the blocks that a receiver has asked for and that were not sent. It is pure.
//
// The number of an ask grows, so a copy of an earlier ask, or one that comes late, changes nothing: what it
// asked for was sent, or is asked for again.
type queue struct {
	last   uint64 // number of the latest ask
	ranges []Range
}

// maxQueuedRanges bounds the queue. A receiver asks for a window at a time, so only a peer that breaks the
// rules reaches it.
const maxQueuedRanges = 4 * WindowBlocks

// accept takes an ask, and reports whether it is a new one.
func (q *queue) accept(a *Ask) (isNew bool) {
	if a.Number <= q.last {
		return false
	}
	q.last = a.Number
	if a.Restarts {
		q.ranges = q.ranges[:0]
	}
	fits := min(len(a.Ranges), maxQueuedRanges-len(q.ranges))
	q.ranges = append(q.ranges, a.Ranges[:fits]...)
	return true
}

// next takes blocks of one part that follow each other out of the queue, at most n of them. ok is false if
// there are none.
func (q *queue) next(n int64) (r Range, ok bool) {
	if len(q.ranges) == 0 || n <= 0 {
		return r, false
	}
	first := &q.ranges[0]
	r = Range{first.Part, first.Block, min(first.Blocks, n)}
	first.Block, first.Blocks = first.Block+r.Blocks, first.Blocks-r.Blocks
	if first.Blocks == 0 {
		q.ranges = q.ranges[1:]
	}
	return r, true
}

// requeue puts blocks in front again: the transport has not taken them. asks is the number of the latest ask
// when they were taken. A later one may have forgotten them.
func (q *queue) requeue(r Range, asks uint64) {
	if r.Blocks > 0 && asks == q.last {
		q.ranges = append([]Range{r}, q.ranges...)
	}
}

func (q *queue) empty() bool { return len(q.ranges) == 0 }
