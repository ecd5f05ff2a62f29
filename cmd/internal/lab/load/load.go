package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Load drives one target through warm-up and measurement.
//
// Its clock counts from the start of the warm-up. The window of the measurement is [warmup, warmup+length) on
// that clock. With a Steadiness the window begins when the load is steady. Each client compares its clock
// readings with the window, so no signal has to reach a thousand goroutines at one moment:
//
//   - an operation that *starts* in the window (open loop: was intended to) is in the latencies, however long
//     it takes. To leave out the operations still in flight at the end would hide exactly the slow ones;
//   - an operation that *ends* in the window counts for the throughput.
type Load struct {
	target Target
	source *Source
	ledger *Ledger
	warmup time.Duration // with steady: known when the warm-up has ended
	length time.Duration
	steady *Steadiness   // nil: the warm-up has a length
	drain  time.Duration // how long operations in flight may take after the window
	beside func(context.Context) error

	origin  time.Time     // of the clock; set before gate opens
	startAt atomic.Int64  // reading of the clock at which the window begins (nanoseconds)
	endAt   atomic.Int64  // reading of the clock at which the window ends (nanoseconds)
	gate    chan struct{} // clients wait here until all of them have been started
	stopAt  atomic.Int64  // clients start nothing at or after this reading of the clock (nanoseconds)
	latency *recorder
	lag     *recorder // open loop: actual send − intended send
	service *recorder // open loop: completion − actual send

	completed atomic.Uint64 // operations that ended in the window; clients add their counts now and then
	failed    atomic.Uint64 // operations that returned an error, at any time
	offered   uint64        // open loop: arrivals intended in the window; written by the pacer
	dropped   uint64        // open loop: of these, not sent because of the bound in flight; written by the pacer

	timeline  *Timeline // nil: there is none
	wasSteady bool

	errorsMu sync.Mutex
	errors   map[string]uint64

	clientsMu sync.Mutex
	clients   []*client

	fatalOnce sync.Once
	fatal     chan struct{} // closed when the run cannot succeed any more
	fatalErr  error         // set before fatal is closed
}

// New returns a load for target. The window of length follows a warm-up.
func New(target Target, source *Source, warmup, length time.Duration) *Load {
	return &Load{
		target: target, source: source, ledger: &Ledger{},
		warmup: warmup, length: length, drain: drainTimeout,
		latency: newRecorder(), lag: newRecorder(), service: newRecorder(),
		fatal: make(chan struct{}),
	}
}

// Ledger returns what the clients know. It is complete when Run has returned.
func (l *Load) Ledger() *Ledger { return l.ledger }

// Completed returns the operations that have ended in the window so far. It may be called at any time.
func (l *Load) Completed() uint64 { return l.completed.Load() }

const (
	drainTimeout       = 30 * time.Second
	interruptedTimeout = 3 * time.Second // the same when a user waits at the keyboard

	// A client whose write failed waits a little, so that a spinning generator does not flood a target that
	// refuses everything. After many failures in a row it ends the whole run.
	minBackoff       = time.Millisecond
	maxBackoff       = 100 * time.Millisecond
	failuresToGiveUp = 100
	privateCounts    = 64 // completions that a client counts privately before it touches the shared counter
)

// Outcome is what one load has measured.
type Outcome struct {
	Warmup, Length time.Duration

	Completed uint64 // operations that ended in the window
	Failed    uint64 // operations that returned an error, at any time
	Offered   uint64 // open loop: arrivals intended in the window
	Dropped   uint64 // open loop: of these, not sent because of the bound in flight

	Latency *Latencies
	Lag     *Latencies // open loop: actual send − intended send
	Service *Latencies // open loop: completion − actual send

	Errors   map[string]uint64 // what the failed operations said, at most maxErrors of them
	Steady   bool              // with a Steadiness: the warm-up ended because the load was steady
	Timeline *Timeline         // nil: it was not asked for

	Used     Counters      // by the target, in the window
	CPU      time.Duration // of the whole process, in the window
	Allocs   uint64        // the same
	Switches uint64        // the same, of contexts
	Process  Usage         // all of it
	Heap     Heap          // of this process, at the end of the window
	Hosts    *Usage        // of the processes of the hosts, in the window; nil: they share this process
}

// A Generator starts the clients of a load: Closed or Open.
type Generator interface {
	start(ctx context.Context, l *Load, wg *sync.WaitGroup)
}

// sample is what process and target had used up at one moment.
type sample struct {
	counters     Counters
	usage, hosts Usage // hosts: of a target that is Abroad
	heap         Heap
}

func (l *Load) now() time.Duration      { return time.Since(l.origin) }
func (l *Load) stopping() time.Duration { return time.Duration(l.stopAt.Load()) }
func (l *Load) inWindow(t time.Duration) bool {
	return t >= time.Duration(l.startAt.Load()) && t < time.Duration(l.endAt.Load())
}

