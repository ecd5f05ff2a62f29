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

func (c realClock) Every(period time.Duration, f func()) func() {
	// time.Ticker drops ticks for slow receivers, which is the collapse that Every promises.
	ticker := time.NewTicker(period)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ticker.C:
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-done
	}
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
	defer close(t.done)
	for range t.wake {
		if t.gatherer != nil && t.gatherer.Gathers() {
			// Go runs the goroutine that was woken last before others that are ready. Without the pause, the
			// command of the first of a hundred clients would be taken alone. After it, all of them are
			// waiting.
			began := time.Now()
			runtime.Gosched()
			t.gatherer.Gathered(time.Since(began))
		}
		for !t.stopped.Load() && t.worker.RunOnce() {
		}
		if t.stopped.Load() {
			return
		}
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
