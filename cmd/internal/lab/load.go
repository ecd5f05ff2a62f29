package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// load drives one target through warm-up and measurement.
//
// Its clock counts from the start of the warm-up. The window of the measurement is [from, to) on that clock, and each client
// compares its own clock readings with it, so that no signal has to reach a thousand goroutines at one moment:
//
//   - an operation that *starts* in the window (open loop: was intended to) is in the latencies, however long it takes;
//     leaving out the ones still in flight at the end would hide exactly the slow ones;
//   - an operation that *ends* in the window counts for the throughput.
type load struct {
	target Target
	source *valueSource
	ledger *Ledger
	warmup time.Duration // so the window is [warmup, warmup+duration)
	length time.Duration
	drain  time.Duration // how long operations in flight may take after the window

	origin  time.Time     // of the window; set before gate opens
	gate    chan struct{} // clients wait here until all of them are there
	stopAt  atomic.Int64  // clients start nothing at or after this reading of the clock (nanoseconds)
	latency *recorder
	lag     *recorder // open loop: actual send − intended send
	service *recorder // open loop: completion − actual send

	completed atomic.Uint64 // operations that ended in the window, poured in by the clients now and then
	failed    atomic.Uint64 // operations that returned an error, at any time
	offered   uint64        // open loop: arrivals intended in the window; written by the pacer
	dropped   uint64        // open loop: of these, not sent because too many were in flight; written by the pacer

	fatalOnce sync.Once
	fatal     chan struct{} // closed when going on is pointless
	fatalErr  error         // set before fatal is closed
}

func newLoad(target Target, source *valueSource, warmup, length time.Duration) *load {
	return &load{
		target: target, source: source, ledger: newLedger(),
		warmup: warmup, length: length, drain: drainTimeout,
		latency: newRecorder(), lag: newRecorder(), service: newRecorder(),
		fatal: make(chan struct{}),
	}
}

const (
	drainTimeout       = 30 * time.Second
	interruptedTimeout = 3 * time.Second // the same when somebody waits at the keyboard

	// A client that fails waits a little, so that a target that refuses everything is not hammered by a spinning
	// generator, and gives up the whole run after many failures in a row.
	firstBackoff     = time.Millisecond
	highestBackoff   = 100 * time.Millisecond
	failuresToGiveUp = 100
	countsPerPour    = 64 // completions that a client counts privately before it touches the shared counter
)

// sample is what the process and the target had used up at one moment.
type sample struct {
	counters Counters
	usage    processUsage
}

// measured is the outcome of a load.
type measured struct {
	used    Counters
	cpu     time.Duration
	allocs  uint64
	elapsed time.Duration
}

func (l *load) now() time.Duration      { return time.Since(l.origin) }
func (l *load) stopping() time.Duration { return time.Duration(l.stopAt.Load()) }
func (l *load) inWindow(t time.Duration) bool {
	return t >= l.warmup && t < l.warmup+l.length
}

// run starts the clients by calling start, waits through the window and for the operations in flight, and returns what was
// used between the window's ends. It returns ctx's error if interrupted. All clients have stopped when it returns.
func (l *load) run(ctx context.Context, phase func(string), start func(ctx context.Context, wg *sync.WaitGroup)) (measured, error) {
	// Clients outlive ctx: on an interrupt they finish what they have in flight, as at the end of the window.
	clients, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	l.gate = make(chan struct{})
	start(clients, &wg)
	l.origin = time.Now()
	l.stopAt.Store(int64(l.warmup + l.length))
	phase("warm-up")
	close(l.gate)

	err := l.waitUntil(ctx, l.warmup)
	phase("measure")
	first := l.sample()
	if err == nil {
		err = l.waitUntil(ctx, l.warmup+l.length)
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
	return measured{
		used: last.counters.Sub(first.counters), cpu: last.usage.cpu - first.usage.cpu,
		allocs: last.usage.allocs - first.usage.allocs, elapsed: l.length,
	}, err
}

func (l *load) sample() sample {
	return sample{counters: l.target.Counters(), usage: readProcessUsage()}
}

func (l *load) waitUntil(ctx context.Context, t time.Duration) error {
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
func (l *load) wait(wg *sync.WaitGroup, cut context.CancelFunc) error {
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
	// A target that does not even honour ctx is closed over the clients' heads: its Close fails what waits.
	timer.Reset(l.drain)
	select {
	case <-done:
	case <-timer.C:
		_ = l.target.Close() // reported below; the run is lost anyway
		<-done
	}
	return fmt.Errorf("writes were still unanswered %v after the last was sent", l.drain)
}

// giveUp ends the run with err.
func (l *load) giveUp(err error) {
	l.fatalOnce.Do(func() {
		l.fatalErr = err
		close(l.fatal)
	})
	l.stopAt.Store(0)
}

// startClosed starts clients that each have one write outstanding.
func (l *load) startClosed(ctx context.Context, clients int, wg *sync.WaitGroup) {
	for range clients {
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
	l       *load
	id      uint32
	page    *ledgerPage
	latency *series
	lag     *series
	service *series

	// A context of its own: a thousand goroutines in a select on one Done channel would queue up at its lock.
	ctx    context.Context
	cancel context.CancelFunc

	completed uint64 // not yet poured into l.completed
	failures  int    // in a row
}

// newClient is called by one goroutine.
func (l *load) newClient(ctx context.Context) *client {
	id, page := l.ledger.open()
	c := &client{
		l: l, id: id, page: page,
		latency: l.latency.series(int(id)), lag: l.lag.series(int(id)), service: l.service.series(int(id)),
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

func (c *client) finish() {
	c.cancel()
	c.latency.flush()
	c.lag.flush()
	c.service.flush()
	c.l.completed.Add(c.completed)
}

// closedStep makes one write and reports whether to go on.
func (c *client) closedStep() bool {
	value := c.l.source.value(valueID{client: c.id, seq: c.page.sent})
	start := c.l.now()
	if start >= c.l.stopping() {
		return false
	}
	end, ok := c.propose(value)
	if ok && c.l.inWindow(start) {
		c.latency.record(end - start)
	}
	return true
}

// propose sends the next value of this client, keeps the books, and returns when the answer came.
func (c *client) propose(value []byte) (end time.Duration, ok bool) {
	seq := c.page.sent
	c.page.sent++
	err := c.l.target.Propose(c.ctx, value)
	end = c.l.now()
	if err != nil {
		c.fail(err)
		return end, false
	}
	c.failures = 0
	c.page.acked.add(seq)
	if c.l.inWindow(end) {
		c.completed++
		if c.completed == countsPerPour {
			c.l.completed.Add(c.completed)
			c.completed = 0
		}
	}
	return end, true
}

// fail counts an error and waits a little, unless the run is over.
func (c *client) fail(err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.l.failed.Add(1)
	c.failures++
	if errors.Is(err, syscall.ENOSPC) {
		c.l.giveUp(err)
		return
	}
	if c.failures >= failuresToGiveUp {
		c.l.giveUp(fmt.Errorf("%d writes of one client failed in a row, the last with: %w", c.failures, err))
		return
	}
	timer := time.NewTimer(min(firstBackoff<<min(c.failures-1, 10), highestBackoff))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	}
}
