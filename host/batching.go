package host

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// batching is what a leader knows of its open batches: those that have begun and are not committed. A batch
// is the commands that one turn has put into the log.
//
// Without a rule each batch begins at once, and batching only measures. With one (WithBatches) commands stay
// in the inbox while the rule says so, and the group looks again after each commit, and when the rule wants
// to. Commands that other hosts have forwarded are not held.
//
// Invariant: while no batch is open, nothing is held. So what is held waits for the commit of an earlier
// batch, which it could not overtake in any case; and a leader that loses its quorum steps down.
type batching struct {
	rule batches.Rule // nil: none

	// Owned by the turn.
	term      uint64 // in which this host leads; 0: it does not
	open      []openBatch
	first     int // of open; those before it are committed
	bytes     int64
	next      openBatch         // what this turn has put into the log; last is 0: nothing
	measured  *batches.Measured // nil: no batch has begun in this term; most groups lead elsewhere
	heldSince time.Duration
	holds     bool
	timer     env.Timer // nil until it is needed

	depth   atomic.Int64 // for Metrics
	round   atomic.Int64
	held    atomic.Uint64
	heldFor atomic.Int64
}

// openBatch is one of them.
type openBatch struct {
	last    uint64 // index of its last entry
	began   time.Duration
	bytes   int64
	flushed bool // this host's disk has it
}

// noteProposed adds what the turn has put into the log, through an index.
func (b *batching) noteProposed(last uint64, entries []raftpb.Entry) {
	b.next.last = last
	for i := range entries {
		b.next.bytes += int64(len(entries[i].Data))
	}
}

// beginBatch makes what the turn has put into the log a batch.
func (g *Group) beginBatch() {
	b := &g.batching
	term := uint64(0)
	if st := g.node.BasicStatus(); st.RaftState == raft.StateLeader {
		term = st.Term
	}
	if term != b.term {
		b.forget(term)
	}
	if b.next.last > 0 && term > 0 {
		if b.first == len(b.open) {
			b.open, b.first = b.open[:0], 0
		}
		if b.measured == nil {
			b.measured = new(batches.Measured)
		}
		b.next.began = g.now()
		b.open = append(b.open, b.next)
		b.bytes += b.next.bytes
	}
	b.next = openBatch{}
}

// forget drops all batches: another leadership begins.
func (b *batching) forget(term uint64) {
	b.term, b.open, b.first, b.bytes, b.measured = term, b.open[:0], 0, 0, nil
	b.round.Store(0)
}

// noteFlushed takes an answer of this host's append lane.
func (g *Group) noteFlushed(m *raftpb.Message) {
	b := &g.batching
	if b.rule == nil || m.Type != raftpb.MsgStorageAppendResp || b.first == len(b.open) {
		return
	}
	for i := b.first; i < len(b.open) && b.open[i].last <= m.Index; i++ {
		if o := &b.open[i]; !o.flushed {
			o.flushed = true
			now := g.now()
			b.measured.NoteFlush(now, now-o.began)
		}
	}
}

// endBatches forgets the batches that are committed, and decides whether the next may begin. It reports
// whether commands were released, which then need a turn.
func (g *Group) endBatches() (released bool) {
	g.beginBatch()
	b := &g.batching
	if committed := g.node.BasicStatus().Commit; b.first < len(b.open) && b.open[b.first].last <= committed {
		now := g.now()
		for ; b.first < len(b.open) && b.open[b.first].last <= committed; b.first++ {
			o := &b.open[b.first]
			b.measured.NoteRound(now, now-o.began, o.bytes)
			b.bytes -= o.bytes
		}
		b.round.Store(int64(b.measured.Round))
		b.compact()
	}
	b.depth.Store(int64(len(b.open) - b.first))
	return g.holdBatch() && g.inbox.hasProposals()
}

// compact keeps the array from growing: under load batches are always open.
func (b *batching) compact() {
	if b.first >= 64 && 2*b.first >= len(b.open) {
		b.open = b.open[:copy(b.open, b.open[b.first:])]
		b.first = 0
	}
}

// shrink releases the array, if no batch is open.
func (b *batching) shrink() {
	if b.first == len(b.open) {
		b.open, b.first = nil, 0
	}
}

// holdBatch decides whether commands stay in the inbox for now, and reports whether they are released.
func (g *Group) holdBatch() (released bool) {
	b := &g.batching
	if b.rule == nil {
		return false
	}
	begins, again := b.begins(g.now)
	switch {
	case begins && b.holds:
		if since, waits := g.inbox.waitsSince(); waits {
			b.held.Add(1)
			b.heldFor.Add(int64(g.now() - max(since, b.heldSince)))
		}
	case !begins && !b.holds:
		b.heldSince = g.now()
	}
	b.holds = !begins
	if !begins && again > 0 {
		if b.timer == nil {
			b.timer = g.host.env.env.Clock.Timer(g.wake)
		}
		b.timer.Set(max(again-g.now(), minHold))
	}
	return g.inbox.hold(heldForBatch, !begins) && begins
}

// minHold is the least time after which a group looks again whether a batch may begin.
const minHold = 10 * time.Microsecond

// begins asks the rule, if a batch is open.
func (b *batching) begins(now func() time.Duration) (begins bool, again time.Duration) {
	n := len(b.open) - b.first
	if n == 0 {
		return true, 0
	}
	return b.rule.Next(batches.State{
		Now: now(), Open: n, OpenBytes: b.bytes,
		First: b.open[b.first].began, Last: b.open[len(b.open)-1].began, Measured: *b.measured,
	})
}

// stop ends the timer.
func (b *batching) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// BatchMetrics are about the batches that a leader has put into its log and that are not committed.
type BatchMetrics struct {
	Open    int           // now
	Round   time.Duration // the moving mean of the time from the beginning of a batch to its commit; 0: not measured
	Held    uint64        // batches that were held back while commands waited for them; 0 without WithBatches
	HeldFor time.Duration // all of them together
}

func (b *batching) metrics() BatchMetrics {
	return BatchMetrics{
		Open: int(b.depth.Load()), Round: time.Duration(b.round.Load()),
		Held: b.held.Load(), HeldFor: time.Duration(b.heldFor.Load()),
	}
}
