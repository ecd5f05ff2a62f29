package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/wal"
)

// world is one run: the virtual time, the agenda of events, and everything that takes part.
type world struct {
	options Options
	rng     *rand.Rand // for schedules and delays
	now     time.Duration
	agenda  agenda
	events  int
	checks  *rand.Rand // for the checks that run only now and then
	order   uint64
	digest  uint64
	text    []byte // of record, reused
	flights Flights

	hosts        []*machine
	net          network
	nemesis      nemesis
	clients      clients
	reads        reads
	stalledUntil time.Duration // what hung when the faults ended hangs until then
	ghosts       []*ghost      // one for each group, in the order of their ids
	pipeline     pipeline.Pipeline
	config       host.Config // of every host, without id and directory
	groupConfig  host.GroupConfig
	parallelism  int // of every host
	batches      batches.Kind
	mode         wal.Mode
	looking      bool       // checks are running
	counting     *costs     // cost.go; nil: nothing is counted
	hardware     *hardware  // hardware.go; nil: what work takes is drawn
	runs         int        // of workers
	hangs        *hangs     // graymachine.go; nil: no state machine hangs in the middle of a call
	diverging    *diverging // divergence.go; nil: the machines are those of the checks
	faults       Faults
	ledger       *coverage.Ledger // of injections
	strikes      strikes
	mixed        bool // hosts run with different settings (strike.go)
	scenario     bool // scenario.go
	suppressed   uint64
	memory       map[uint64]int64 // MemoryBytes of hosts, where it is not that of the config
	shortStrikes *rand.Rand       // descriptors.go; nil: machines do not run out of descriptors by such draws
	padding      int              // bytes that each snapshot has besides its content
	calls        *callOptions     // nil: the groups take plain entries
	objects      *objects         // nil: the groups have none
	user         user             // user.go; nil: the clients are the simulator's
	churn        *churn           // churn.go; nil: the members stay
	impostors    *impostors       // impostor.go
	poisons      *poisons         // poisonskip.go; nil: machines can apply all commands
	restoring    *restoring       // restorecopy.go; nil: no directory is copied
	packing      *packing         // packing.go; nil: each command is an entry
	upgrades     *upgrades        // upgrades.go; nil: all programs can do version 0 only
	subscribers  *subscribers     // subscribers.go; nil: no machine publishes
	placing      *placing         // placement.go; nil: no host has a zone, and no group a Placement
	well         wellness         // wellness.go
	violation    *Violation       // the first
}

// drawGroups draws how many groups the hosts have. As a rule these are few. Sometimes they are so many that
// turns, writes and frames of several go together all the time.
func drawGroups(rng *rand.Rand) (n int) {
	n = pick(rng, 1, 1, 2, 4)
	if rng.IntN(32) == 11 {
		n = pick(rng, 12, 24, maxDrawnGroups)
	}
	return n
}

const maxDrawnGroups = 48

