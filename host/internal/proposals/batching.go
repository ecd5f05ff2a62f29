package proposals

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/raft"
)

// Batching is what a leader knows of its open batches: those that have begun and are not committed. A batch
// is the commands that one turn has put into the log. A rule of package batches says when the next one
// begins; Batching tells it what was measured.
type Batching struct {
	Kind batches.Kind // of the rule; set before the first turn

	// Owned by the turn.
	rule     batches.Rule // nil: the next question gets a new one
	term     uint64       // in which this host leads; 0: it does not
	open     []openBatch
	first    int           // of open; those before it are committed
	flushed  int           // of open; those before it are on this host's disk, or committed
	next     uint64        // as Record said; 0: nothing
	put      int           // commands, as Record said,
	putOwn   int           // and those of clients of this host
	own      int           // open batches with commands of clients of this host
	pending  int           // commands of the open batches
	answered int           // commands that were committed since the rule was asked,
	back     int           // and those of clients of this host
	mean     time.Duration // of the time from the beginning of a batch to its commit; 0: not measured
	flush    time.Duration // the same, until this host's disk has the batch
	wake     int           // commands that must wait before the rule is asked, as it said
	again    time.Duration // when it wants to be asked; 0: no time was said

	depth   atomic.Int64 // for Metrics
	round   atomic.Int64
	chosen  atomic.Int64 // batches.Kind; Automatic: none
	changes atomic.Uint64
}

// openBatch is one of them.
type openBatch struct {
	last     uint64 // index of its last entry
	began    time.Duration
	commands int
	own      int // of clients of this host
}

// Record records the last entry of what this turn has put into the log, and how many commands it was. own
// of them are of clients of this host.
func (b *Batching) Record(last uint64, commands, own int) {
	b.next, b.put, b.putOwn = last, b.put+commands, b.putOwn+own
}

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
		b.term, b.open, b.first, b.flushed, b.mean, b.flush, b.rule = term, b.open[:0], 0, 0, 0, 0, nil
		b.own, b.pending, b.answered, b.back = 0, 0, 0, 0
		b.round.Store(0)
		b.chosen.Store(0)
	}
	if b.next > 0 && term > 0 {
		b.open = append(b.open, openBatch{last: b.next, began: now(), commands: b.put, own: b.putOwn})
		b.pending += b.put
		b.own += min(b.putOwn, 1)
	}
	b.next, b.put, b.putOwn = 0, 0, 0
	if b.flushed < len(b.open) && b.open[b.flushed].last <= max(st.Durable, st.Commit) {
		b.endFlushes(max(st.Durable, st.Commit), now())
	}
	if b.first < len(b.open) && b.open[b.first].last <= st.Commit {
		b.end(st.Commit, now())
	}
	b.depth.Store(int64(len(b.open) - b.first))
}

// endFlushes notes the batches through an index that this host's disk has now. One that is committed first
// has taken this disk at least as long.
func (b *Batching) endFlushes(durable uint64, now time.Duration) {
	for ; b.flushed < len(b.open) && b.open[b.flushed].last <= durable; b.flushed++ {
		addToMean(&b.flush, now-b.open[b.flushed].began)
	}
}

// end forgets the batches through an index that is committed now.
func (b *Batching) end(committed uint64, now time.Duration) {
	for ; b.first < len(b.open) && b.open[b.first].last <= committed; b.first++ {
		o := &b.open[b.first]
		addToMean(&b.mean, now-o.began)
		b.pending -= o.commands
		b.answered += o.commands
		b.own -= min(o.own, 1)
		b.back += o.own
	}
	b.round.Store(int64(b.mean))
	if b.first == len(b.open) || b.first >= 64 && 2*b.first >= len(b.open) { // under load batches are always open
		b.open = b.open[:copy(b.open, b.open[b.first:])]
		b.flushed -= b.first
		b.first = 0
	}
}

// addToMean adds a measurement to a moving mean.
func addToMean(mean *time.Duration, took time.Duration) {
	took = max(took, 1)
	if *mean == 0 {
		*mean = took
	}
	*mean += (took - *mean) / roundWeight
}

// IsIdle reports whether no batch is open and nothing is held, so a turn has nothing to measure.
func (b *Batching) IsIdle() bool { return b.first == len(b.open) && b.next == 0 && !b.Holds() }

// MustAsk reports whether the rule must be asked, however many commands wait: commands were answered, what it
// waits for will not come, or its time has come.
func (b *Batching) MustAsk(now func() time.Duration) bool {
	switch {
	case b.answered > 0:
		return true
	case b.wake <= 1:
		return false
	case b.term == 0 || b.own == 0 && b.again == 0:
		return true
	}
	return b.again > 0 && now() >= b.again
}

// Ask asks the rule. The caller has set what is known of the commands that wait.
func (b *Batching) Ask(s batches.State) batches.Verdict {
	s.Open, s.Pending, s.Answered, s.Back, s.Round, s.Flush = b.own, b.pending, b.answered, b.back, b.mean, b.flush
	if b.rule == nil {
		b.rule = b.Kind.New()
	}
	v := b.rule.Next(s)
	b.answered, b.back, b.wake, b.again = 0, 0, v.Wake, v.Again
	if is, was := int64(b.rule.Chosen()), b.chosen.Load(); is != was {
		b.chosen.Store(is)
		if was != 0 {
			b.changes.Add(1)
		}
	}
	return v
}

// Pass is in place of Ask for a member that takes all commands at once, since it does not lead. A rule that
// was not asked has not measured what happened meanwhile, so the next question gets a new one.
func (b *Batching) Pass() batches.Verdict {
	b.rule = nil
	b.answered, b.back, b.wake, b.again = 0, 0, 1, 0
	return batches.Verdict{Begins: true, Wake: 1}
}

// Leave follows Ask where commands wait for something else than the rule.
func (b *Batching) Leave() { b.wake, b.again = 1, 0 }

// Holds reports whether commands are kept for a later batch at times.
func (b *Batching) Holds() bool { return b.wake > 1 }

// Shrink releases the array, if no batch is open.
func (b *Batching) Shrink() {
	if b.first == len(b.open) {
		b.open, b.first, b.flushed = nil, 0, 0
	}
}

// BatchCounts are about the batches that are not committed.
type BatchCounts struct {
	Open  int           // now
	Round time.Duration // the moving mean of the time from the beginning of a batch to its commit; 0: not measured
	// Rule decides when a batch begins, Immediate or Cohorts; Automatic: this member does not lead, or had no
	// command yet. Changes is how often another rule was chosen while it led.
	Rule    batches.Kind
	Changes uint64
}

// Counts may be called by any goroutine.
func (b *Batching) Counts() BatchCounts {
	return BatchCounts{int(b.depth.Load()), time.Duration(b.round.Load()), batches.Kind(b.chosen.Load()), b.changes.Load()}
}
