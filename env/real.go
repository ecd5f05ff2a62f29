package env

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Real returns the production Env: the monotonic clock, Go's random source, and one goroutine for each
// worker.
func Real() Env {
	return Env{Clock: realClock{origin: time.Now()}, Rand: realRand{}, Scheduler: goroutines{}, Parallelism: runtime.GOMAXPROCS(0)}
}

type realRand struct{}

func (realRand) Uint64() uint64 { return rand.Uint64() }

type realClock struct{ origin time.Time }

func (c realClock) Now() time.Duration { return time.Since(c.origin) }

func (c realClock) Boottime() time.Duration { return c.boottime() }

func (c realClock) Every(period time.Duration, f func() (periods int)) Ticker {
	t := &ticker{period: period, f: f, began: time.Now(), hasten: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go t.run()
	return t
}

// ticker is a goroutine that waits for the end of periods.
type ticker struct {
	period       time.Duration
	f            func() (periods int)
	began        time.Time
	hasten, quit chan struct{}
	done         chan struct{}
}

func (t *ticker) run() {
	defer close(t.done)
	timer, late := time.NewTimer(t.period), false // late: the present period ends before
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			began := t.periods()
			periods := max(t.f(), 1)
			late = periods > 1
			timer.Reset(t.untilEnd(began + periods - 1))
		case <-t.hasten:
			if late {
				late = false
				timer.Reset(t.untilEnd(t.periods()))
			}
		case <-t.quit:
			return
		}
	}
}

// periods returns how many periods have ended.
func (t *ticker) periods() int { return int(time.Since(t.began) / t.period) }

// untilEnd returns how long it is until a period ends; less than 0 if it has ended.
func (t *ticker) untilEnd(n int) time.Duration {
	return time.Duration(n+1)*t.period - time.Since(t.began)
}

func (t *ticker) Hasten() {
	select {
	case t.hasten <- struct{}{}:
	default: // it is under way
	}
}

func (t *ticker) Stop() {
	close(t.quit)
	<-t.done
}

func (c realClock) Timer(f func()) Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return realTimer{t}
}

type realTimer struct{ t *time.Timer }

func (t realTimer) Set(d time.Duration) { t.t.Reset(d) }
func (t realTimer) Stop()               { t.t.Stop() }

// goroutines gives each worker a goroutine, which waits while there is nothing to do.
type goroutines struct{}

func (goroutines) Go(_ string, _ Kind, w Worker) Task {
	t := &goroutineTask{worker: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	t.gatherer, _ = w.(Gatherer)
	go t.run()
	return t
}

type goroutineTask struct {
	worker   Worker
	gatherer Gatherer      // the worker, if it is one
	wake     chan struct{} // capacity 1: a token means "run once more"
	stopped  atomic.Bool
	done     chan struct{}
	once     sync.Once
}

func (t *goroutineTask) run() {
	finished := false
	defer func() {
		if finished {
			close(t.done)
			return
		}
		// Code of a user that the worker calls has ended the goroutine (runtime.Goexit; FailNow of a test does
		// that). The worker continues on another one.
		t.Wake()
		go t.run()
	}()
	for range t.wake {
		for t.gather(); !t.stopped.Load() && t.worker.RunOnce(); t.gather() {
		}
		if t.stopped.Load() {
			finished = true
			return
		}
	}
}

// gather runs the goroutines that are ready, if the worker asks for that. Go runs the goroutine that was
// woken last before others that are ready. Without the pause, the command of the first of a hundred clients
// would be taken alone. After it, all of them are waiting.
func (t *goroutineTask) gather() {
	if t.gatherer != nil && t.gatherer.Gathers() {
		began := time.Now()
		runtime.Gosched()
		t.gatherer.Gathered(time.Since(began))
	}
}

func (t *goroutineTask) Wake() {
	select {
	case t.wake <- struct{}{}:
	default: // a token is waiting already; the RunOnce it stands for has not started
	}
}

func (t *goroutineTask) Stop() {
	t.once.Do(func() {
		t.stopped.Store(true)
		t.Wake()
	})
	<-t.done
}