func newWorld(o Options) *world {
	w := &world{options: o, rng: splitSeed(o.Seed, 1), checks: splitSeed(o.Seed, 6), ledger: coverage.NewLedger(o.Choice)}
	w.well.w = w
	n := 3
	if w.rng.IntN(4) == 0 {
		n = 5
	}
	w.pipeline = pipeline.All[min(w.rng.IntN(2*len(pipeline.All)), len(pipeline.All)-1)] // mostly the last
	if o.small {
		n, w.pipeline = 3, pipeline.Async{}
		if o.hosts > 0 {
			n = o.hosts
		}
	}
	w.config = host.Config{
		Members:           map[uint64]string{},
		HeartbeatInterval: 20 * time.Millisecond,
		ElectionTimeout:   100 * time.Millisecond,
		SegmentBytes:      pick(w.rng, int64(8<<10), 32<<10, 128<<10),
		LogCacheBytes:     pick(w.rng, int64(1), 2<<10, 1<<20),
		StageTimes:        o.Seed%2 == 0,
	}
	w.groupConfig = host.GroupConfig{MaxAppendBytes: pick(w.rng, 1, 256, 0)}
	w.config.MemoryBytes = pick(splitSeed(o.Seed, 11), int64(128<<10), 1<<20, 256<<20)
	machines := splitSeed(o.Seed, 10)
	w.groupConfig.NonBlocking = machines.IntN(4) == 0
	w.groupConfig.MaxLagBytes = pick(splitSeed(o.Seed, 61), int64(0), 0, 0, 0, 0, 0, 8<<10, 32<<10)
	w.groupConfig.Volatile = machines.IntN(3) == 0 // no machine here keeps anything beyond its process
	groups := drawGroups(splitSeed(o.Seed, 9))
	if o.small || !w.pipeline.AsyncStorageWrites() {
		groups = 1
	}
	if o.groups > 0 {
		groups = o.groups
	}
	for id := range uint64(groups) {
		w.ghosts = append(w.ghosts, newGhost(id+1))
	}
	w.parallelism = pick(splitSeed(o.Seed, 8), 1, 2, 4, 8)
	w.batches = pick(splitSeed(o.Seed, 22), batches.Automatic, batches.Cohorts, batches.Immediate) // Automatic needs many batches for a trial
	w.mode = drawMode(splitSeed(o.Seed, 5))
	if o.Mode != nil {
		w.mode = *o.Mode
	}
	if o.objects || o.poison || o.upgrades {
		w.pipeline = pipeline.Async{}
		w.useSafeMode()
	}
	if o.durable {
		w.useSafeMode() // a machine that outlives its log is not safe
		w.groupConfig.Volatile, w.groupConfig.NonBlocking = false, false
	}
	w.config.Durability = w.mode
	if w.drawChurn() {
		n = churnHosts
	}
	for i := range n {
		id := uint64(i + 1)
		w.config.Members[id] = firstAddr(id)
		w.hosts = append(w.hosts, newMachine(w, id))
	}
	if w.churn != nil {
		w.drawStrangers()
	}
	w.net = newNetwork(w)
	w.nemesis = nemesis{w: w, rng: splitSeed(o.Seed, 3)}
	w.clients = clients{w: w, rng: splitSeed(o.Seed, 4)}
	w.calls = drawCalls(w)
	w.drawObjects()
	w.reads = newReads(w)
	w.drawSnapshots()
	w.groupConfig.Leases = w.reads.rng.IntN(2) == 0
	w.drawPlacement()
	w.mix()
	w.drawPacking()
	w.drawSubscribers()
	w.drawFlights()
	return w
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func (w *world) report() Report {
	return Report{
		Seed: w.options.Seed, Hosts: len(w.hosts), Pipeline: w.pipeline.Name(), Mode: w.mode.String(),
		Events: w.events, Virtual: w.now, Faults: w.faults, Leaders: w.leaders(),
		Impostors: w.net.impostors, Refusals: w.net.refusals, Groups: len(w.ghosts),
		Submitted: w.clients.submitted, Acked: w.acked(), Applied: w.applied(), Reads: w.reads.done, Flights: w.flights, Digest: w.digest,
		Coverage: w.ledger.Matrix, Injections: w.ledger.Injections(), Verdicts: w.well.looks,
	}
}

// leaders, acked and applied are sums over the groups.

func (w *world) leaders() (n int) {
	for _, g := range w.ghosts {
		n += len(g.leaders)
	}
	return n
}

func (w *world) acked() (n int) {
	for _, g := range w.ghosts {
		n += len(g.acked)
	}
	return n
}

func (w *world) applied() (n uint64) {
	for _, g := range w.ghosts {
		n += g.last()
	}
	return n
}

// appointment is an action at a point in time. Events of the same time happen in the order in which they were
// planned.
type appointment struct {
	at    time.Duration
	order uint64
	what  string
	who   *life // the event is dropped if this process has died; nil: it always happens
	do    func()
}

type agenda []appointment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || (a[i].at == a[j].at && a[i].order < a[j].order)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = appointment{}
	*a = (*a)[:last]
	return e
}

