package host

// sendingQueue is the blocks that a receiver has asked for and that were not sent. It is pure.
//
// The number of an ask grows, so a copy of an earlier ask, or one that comes late, changes nothing: what it
// asked for was sent, or is asked for again.
type sendingQueue struct {
	last   uint64 // number of the latest ask
	ranges []blockRange
}

// maxQueuedRanges bounds the queue. A receiver asks for a window at a time, so only a peer that breaks the
// rules reaches it.
const maxQueuedRanges = 4 * windowBlocks

// take takes an ask, and reports whether it is a new one.
func (q *sendingQueue) take(a *snapshotAsk) (isNew bool) {
	if a.number <= q.last {
		return false
	}
	q.last = a.number
	if a.restarts {
		q.ranges = q.ranges[:0]
	}
	fits := min(len(a.ranges), maxQueuedRanges-len(q.ranges))
	q.ranges = append(q.ranges, a.ranges[:fits]...)
	return true
}

// next takes blocks of one part that follow each other out of the queue, at most n of them. ok is false if
// there are none.
func (q *sendingQueue) next(n int64) (r blockRange, ok bool) {
	if len(q.ranges) == 0 || n <= 0 {
		return r, false
	}
	first := &q.ranges[0]
	r = blockRange{first.part, first.block, min(first.blocks, n)}
	first.block, first.blocks = first.block+r.blocks, first.blocks-r.blocks
	if first.blocks == 0 {
		q.ranges = q.ranges[1:]
	}
	return r, true
}

// putBack puts blocks in front again: the transport has not taken them. asks is the number of the latest ask
// when they were taken. A later one may have forgotten them.
func (q *sendingQueue) putBack(r blockRange, asks uint64) {
	if r.blocks > 0 && asks == q.last {
		q.ranges = append([]blockRange{r}, q.ranges...)
	}
}

func (q *sendingQueue) empty() bool { return len(q.ranges) == 0 }

// sendingRate is a token bucket in bytes and ticks. It bounds what a host sends of snapshots per tick, over
// all its groups. What was not used is kept for a short time only: a burst must not take the link from
// others.
type sendingRate struct {
	perTick int64
	have    int64
	at      int64 // tick
}

// burstTicks is how many ticks' worth of bytes may be sent at once; at least a block may.
const burstTicks = 2

func newSendingRate(bytesPerSecond int64, ticksPerSecond float64) sendingRate {
	perTick := max(int64(float64(bytesPerSecond)/ticksPerSecond), 1)
	r := sendingRate{perTick: perTick}
	r.have = r.most()
	return r
}

func (r *sendingRate) most() int64 { return max(burstTicks*r.perTick, snapshotBlockBytes) }

// advance adds what the ticks through now allow.
func (r *sendingRate) advance(now int64) {
	if now <= r.at {
		return
	}
	r.have = min(r.have+min(now-r.at, burstTicks+snapshotBlockBytes/r.perTick+1)*r.perTick, r.most())
	r.at = now
}

// blocks returns how many whole blocks may be sent now.
func (r *sendingRate) blocks() int64 { return max(r.have, 0) / snapshotBlockBytes }

// spend takes bytes out.
func (r *sendingRate) spend(bytes int64) { r.have -= bytes }
