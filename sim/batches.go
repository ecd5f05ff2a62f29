package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	held "github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/batches"
	"github.com/millrace/millrace/wal"
)

// BatchRun is one measurement of a rule for batches: three hosts on some Hardware, one group, and a load.
type BatchRun struct {
	Hardware
	// Rule holds commands before they come to the leader; nil: none does.
	Rule batches.Rule
	// Host is the rule of each host.
	Host held.Kind
	// Echoes makes followers answer each frame with commands at once, too. The answers cost what they cost, and
	// say nothing: a rule that waits for them is batches.Spaced by a round trip.
	Echoes bool
	// Clients is how many clients write in a closed loop. If it is 0, writes come at random times (Poisson),
	// Rate of them in a second.
	Clients int
	Rate    float64
	// Think is how long a client of the closed loop does something else between two writes, on average
	// (exponential). Without it all clients write in step, and there is nothing to decide.
	Think time.Duration
	// ValueBytes is the size of a write.
	ValueBytes int
	// Ops is how many writes are measured, after Warm that are not; at least a third as many, and twice the
	// clients.
	Ops, Warm int
	Seed      uint64
}

// BatchResult is what a BatchRun measured. Latencies are what the clients see; in the open loop they count
// from the time at which a write was to come.
type BatchResult struct {
	OpsPerSec      float64
	Mean, P50, P99 time.Duration
	PerBatch       float64       // writes in a batch, as the leader sent them
	PerSync        float64       // writes that one sync of the leader's disk covered
	CPU            time.Duration // of all hosts together, for each write
	Held           uint64        // batches that were held back while commands waited for them
}

// maxBatchRun is how long a run may take, in virtual time, for each thousand writes.
const maxBatchRun = 10 * time.Minute

// MeasureBatches carries out a run. The error, if any, is a *Violation: the hosts did not do the work.
func MeasureBatches(run BatchRun) (r BatchResult, err error) {
	err = scenario(Options{Seed: run.Seed, Mode: &wal.ModeGroup, still: true}, func(w *world, rng *rand.Rand) {
		w.hardware = newHardware(w, run.Hardware, rng)
		w.hardware.echoes = run.Echoes
		w.parallelism = min(run.Processors, 2)
		w.batches = run.Host
		w.groupConfig = host.GroupConfig{}
		w.config.LogCacheBytes, w.config.SegmentBytes, w.config.MemoryBytes = 4<<20, 1<<20, 1<<30
		w.config.HeartbeatInterval, w.config.ElectionTimeout = 500*time.Millisecond, 5*time.Second
		w.startHosts()
		w.meet()
		if !w.runUntil(time.Minute, func() bool { l := w.leader(); return l != nil && l.alive.replicas[0].group.Founding().Founded }) {
			w.violate("no leader in a minute without a fault")
		}
		c := &batchClients{w: w, run: run, rng: rng, leader: w.leader().alive.replicas[0], value: make([]byte, run.ValueBytes)}
		c.gate = &batchGate{
			w: w, leader: c.leader, rule: run.Rule, bytes: int64(run.ValueBytes), pass: c.pass, last: c.leader.group.Status().LastIndex,
		}
		r = c.measure()
	})
	return r, err
}

// batchClients are the clients of a run. They run on the leader's host, as those of millrace bench do.
type batchClients struct {
	w       *world
	run     BatchRun
	rng     *rand.Rand
	leader  *replica
	gate    *batchGate
	value   []byte
	waiting []pendingWrite // in the order of the log
	done    int
	took    []time.Duration
}

type pendingWrite struct {
	host.Pending
	from time.Duration
}