func (w *world) plan(after time.Duration, what string, who *life, do func()) {
	w.push(appointment{at: w.now + after, what: what, who: who, do: do})
}

func (w *world) push(e appointment) {
	w.order++
	e.order = w.order
	heap.Push(&w.agenda, e)
}

// runUntil runs events until the given time, or until done returns true. It returns the last result of done.
func (w *world) runUntil(end time.Duration, done func() bool) bool {
	for still := 0; len(w.agenda) > 0 && w.agenda[0].at <= end; still++ {
		e := heap.Pop(&w.agenda).(appointment)
		if e.at > w.now {
			still = 0
		} else if still > maxAtOnce {
			w.breaks(property.Recovery, "%d events and time stands still; the next is %q: a timer is set again and again for no time", maxAtOnce, e.what)
		}
		w.now = e.at
		if e.who != nil && e.who.dead || w.paused(e) {
			continue
		}
		if w.hardware != nil { // neither checks nor digest: its runs are many, and long
			e.do()
			w.events++
			if done() {
				return true
			}
			continue
		}
		w.record(e.what)
		e.do()
		w.events++
		w.endBroken()
		if w.counting == nil { // its runs have more commands than these checks are for
			w.check(e.who)
			w.well.check()
		}
		w.strikes.step(w)
		if done() {
			return true
		}
	}
	w.now = max(w.now, end)
	return done()
}

// maxAtOnce bounds the events of one moment of virtual time.
const maxAtOnce = 1_000_000

// pass runs the world for a while.
func (w *world) pass(d time.Duration) { w.runUntil(w.now+d, func() bool { return false }) }

// record adds an event to the digest and the trace.
func (w *world) record(what string) {
	text := append(strconv.AppendUint(w.text[:0], w.digest, 10), ' ')
	text = append(append(strconv.AppendInt(text, int64(w.now), 10), ' '), what...)
	h := fnv.New64a()
	_, _ = h.Write(text)
	w.digest, w.text = h.Sum64(), text
	if w.options.Trace != nil {
		fmt.Fprintf(w.options.Trace, "%12v %s\n", w.now, what)
	}
	if w.observed() {
		w.observe("%s", what)
	}
}

// endBroken ends the run if a property was broken in a function that a host called. A host recovers from a
// panic of such a function, of a listener of its events say, and goes on.
func (w *world) endBroken() {
	if w.violation != nil {
		panic(w.violation)
	}
}

// breaks ends the run: a property is broken. See endBroken.
func (w *world) breaks(of property.Name, format string, args ...any) {
	if w.violation == nil { // a host turns one in Apply into an error, which is another violation
		w.violation = &Violation{Seed: w.options.Seed, Mode: w.options.Mode, Faults: w.options.Faults, At: w.now, Property: of, What: fmt.Sprintf(format, args...), Choice: w.options.Choice, scenario: w.scenario, rests: w.options.rests, publishes: w.options.publishes}
	}
	panic(w.violation)
}

// violate is breaks for what a scenario is about.
func (w *world) violate(format string, args ...any) { w.breaks(property.Scenario, format, args...) }

// between draws a duration from [lo, hi).
func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Int64N(int64(hi-lo)))
}

// blockBytes is the size of a host's blocks: many commands are at a border.
const blockBytes = 1 << 10

// env is the simulated environment of a host.
func (l *life) env() env.Env {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], l.rng.Uint64())
	return env.Env{Clock: clock{l}, Rand: l.rng, Scheduler: scheduler{l}, Secrets: rand.NewChaCha8(seed), Parallelism: l.w.parallelism,
		Duties: env.Duties{Every: l.w.options.EveryDuty, Called: l.w.countDuty},
		Blocks: env.Blocks{Bytes: blockBytes, Poison: true}}
}

