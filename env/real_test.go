package env_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/env"
)

// workFunc is a function as a worker.
type workFunc func() bool

func (f workFunc) RunOnce() bool { return f() }

func start(f func() bool) env.Task { return env.Real().Scheduler.Go("test", env.Compute, workFunc(f)) }

// Work that was queued before a Wake is seen by a RunOnce after it: no wake-up is lost, however the two race.
func TestWakeIsNeverLost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const wakers, each = 8, 2000
	var queued atomic.Int64
	taken, all := int64(0), make(chan struct{}) // taken is the worker's alone; the race detector watches it
	task := start(func() bool {
		n := queued.Swap(0)
		if taken += n; n > 0 && taken == wakers*each {
			close(all)
		}
		return false
	})
	defer task.Stop()
	var wg sync.WaitGroup
	for range wakers {
		wg.Go(func() {
			for range each {
				queued.Add(1)
				task.Wake()
			}
		})
	}
	wg.Wait()
	<-all // or the test times out
}

// A Wake during a RunOnce requests another one, which starts after it.
func TestWakeDuringRunOnce(t *testing.T) {
	entered, gate := make(chan struct{}), make(chan struct{})
	task := start(func() bool {
		entered <- struct{}{}
		<-gate
		return false
	})
	task.Wake()
	<-entered
	task.Wake()
	task.Wake()
	gate <- struct{}{}
	<-entered
	gate <- struct{}{}
	task.Stop()
}

// Each Wake is answered before the next one is given.
func TestWakeOneByOne(t *testing.T) {
	answered := make(chan struct{})
	task := start(func() bool { answered <- struct{}{}; return false })
	defer task.Stop()
	for range 10_000 {
		task.Wake()
		<-answered
	}
}

// A worker may wake itself and others from its RunOnce, and is never run twice at the same time.
func TestRunOnceNeverOverlaps(t *testing.T) {
	var running atomic.Int32
	var task env.Task
	runs, done := 0, make(chan struct{})
	ready := make(chan struct{})
	task = start(func() bool {
		<-ready
		if running.Add(1) != 1 {
			t.Error("two at a time")
		}
		if runs++; runs == 5000 {
			close(done)
		}
		task.Wake()
		running.Add(-1)
		return runs%3 != 0
	})
	close(ready)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				task.Wake()
			}
		})
	}
	wg.Wait()
	<-done
	task.Stop()
}

// Stop waits for the RunOnce that is running, and none runs after it.
func TestStopJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, runs := make(chan struct{}), 0
		task := start(func() bool { runs++; <-gate; return true })
		task.Wake()
		synctest.Wait()
		stopped := make(chan struct{}, 2)
		for range 2 {
			go func() { task.Stop(); stopped <- struct{}{} }()
		}
		synctest.Wait()
		if len(stopped) != 0 {
			t.Fatal("Stop returned while RunOnce ran")
		}
		close(gate)
		<-stopped
		<-stopped
		task.Wake()
		task.Stop()
		synctest.Wait()
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
	})
}

// Stop ends a worker that always knows of more, one that was never woken, and one that was woken and never
// ran.
func TestStopEndsAnyWorker(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	first := make(chan struct{})
	var once sync.Once
	busy := start(func() bool { once.Do(func() { close(first) }); return true })
	busy.Wake()
	<-first
	busy.Stop()
	idle := start(func() bool { t.Error("ran without a wake"); return false })
	idle.Stop()
	for range 100 {
		woken := start(func() bool { return false })
		woken.Wake()
		woken.Stop()
	}
}

// A worker that ends its goroutine continues on another one, and Stop joins that one.
func TestGoexitInRunOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const all = 3
	runs, done := 0, make(chan struct{})
	task := start(func() bool {
		if runs++; runs <= all {
			runtime.Goexit()
		}
		if runs == all+1 {
			close(done)
		}
		return false
	})
	task.Wake()
	<-done
	task.Stop()
}

// Every calls f at each period and collapses missed periods, and stop waits for a running call.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		gate := make(chan struct{}, 1)
		ticker := env.Real().Clock.Every(time.Second, func() int { calls.Add(1); <-gate; return 1 })
		gate <- struct{}{}
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		if got := calls.Load(); got != 1 {
			t.Errorf("%d calls after one period and a half", got)
		}
		<-time.After(5 * time.Second) // the second call is late: four periods pass it
		synctest.Wait()
		if got := calls.Load(); got != 2 {
			t.Errorf("%d calls while one is stuck", got)
		}
		gate <- struct{}{}
		synctest.Wait() // one for all that were missed
		if got := calls.Load(); got != 3 {
			t.Errorf("%d calls, want one for all that were missed", got)
		}
		stopped := make(chan struct{})
		go func() { ticker.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stop returned while the function ran")
		default:
		}
		gate <- struct{}{}
		<-stopped
		<-time.After(time.Minute)
		if got := calls.Load(); got != 3 {
			t.Errorf("%d calls after stop", got)
		}
	})
}

// A call may ask for a longer pause, and Hasten ends it at the end of the present period.
func TestEveryWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, at := time.Now(), []time.Duration{}
		ticker := env.Real().Clock.Every(time.Second, func() int {
			at = append(at, time.Since(began))
			return 4
		})
		<-time.After(7500 * time.Millisecond) // calls at 1 s and 5 s
		ticker.Hasten()                       // instead of at 9 s
		<-time.After(3 * time.Second)         // and next at 12 s
		ticker.Hasten()
		ticker.Hasten()
		<-time.After(5 * time.Second)
		ticker.Stop()
		want := []time.Duration{1 * time.Second, 5 * time.Second, 8 * time.Second, 11 * time.Second, 15 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("calls at %v, want %v", at, want)
		}
	})
}

// A timer calls once each time it is set: the last setting counts, and Stop cancels it.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		timer := env.Real().Clock.Timer(func() { calls.Add(1) })
		expect := func(after time.Duration, want int32) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if got := calls.Load(); got != want {
				t.Errorf("%d calls, want %d", got, want)
			}
		}
		expect(2*time.Hour, 0) // not set
		timer.Set(time.Second)
		expect(time.Hour, 1)
		timer.Set(time.Hour)
		timer.Set(time.Millisecond)
		expect(2*time.Hour, 2)
		timer.Set(time.Second)
		timer.Stop()
		timer.Stop()
		expect(time.Hour, 2)
		timer.Set(time.Second)
		expect(time.Minute, 3)
	})
}

func TestClockNeverGoesBack(t *testing.T) {
	clock := env.Real().Clock
	last := clock.Now()
	for range 10_000 {
		now := clock.Now()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}

func TestRandDiffers(t *testing.T) {
	r := env.Real().Rand
	if a, b := r.Uint64(), r.Uint64(); a == b {
		t.Errorf("twice %d", a)
	}
}

// The boot clock runs at least as long as the monotonic one, and never goes back.
func TestBoottime(t *testing.T) {
	c := env.Real().Clock
	boot := c.Boottime()
	from := c.Now()
	for range 1000 {
		last := c.Boottime()
		now := c.Now()
		if next := c.Boottime(); next < last || next-boot < now-from {
			t.Fatalf("the boot clock shows %v after %v, and began at %v, while %v passed", next, last, boot, now-from)
		}
	}
}