// Run lets g start the clients, waits through the window and for the operations in flight, and returns what
// was measured between the ends of the window. It tells phase what it does. All clients have stopped when it
// returns. If ctx ends first, the error is ctx's cause.
func (l *Load) Run(ctx context.Context, phase func(string), g Generator) (Outcome, error) {
	// Clients outlive ctx: on an interrupt they finish what they have in flight, as at the end of the window.
	clients, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	l.gate = make(chan struct{})
	g.start(clients, l, &wg)
	l.origin = time.Now()
	if l.timeline != nil {
		l.timeline.begin(l.origin)
	}
	if l.steady != nil {
		l.setWindow(math.MaxInt64) // until the load is steady
	} else {
		l.setWindow(l.warmup)
	}
	phase("warm-up")
	close(l.gate)

	err := l.warmUp(ctx)
	phase("measure")
	first := l.sample()
	if err == nil {
		err = l.measure(ctx)
	}
	last := l.sample()

	phase("drain")
	l.stopAt.Store(0)
	if err != nil {
		l.drain = min(l.drain, interruptedTimeout)
	}
	if drained := l.wait(&wg, cut); err == nil {
		err = drained
	}
	if err != nil {
		return Outcome{}, err
	}
	return l.outcome(first, last), nil
}

// setWindow makes the window begin at a reading of the clock.
func (l *Load) setWindow(start time.Duration) {
	end := int64(math.MaxInt64)
	if l.beside == nil && start < math.MaxInt64 { // else until beside has returned
		end = int64(start + l.length)
	}
	l.stopAt.Store(end)
	l.endAt.Store(end)
	l.startAt.Store(int64(start))
}

// warmUp waits until the window begins.
func (l *Load) warmUp(ctx context.Context) (err error) {
	if l.steady == nil {
		return l.waitUntil(ctx, l.warmup)
	}
	if l.wasSteady, err = l.awaitSteady(ctx, *l.steady); err == nil {
		l.warmup = l.now()
		l.setWindow(l.warmup)
	}
	return err
}

// measure waits through the window, and sets its end if that depends on what happens beside the load.
func (l *Load) measure(ctx context.Context) error {
	if l.beside == nil {
		return l.waitUntil(ctx, l.warmup+l.length)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	besideErr := make(chan error, 1)
	go func() {
		err := l.beside(ctx)
		if err != nil {
			cancel(err) // it ends the wait
		}
		besideErr <- err
	}()
	err := l.waitUntil(ctx, l.warmup+l.length)
	if err == nil {
		select {
		case err = <-besideErr:
			besideErr <- err
		case <-l.fatal:
			err = l.fatalErr
		}
	}
	if err != nil {
		cancel(err)
	}
	<-besideErr
	l.endAt.Store(int64(l.now()))
	return err
}

func (l *Load) outcome(first, last sample) Outcome {
	used := last.usage.Sub(first.usage)
	var hosts *Usage
	if _, abroad := l.target.(Abroad); abroad {
		of := last.hosts.Sub(first.hosts)
		hosts = &of
	}
	return Outcome{
		Warmup: l.warmup, Length: time.Duration(l.endAt.Load()) - l.warmup,
		Completed: l.completed.Load(), Failed: l.failed.Load(), Offered: l.offered, Dropped: l.dropped,
		Steady: l.wasSteady, Errors: l.errors, Timeline: l.timeline,
		Latency: l.latency.merged(), Lag: l.lag.merged(), Service: l.service.merged(),
		Used: last.counters.Sub(first.counters), CPU: used.CPU, Allocs: used.Allocs, Switches: used.Switches, Process: used, Heap: last.heap, Hosts: hosts,
	}
}

func (l *Load) sample() sample {
	s := sample{counters: l.target.Counters(), usage: ReadUsage(), heap: ReadHeap()}
	if t, abroad := l.target.(Abroad); abroad {
		s.hosts = t.HostsUsage()
	}
	return s
}

func (l *Load) waitUntil(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t - l.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.fatal:
		return l.fatalErr
	}
}

// wait lets the clients finish, and cuts them off if they take too long.
func (l *Load) wait(wg *sync.WaitGroup, cut context.CancelFunc) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(l.drain)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	cut()
	// A target that ignores even ctx is closed while clients still wait in it: its Close fails their
	// proposals.
	timer.Reset(l.drain)
	select {
	case <-done:
	case <-timer.C:
		_ = l.target.Close() // the run has failed already, with the error below
		<-done
	}
	return fmt.Errorf("writes were still unanswered %v after the last was sent", l.drain)
}