// hardwareClock is a host's own clock: it may run fast or slow, and never goes back.
type hardwareClock struct {
	drift       float64
	since, read time.Duration // when its drift was set, and what it showed then
}

func (c *hardwareClock) now(virtual time.Duration) time.Duration {
	return c.read + time.Duration(float64(virtual-c.since)*c.drift)
}

func (c *hardwareClock) setDrift(drift float64, virtual time.Duration) {
	*c = hardwareClock{drift: drift, since: virtual, read: c.now(virtual)}
}

// clock is the hardware clock as the process sees it.
type clock struct{ life *life }

func (c clock) Now() time.Duration { return c.life.host.clock.now(c.life.w.now) }

// Boottime is the same clock: it runs on while the process is paused. Reads may stop there (reads.go).
func (c clock) Boottime() time.Duration { return c.readClock() }

func (c clock) Every(period time.Duration, f func() (periods int)) env.Ticker {
	t := &ticker{life: c.life, period: period, f: f}
	t.plan(between(c.life.w.rng, 0, period))
	return t
}

// ticker calls its function when periods have ended, by the clock of its host.
type ticker struct {
	life    *life
	period  time.Duration
	f       func() (periods int)
	ends    time.Duration // a period, in virtual time
	late    bool          // more than one period is left
	plans   int           // only the last one counts
	stopped bool
}

func (t *ticker) plan(after time.Duration) {
	t.plans++
	this := t.plans
	t.life.w.plan(after, t.life.name+" tick", t.life, func() {
		if this != t.plans || t.stopped {
			return
		}
		periods := max(t.f(), 1)
		t.ends, t.late = t.life.w.now+t.length(), periods > 1
		t.plan(time.Duration(periods) * t.length())
	})
}

func (t *ticker) length() time.Duration {
	return time.Duration(float64(t.period) / t.life.host.clock.drift)
}

func (t *ticker) Hasten() {
	if !t.late || t.stopped {
		return
	}
	for t.ends <= t.life.w.now {
		t.ends += t.length()
	}
	t.late = false
	t.plan(t.ends - t.life.w.now)
}

func (t *ticker) Stop() { t.stopped = true }

func (c clock) Timer(f func()) env.Timer { return &timer{life: c.life, f: f} }

type timer struct {
	life *life
	f    func()
	set  int // counts settings: only the last one is due
}

func (t *timer) Set(d time.Duration) {
	t.set++
	this := t.set
	t.life.w.plan(time.Duration(float64(d)/t.life.host.clock.drift), t.life.name+" timer", t.life, func() {
		if this == t.set {
			t.f()
		}
	})
}

func (t *timer) Stop() { t.set++ }

// scheduler runs a host's workers. Each RunOnce is an event, after a delay that stands for the time the work
// takes.
type scheduler struct{ life *life }

func (s scheduler) Go(name string, kind env.Kind, w env.Worker) env.Task {
	return &task{life: s.life, name: s.life.name + " runs " + name, kind: kind, worker: w}
}

type task struct {
	life    *life
	name    string
	worker  env.Worker
	kind    env.Kind
	planned bool
	stopped bool
	running bool          // in an experiment: its processor time has not passed,
	ready   time.Duration // and when its disk allows the next run
	goesOn  bool          // it said that it knows of more: the next run needs no wake
}

func (t *task) Wake() {
	if h := t.life.w.hardware; h != nil {
		h.wake(t)
		return
	}
	if t.planned || t.stopped || t.life.dead {
		return
	}
	t.planned = true
	t.life.w.plan(t.life.host.delay(t), t.name, t.life, t.run)
}

func (t *task) run() {
	t.planned = false
	if t.stopped {
		return
	}
	t.life.w.runs++
	t.life.w.countWake(t)
	if t.goesOn = t.callWorker(); t.goesOn {
		t.Wake()
	}
}

func (t *task) Stop() { t.stopped = true }