func (c *batchClients) measure() BatchResult {
	before := max(c.run.Warm, c.run.Ops/3, 2*c.run.Clients)
	c.w.hardware.told = c.hear
	for range c.run.Clients {
		c.comeBack()
	}
	if c.run.Clients == 0 {
		c.arrive()
	}
	c.until(before)
	from, used, cpu := c.w.now, c.counts(), c.w.hardware.used
	c.took = c.took[:0]
	c.until(before + c.run.Ops)
	length, now := (c.w.now - from).Seconds(), c.counts()
	ops := float64(len(c.took))
	slices.Sort(c.took)
	var sum time.Duration
	for _, t := range c.took {
		sum += t
	}
	return BatchResult{
		OpsPerSec: ops / length, Mean: sum / time.Duration(len(c.took)), P50: quantile(c.took, 0.5), P99: quantile(c.took, 0.99),
		PerBatch: float64(now.commands-used.commands) / float64(max(now.batches-used.batches, 1)),
		PerSync:  float64(now.commands-used.commands) / float64(max(now.syncs-used.syncs, 1)),
		CPU:      time.Duration(float64(c.w.hardware.used-cpu) / ops), Held: now.held - used.held,
	}
}

// quantile returns the smallest value that is not less than a part of all. The values are sorted.
func quantile(sorted []time.Duration, part float64) time.Duration {
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

type batchCounts struct{ batches, commands, syncs, held uint64 }

func (c *batchClients) counts() batchCounts {
	m := c.leader.group.Metrics()
	return batchCounts{m.Proposals.Batches, m.Proposals.Commands, c.leader.life.process.LogStats().Syncs, c.gate.held}
}

// until runs the world until n writes are done.
func (c *batchClients) until(n int) {
	limit := c.w.now + maxBatchRun*time.Duration(1+n/1000)
	if !c.w.runUntil(limit, func() bool { return c.done >= n }) {
		c.w.violate("%d of %d writes are done in %v: %s", c.done, n, limit, c.w.positions())
	}
}

// work runs a piece of work of a client.
func (c *batchClients) work(cost time.Duration, do func()) {
	c.w.hardware.add(&piece{life: c.leader.life, cost: cost, do: func(*piece) { do() }})
}

// pass hands in a write that was to come at a time.
func (c *batchClients) pass(from time.Duration) {
	p, err := c.leader.group.Submit(c.value)
	if err != nil {
		c.w.violate("the leader refuses a write: %v", err)
	}
	c.waiting = append(c.waiting, pendingWrite{p, from})
}

// arrive makes a write come, and then the next.
func (c *batchClients) arrive() {
	c.w.plan(seconds(c.rng.ExpFloat64()/c.run.Rate), "a write comes", nil, func() {
		c.submit(c.w.now)
		c.arrive()
	})
}

// hear is called after each piece of work of a host: writes may be answered.
func (c *batchClients) hear(l *life) {
	if l != c.leader.life {
		return
	}
	n := 0
	for ; n < len(c.waiting); n++ {
		_, answered, err := c.waiting[n].Poll()
		if err != nil {
			c.w.violate("a write fails: %v", err)
		}
		if !answered {
			break
		}
		c.answered(c.waiting[n].from)
	}
	clear(c.waiting[:n])
	c.waiting = c.waiting[n:]
	c.gate.advance()
}

// answered runs the client of a write.
func (c *batchClients) answered(from time.Duration) {
	c.work(c.run.Costs.Client/2, func() {
		c.done++
		c.took = append(c.took, c.w.now-from)
		if c.run.Clients > 0 {
			c.comeBack()
		}
	})
}

// comeBack makes a client of the closed loop write again, when it has thought.
func (c *batchClients) comeBack() {
	c.w.plan(time.Duration(c.rng.ExpFloat64()*float64(c.run.Think)), "a client writes", nil, func() { c.submit(c.w.now) })
}

// submit makes a client hand in a write.
func (c *batchClients) submit(from time.Duration) {
	c.work(c.run.Costs.Client/2, func() { c.gate.write(from) })
}

func (r BatchResult) String() string {
	return fmt.Sprintf("%.0f writes/s, mean %v, p50 %v, p99 %v, %.1f in a batch, %.1f in a sync, %v of processor time each, held %d times",
		r.OpsPerSec, r.Mean, r.P50, r.P99, r.PerBatch, r.PerSync, r.CPU, r.Held)
}

// nothing is the state machine of a run.
type nothing struct{}

func (nothing) Apply([]statemachine.Entry) error { return nil }
