package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func noPhase(string) {}

func TestShardsMergeToTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	r, want := newRecorder(), newLatencies()
	var clients []*series
	for i := range 7 {
		clients = append(clients, r.series(i))
	}
	var sum, most time.Duration
	const n = 10_000
	for i := range n {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		clients[i%len(clients)].record(d)
		want.record(d)
		sum, most = sum+d, max(most, d)
	}
	for _, c := range clients {
		c.flush()
	}
	have := r.merged()
	if have.count != n || have.mean() != sum/n || have.max != most {
		t.Fatalf("have %d, mean %v, max %v; want %d, %v, %v", have.count, have.mean(), have.max, n, sum/n, most)
	}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		if have.quantile(q) != want.quantile(q) {
			t.Errorf("quantile %v: have %v, want %v", q, have.quantile(q), want.quantile(q))
		}
	}
}

func TestLatenciesBeyondTheHistogram(t *testing.T) {
	l := newLatencies()
	l.record(2 * time.Minute)
	if l.max != 2*time.Minute || l.mean() != 2*time.Minute || l.quantile(0.5) < 59*time.Second {
		t.Fatalf("max %v, mean %v, p50 %v", l.max, l.mean(), l.quantile(0.5))
	}
}

// Ten clients, 1 ms for each write, 1 s: ten thousand writes of 1 ms, and none from the warm-up.
func TestClosedLoopCountsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newFakeTarget(3)
		target.stall = func() { pass(time.Millisecond) } // virtual time
		l := newLoad(target, newValueSource(64, 1), 300*time.Millisecond, time.Second)
		used, err := l.run(t.Context(), noPhase, func(ctx context.Context, wg *sync.WaitGroup) { l.startClosed(ctx, 10, wg) })
		if err != nil {
			t.Fatal(err)
		}
		lat := l.latency.merged()
		if l.completed.Load() != 10_000 || lat.count != 10_000 || lat.mean() != time.Millisecond || lat.max != time.Millisecond {
			t.Fatalf("%d completed, %d latencies, mean %v, max %v", l.completed.Load(), lat.count, lat.mean(), lat.max)
		}
		if l.ledger.Acked() != 13_000 {
			t.Fatalf("%d acknowledged, want the warm-up's too: 13000", l.ledger.Acked())
		}
		if used.used.Fsyncs < 29_900 || used.used.Fsyncs > 30_100 {
			t.Fatalf("%d fsyncs in the window, want about 30000", used.used.Fsyncs)
		}
		if err := target.Verify(t.Context(), l.ledger); err != nil {
			t.Fatal(err)
		}
	})
}

// A target that stands still for one second of ten. The schedule does not stand still: the writes it meant for that
// second waited half a second on average, a tenth of all writes. A closed loop sees one slow write for each client.
func TestOpenLoopChargesAStallToAllItDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := time.Now()
		until := origin.Add(6 * time.Second)
		target := newFakeTarget(1)
		target.stall = func() {
			if now := time.Now(); now.After(origin.Add(5*time.Second)) && now.Before(until) {
				pass(until.Sub(now))
			}
		}
		l := newLoad(target, newValueSource(64, 1), 0, 10*time.Second)
		o := &openLoop{l: l, rate: 1000, maxInFlight: 10_000, seed: 1, newPause: virtualPause}
		if _, err := l.run(t.Context(), noPhase, o.start); err != nil {
			t.Fatal(err)
		}
		lat := l.latency.merged()
		if p := lat.quantile(0.95); p < 450*time.Millisecond || p > 550*time.Millisecond {
			t.Errorf("p95 is %v, want about 500 ms", p)
		}
		if m := lat.mean(); m < 40*time.Millisecond || m > 60*time.Millisecond {
			t.Errorf("mean is %v, want about 50 ms", m)
		}
		if l.offered < 9_700 || l.offered > 10_300 || l.dropped != 0 || uint64(lat.count) != l.offered {
			t.Errorf("%d offered, %d dropped, %d answered", l.offered, l.dropped, lat.count)
		}

		*target = *newFakeTarget(1)
		origin = time.Now()
		until = origin.Add(6 * time.Second)
		target.stall = func() {
			pass(time.Millisecond)
			if now := time.Now(); now.After(origin.Add(5*time.Second)) && now.Before(until) {
				pass(until.Sub(now))
			}
		}
		closed := newLoad(target, newValueSource(64, 1), 0, 10*time.Second)
		if _, err := closed.run(t.Context(), noPhase, func(ctx context.Context, wg *sync.WaitGroup) { closed.startClosed(ctx, 1, wg) }); err != nil {
			t.Fatal(err)
		}
		if p := closed.latency.merged().quantile(0.99); p > 2*time.Millisecond {
			t.Errorf("the closed loop was expected to hide the stall; its p99 is %v", p)
		}
	})
}