// giveUp ends the run with err.
func (l *Load) giveUp(err error) {
	l.fatalOnce.Do(func() {
		l.fatalErr = err
		close(l.fatal)
	})
	l.stopAt.Store(0)
}

// Closed is the closed loop: each client has one write outstanding.
type Closed struct{ Clients int }

func (g Closed) start(ctx context.Context, l *Load, wg *sync.WaitGroup) {
	for range g.Clients {
		c := l.newClient(ctx)
		wg.Go(func() {
			defer c.finish()
			<-l.gate
			for c.closedStep() {
			}
		})
	}
}

// client is one goroutine's share of a load.
type client struct {
	l       *Load
	id      uint32
	page    *Page
	latency *series
	lag     *series
	service *series

	// Each client has its own context: a thousand goroutines in a select on one Done channel would queue at
	// its lock.
	ctx    context.Context
	cancel context.CancelFunc

	noter  *noter        // nil: there is no timeline
	ended  atomic.Uint64 // operations, at any time
	buffer []byte        // of all values; nil: each has its own

	completed uint64 // not yet added to l.completed
	failures  int    // in a row
}

// newClient adds a client. One goroutine calls it.
func (l *Load) newClient(ctx context.Context) *client {
	id, page := l.ledger.Open()
	c := &client{
		l: l, id: id, page: page,
		latency: l.latency.series(int(id)), lag: l.lag.series(int(id)), service: l.service.series(int(id)),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	if l.timeline != nil {
		c.noter = &noter{t: l.timeline}
	}
	l.clientsMu.Lock()
	l.clients = append(l.clients, c)
	l.clientsMu.Unlock()
	if t, ok := l.target.(Copier); ok && t.Copies() {
		c.buffer = make([]byte, l.source.ValueBytes())
	}
	return c
}

func (c *client) finish() {
	c.cancel()
	c.latency.flush()
	c.lag.flush()
	c.service.flush()
	c.noter.flush()
	c.l.completed.Add(c.completed)
}

// closedStep makes one write and reports whether the client should make another.
func (c *client) closedStep() bool {
	value := c.nextValue()
	start := c.l.now()
	if start >= c.l.stopping() {
		return false
	}
	end, ok := c.propose(value, start)
	if ok && c.l.inWindow(start) {
		c.latency.record(end - start)
	}
	return true
}

// nextValue makes the value that propose sends next.
func (c *client) nextValue() []byte {
	id := ValueID{Client: c.id, Seq: c.page.sent}
	if c.buffer == nil {
		return c.l.source.Value(id)
	}
	c.l.source.fill(c.buffer, id)
	return c.buffer
}

// propose sends value, records it in the ledger, and returns when the answer has come. start is when the
// latency begins.
func (c *client) propose(value []byte, start time.Duration) (end time.Duration, ok bool) {
	seq := c.page.Send()
	err := c.l.target.Propose(c.ctx, value)
	end = c.l.now()
	if ok = c.record(seq, start, end, err); !ok {
		c.backOff(err)
	}
	return end, ok
}

// record records the outcome of a write. It reports whether it was acknowledged.
func (c *client) record(seq uint64, start, end time.Duration, err error) (ok bool) {
	if err != nil {
		c.noter.record(end, failedLatency)
		c.noter.flush() // a client that fails waits, and may be the only one
		if c.ctx.Err() == nil {
			c.l.failed.Add(1)
			c.l.countError(err)
		}
		return false
	}
	c.ended.Add(1)
	c.noter.record(end, end-start)
	c.failures = 0
	c.page.Acknowledge(seq)
	if c.l.inWindow(end) {
		c.completed++
		if c.completed == privateCounts {
			c.l.completed.Add(c.completed)
			c.completed = 0
		}
	}
	return true
}

const (
	maxErrors     = 16
	maxErrorBytes = 160
	otherErrors   = "other errors"
)

// countError counts an error by its text.
func (l *Load) countError(err error) {
	text := err.Error()
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes], "") + "…"
	}
	l.errorsMu.Lock()
	defer l.errorsMu.Unlock()
	if l.errors == nil {
		l.errors = map[string]uint64{}
	}
	if _, known := l.errors[text]; !known && len(l.errors) >= maxErrors {
		text = otherErrors
	}
	l.errors[text]++
}

// backOff waits a little after an error, unless the run is over. Too many in a row end the run.
func (c *client) backOff(err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.failures++
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, lab.ErrMismatch) {
		c.l.giveUp(err)
		return
	}
	if c.failures >= failuresToGiveUp {
		c.l.giveUp(fmt.Errorf("%d writes of one client failed in a row, the last with: %w", c.failures, err))
		return
	}
	timer := time.NewTimer(min(minBackoff<<min(c.failures-1, 10), maxBackoff))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}
