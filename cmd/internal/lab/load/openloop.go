package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Open is the open loop. It sends writes at the times of a schedule that was drawn beforehand: a Poisson
// process of a given rate. Nothing that the target does can move the schedule, and a latency counts from the
// time in the schedule.
//
// One goroutine, the pacer, walks the schedule. Timers are too coarse to wake it at each arrival. So it
// wakes now and then and issues all arrivals that are due, each with its own intended time. The lateness of
// a wake-up is therefore part of the latencies, never hidden, and is reported as *schedule lag*. An arrival
// goes to an idle worker or to a new one. If MaxInFlight workers are busy it is dropped and counted: an
// unbounded queue would only measure the length of the run.
type Open struct {
	Rate        float64 // arrivals per second
	MaxInFlight int
	Seed        uint64
	// NewPause returns a sleep for the pacer and a function to call at its end, both for one goroutine. nil
	// means the most precise sleep of this system.
	NewPause func() (pause func(time.Duration), done func())
}

const (
	// minPause keeps the pacer from waking for each arrival: at high rates that would take a core.
	minPause = 100 * time.Microsecond
	// maxPause lets the pacer notice the end of the run.
	maxPause = 20 * time.Millisecond
)

// start launches the pacer, which launches workers as it needs them.
func (o Open) start(ctx context.Context, l *Load, wg *sync.WaitGroup) {
	wg.Go(func() {
		<-l.gate
		// Unbuffered: a send succeeds only if a worker is idle, so the busy workers are exactly the writes in
		// flight.
		arrivals := make(chan time.Duration)
		defer close(arrivals)
		o.pace(ctx, l, arrivals, wg)
	})
}

func (o Open) pace(ctx context.Context, l *Load, arrivals chan time.Duration, wg *sync.WaitGroup) {
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	if o.NewPause == nil {
		o.NewPause = NewPause
	}
	pause, done := o.NewPause()
	defer done()
	workers := 0
	seconds := rng.ExpFloat64() / o.Rate
	for {
		now := l.now()
		for ; seconds <= now.Seconds(); seconds += rng.ExpFloat64() / o.Rate {
			intended := time.Duration(seconds * float64(time.Second))
			if intended >= l.stopping() {
				return
			}
			counts := l.inWindow(intended)
			if counts {
				l.offered++
			}
			select {
			case arrivals <- intended:
			default:
				if workers == o.MaxInFlight {
					if counts {
						l.dropped++
					}
					continue
				}
				workers++
				c := l.newClient(ctx)
				wg.Go(func() { c.serve(intended, arrivals) })
			}
		}
		if now >= l.stopping() {
			return
		}
		// The workers just woken wait for this processor, and a thread that sleeps in the kernel keeps it for
		// a while. A pause of at least minPause lets them send first.
		next := time.Duration(seconds*float64(time.Second)) - l.now()
		pause(min(max(next, minPause), maxPause))
	}
}

// serve makes one write for each arrival that it receives.
func (c *client) serve(intended time.Duration, arrivals <-chan time.Duration) {
	defer c.finish()
	for open := true; open; intended, open = <-arrivals {
		value := c.nextValue()
		sent := c.l.now()
		end, ok := c.propose(value, intended)
		if ok && c.l.inWindow(intended) {
			c.latency.record(end - intended)
			c.lag.record(sent - intended)
			c.service.record(end - sent)
		}
	}
}