// virtualPause sleeps on the bubble's clock.
func virtualPause() (func(time.Duration), func()) { return pass, func() {} }

// A pacer that wakes late issues what it missed and owns up to it: the lag is in the latency, and reported.
func TestOpenLoopReportsItsOwnLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoad(newFakeTarget(1), newValueSource(64, 1), 0, 10*time.Second)
		late := func() (func(time.Duration), func()) {
			return func(time.Duration) { pass(100 * time.Millisecond) }, func() {}
		}
		o := &openLoop{l: l, rate: 1000, maxInFlight: 10_000, seed: 1, newPause: late}
		if _, err := l.run(t.Context(), noPhase, o.start); err != nil {
			t.Fatal(err)
		}
		lag, lat := l.lag.merged(), l.latency.merged()
		if m := lag.mean(); m < 45*time.Millisecond || m > 55*time.Millisecond {
			t.Errorf("mean lag %v, want about 50 ms", m)
		}
		if lat.mean() != lag.mean()+l.service.merged().mean() {
			t.Errorf("latency %v is not lag %v + service %v", lat.mean(), lag.mean(), l.service.merged().mean())
		}
		r := Result{Rate: 1000, DurationSec: 10, Ops: 10_000, OpsPerSec: 1000, Offered: l.offered, LagP99Us: micros(lag.quantile(0.99))}
		r.setLatencies(lat)
		r.mark()
		if fmt.Sprint(r.Marks) != "["+MarkGeneratorBound+"]" {
			t.Errorf("marks: %v", r.Marks)
		}
	})
}

func TestOpenLoopDropsAndCountsBeyondTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newFakeTarget(1)
		target.stall = func() { pass(100 * time.Millisecond) } // with 10 in flight: 100/s
		l := newLoad(target, newValueSource(64, 1), 0, 10*time.Second)
		o := &openLoop{l: l, rate: 1000, maxInFlight: 10, seed: 1, newPause: virtualPause}
		if _, err := l.run(t.Context(), noPhase, o.start); err != nil {
			t.Fatal(err)
		}
		if ops := l.completed.Load(); ops < 950 || ops > 1000 {
			t.Errorf("%d writes done, want about 1000", ops)
		}
		if l.dropped+uint64(l.latency.merged().count) != l.offered {
			t.Errorf("%d offered, %d dropped, %d measured", l.offered, l.dropped, l.latency.merged().count)
		}
		r := Result{Rate: 1000, DurationSec: 10, Ops: 1000, OpsPerSec: 100, Offered: l.offered, Dropped: l.dropped}
		r.mark()
		if fmt.Sprint(r.Marks) != "["+MarkSaturated+"]" {
			t.Errorf("marks: %v", r.Marks)
		}
	})
}

func TestLoadGivesUp(t *testing.T) {
	for _, tc := range []struct {
		name   string
		refuse error
		within time.Duration
	}{
		{"at once when the disk is full", fmt.Errorf("append: %w", syscall.ENOSPC), time.Millisecond},
		{"after many failures in a row", errors.New("no leader"), 11 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := newFakeTarget(1)
				target.refuse = tc.refuse
				l := newLoad(target, newValueSource(64, 1), 0, time.Hour)
				start := time.Now()
				_, err := l.run(t.Context(), noPhase, func(ctx context.Context, wg *sync.WaitGroup) { l.startClosed(ctx, 2, wg) })
				if !errors.Is(err, tc.refuse) || time.Since(start) > tc.within {
					t.Fatalf("after %v: %v", time.Since(start), err)
				}
			})
		})
	}
}

// An interrupt ends the load after what is in flight; a target that never answers is cut off.
func TestLoadStopsWhenInterrupted(t *testing.T) {
	stop := errors.New("stop")
	synctest.Test(t, func(t *testing.T) {
		target := newFakeTarget(1)
		target.stall = func() { pass(time.Second) }
		l := newLoad(target, newValueSource(64, 1), 0, time.Hour)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { cancel(stop) })
		start := time.Now()
		_, err := l.run(ctx, noPhase, func(ctx context.Context, wg *sync.WaitGroup) { l.startClosed(ctx, 2, wg) })
		if err != stop || time.Since(start) != 3*time.Second || l.ledger.Acked() != 6 {
			t.Fatalf("after %v, %d acknowledged: %v", time.Since(start), l.ledger.Acked(), err)
		}
	})
}

// pass lets the bubble's clock run.
func pass(d time.Duration) { <-time.After(d) }
