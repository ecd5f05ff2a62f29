package lab

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// The open loop sends writes at the times of a schedule that was drawn beforehand: a Poisson process of a given rate. Nothing the
// target does can move the schedule, and a latency counts from the time in the schedule.
//
// One goroutine, the pacer, walks the schedule. It cannot wake at each arrival (timers are coarser than that), so it wakes now and
// then and issues all arrivals that are due, each with its own intended time: what the wake-up was late by is inside the
// latencies, never hidden, and is reported as *schedule lag*. An arrival goes to an idle worker, or to a
// new one, or, when maxInFlight are busy, nowhere: it is dropped and counted. Queueing it without bound
// instead would only measure the length of the run.
type openLoop struct {
	l           *load
	rate        float64 // arrivals per second
	maxInFlight int
	seed        uint64
	newPause    func() (pause func(time.Duration), done func())
}

const (
	// The pacer does not wake more often than this: at high rates waking for each arrival would take a core.
	shortestPause = 100 * time.Microsecond
	// and not less often, so that it notices the end of the run.
	longestPause = 20 * time.Millisecond
)

// start launches the pacer, which launches workers as it needs them.
func (o *openLoop) start(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() {
		<-o.l.gate
		// Unbuffered: a send succeeds only if a worker is idle, so busy workers and writes in flight are the same number.
		arrivals := make(chan time.Duration)
		defer close(arrivals)
		o.pace(ctx, arrivals, wg)
	})
}

func (o *openLoop) pace(ctx context.Context, arrivals chan time.Duration, wg *sync.WaitGroup) {
	l := o.l
	rng := rand.New(rand.NewPCG(o.seed, 2))
	pause, done := o.newPause()
	defer done()
	workers := 0
	seconds := rng.ExpFloat64() / o.rate
	for {
		now := l.now()
		for ; seconds <= now.Seconds(); seconds += rng.ExpFloat64() / o.rate {
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
				if workers == o.maxInFlight {
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
		// The workers just woken wait for this very processor, and a thread that sleeps in the kernel keeps it for a
		// while: let them send first.
		next := time.Duration(seconds*float64(time.Second)) - l.now()
		pause(min(max(next, shortestPause), longestPause))
	}
}

// serve makes one write for each arrival it is given.
func (c *client) serve(intended time.Duration, arrivals <-chan time.Duration) {
	defer c.finish()
	for open := true; open; intended, open = <-arrivals {
		value := c.l.source.value(valueID{client: c.id, seq: c.page.sent})
		sent := c.l.now()
		end, ok := c.propose(value)
		if ok && c.l.inWindow(intended) {
			c.latency.record(end - intended)
			c.lag.record(sent - intended)
			c.service.record(end - sent)
		}
	}
}
