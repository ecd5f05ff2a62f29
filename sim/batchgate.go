package sim

import (
	"time"

	"github.com/millrace/millrace/sim/batches"
)

// batchGate keeps the writes of a BatchRun from the leader while a rule says that the next batch must wait.
// The host begins each batch at once then (batches.Immediate), so the rules live out here. In the
// leader's Status the gate sees what a turn has put into the log, what is on its disk and what is committed.
//
// Invariant: while no batch is open, nothing is held. So what is held waits for the commit of a batch, which
// it could not overtake in any case.
type batchGate struct {
	w      *world
	leader *replica
	rule   batches.Rule // nil: at once
	bytes  int64        // of a write
	pass   func(from time.Duration)

	open      []openBatch
	last      uint64 // index of the last entry of the leader's log
	openBytes int64
	measured  batches.Measured

	waiting []time.Duration // when each write that waits was to come
	holds   bool
	held    uint64 // batches that were held back while writes waited
}

// openBatch is a batch that is not committed.
type openBatch struct {
	last    uint64 // index of its last entry
	began   time.Duration
	bytes   int64
	durable bool // on the leader's disk
}

// write passes a write to the leader, which was to come at a time, or holds it.
func (g *batchGate) write(from time.Duration) {
	g.advance()
	if g.holds {
		g.waiting = append(g.waiting, from)
		return
	}
	g.pass(from)
}

// advance finds which batches began, are on the disk and are committed, and lets writes pass when the rule
// allows it.
func (g *batchGate) advance() {
	if g.rule == nil {
		return
	}
	now, status := g.w.now, g.leader.group.Status()
	if status.LastIndex > g.last { // a turn has begun a batch
		bytes := int64(status.LastIndex-g.last) * g.bytes
		g.open, g.last, g.openBytes = append(g.open, openBatch{last: status.LastIndex, began: now, bytes: bytes}), status.LastIndex, g.openBytes+bytes
	}
	for i := range g.open {
		if b := &g.open[i]; b.last <= status.Durable && !b.durable {
			b.durable = true
			g.measured.NoteFlush(now, now-b.began)
		}
	}
	for len(g.open) > 0 && g.open[0].last <= status.Committed {
		b := g.open[0]
		g.open, g.openBytes = g.open[1:], g.openBytes-b.bytes
		g.measured.NoteRound(now, now-b.began, b.bytes)
	}
	g.decide(now)
}

// decide asks the rule, if a batch is open.
func (g *batchGate) decide(now time.Duration) {
	begins, again := true, time.Duration(0)
	if n := len(g.open); n > 0 {
		begins, again = g.rule.Next(batches.State{
			Now: now, Open: n, OpenBytes: g.openBytes, First: g.open[0].began, Last: g.open[n-1].began, Measured: g.measured,
		})
	}
	g.holds = !begins
	if again > 0 {
		g.w.plan(again-now, "a batch may begin", nil, g.advance)
	}
	if begins && len(g.waiting) > 0 {
		g.held++
		waiting := g.waiting
		g.waiting = nil
		for _, from := range waiting {
			g.pass(from)
		}
	}
}
