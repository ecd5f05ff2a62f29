package proposals

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/raft"
)

// Batching is what a leader knows of its open batches: those that have begun and are not committed. A batch
// is the commands that one turn has put into the log. Each begins at once, and batching only measures
// (decision 0028).
type Batching struct {
	// Owned by the turn.
	term  uint64 // in which this host leads; 0: it does not
	open  []openBatch
	first int           // of open; those before it are committed
	next  uint64        // as put said; 0: nothing
	mean  time.Duration // of the time from the beginning of a batch to its commit; 0: not measured

	depth atomic.Int64 // for Metrics
	round atomic.Int64
}

// openBatch is one of them.
type openBatch struct {
	last  uint64 // index of its last entry
	began time.Duration
}

// Put notes the last entry of what this turn has put into the log.
func (b *Batching) Put(last uint64) { b.next = last }

// roundWeight is the weight of a new round in the mean: about the last eight count.
const roundWeight = 8

// Measure makes what the turn has put into the log a batch, and forgets those that are committed. It reads
// the clock if it must.
func (b *Batching) Measure(st raft.BasicStatus, now func() time.Duration) {
	term := uint64(0)
	if st.RaftState == raft.StateLeader {
		term = st.Term
	}
	if term != b.term { // another leadership begins, or none
		b.term, b.open, b.first, b.mean = term, b.open[:0], 0, 0
		b.round.Store(0)
	}
	if b.next > 0 && term > 0 {
		b.open = append(b.open, openBatch{last: b.next, began: now()})
	}
	b.next = 0
	if b.first < len(b.open) && b.open[b.first].last <= st.Commit {
		b.end(st.Commit, now())
	}
	b.depth.Store(int64(len(b.open) - b.first))
}

// end forgets the batches through an index that is committed now.
func (b *Batching) end(committed uint64, now time.Duration) {
	for ; b.first < len(b.open) && b.open[b.first].last <= committed; b.first++ {
		took := max(now-b.open[b.first].began, 1)
		if b.mean == 0 {
			b.mean = took
		}
		b.mean += (took - b.mean) / roundWeight
	}
	b.round.Store(int64(b.mean))
	if b.first == len(b.open) || b.first >= 64 && 2*b.first >= len(b.open) { // under load batches are always open
		b.open = b.open[:copy(b.open, b.open[b.first:])]
		b.first = 0
	}
}

// Shrink releases the array, if no batch is open.
func (b *Batching) Shrink() {
	if b.first == len(b.open) {
		b.open, b.first = nil, 0
	}
}

// BatchCounts are about the batches that are not committed.
type BatchCounts struct {
	Open  int           // now
	Round time.Duration // the moving mean of the time from the beginning of a batch to its commit; 0: not measured
}

// Counts may be called by any goroutine.
func (b *Batching) Counts() BatchCounts {
	return BatchCounts{Open: int(b.depth.Load()), Round: time.Duration(b.round.Load())}
}
