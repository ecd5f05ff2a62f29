package load_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

func noPhase(string) {}

// newLoad loads target with values of 64 bytes.
func newLoad(target load.Target, warmup, length time.Duration) *load.Load {
	return load.New(target, load.NewSource(64, 1), warmup, length)
}

// pass lets the bubble's clock run.
func pass(d time.Duration) { <-time.After(d) }

// virtualPause sleeps on the bubble's clock.
func virtualPause() (func(time.Duration), func()) { return pass, func() {} }

// openLoop offers 1000 writes a second.
func openLoop(maxInFlight int, pause func() (func(time.Duration), func())) load.Open {
	return load.Open{Rate: 1000, MaxInFlight: maxInFlight, Seed: 1, NewPause: pause}
}

// Ten clients, 1 ms for each write, 1 s: ten thousand writes of 1 ms, and none from the warm-up.
func TestClosedLoopCountsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := labtest.NewTarget(3)
		target.Stall = func() { pass(time.Millisecond) } // virtual time
		l := newLoad(target, 300*time.Millisecond, time.Second)
		o, err := l.Run(t.Context(), noPhase, load.Closed{Clients: 10})
		if err != nil {
			t.Fatal(err)
		}
		if o.Completed != 10_000 || o.Latency.Count() != 10_000 || o.Latency.Mean() != time.Millisecond || o.Latency.Max() != time.Millisecond {
			t.Fatalf("%d completed, %d latencies, mean %v, max %v", o.Completed, o.Latency.Count(), o.Latency.Mean(), o.Latency.Max())
		}
		if l.Ledger().Acked() != 13_000 {
			t.Fatalf("%d acknowledged, want 13000, the warm-up's included", l.Ledger().Acked())
		}
		if o.Used.Fsyncs < 29_900 || o.Used.Fsyncs > 30_100 {
			t.Fatalf("%d fsyncs in the window, want about 30000", o.Used.Fsyncs)
		}
		if err := target.Verify(t.Context(), l.Ledger()); err != nil {
			t.Fatal(err)
		}
	})
}

// stalled returns a target on which each write takes the given time, and which answers nothing between the
// fifth and the sixth second.
func stalled(each time.Duration) *labtest.Target {
	begin := time.Now().Add(5 * time.Second)
	end := begin.Add(time.Second)
	target := labtest.NewTarget(1)
	target.Stall = func() {
		if each > 0 {
			pass(each)
		}
		if now := time.Now(); now.After(begin) && now.Before(end) {
			pass(end.Sub(now))
		}
	}
	return target
}

// A target stands still for one second of ten. The schedule does not: the writes that it intended for that
// second waited half a second on average, and they are a tenth of all writes. A closed loop sees one slow
// write for each client.
func TestOpenLoopChargesAStallToAllItDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := newLoad(stalled(0), 0, 10*time.Second).Run(t.Context(), noPhase, openLoop(10_000, virtualPause))
		if err != nil {
			t.Fatal(err)
		}
		if p := o.Latency.Quantile(0.95); p < 450*time.Millisecond || p > 550*time.Millisecond {
			t.Errorf("p95 is %v, want about 500 ms", p)
		}
		if m := o.Latency.Mean(); m < 40*time.Millisecond || m > 60*time.Millisecond {
			t.Errorf("mean is %v, want about 50 ms", m)
		}
		if o.Offered < 9_700 || o.Offered > 10_300 || o.Dropped != 0 || o.Latency.Count() != o.Offered {
			t.Errorf("%d offered, %d dropped, %d answered", o.Offered, o.Dropped, o.Latency.Count())
		}

		closed, err := newLoad(stalled(time.Millisecond), 0, 10*time.Second).Run(t.Context(), noPhase, load.Closed{Clients: 1})
		if err != nil {
			t.Fatal(err)
		}
		if p := closed.Latency.Quantile(0.99); p > 2*time.Millisecond {
			t.Errorf("the closed loop was expected to hide the stall; its p99 is %v", p)
		}
	})
}

// A pacer that wakes late issues all arrivals that it missed. The lag is part of the latency, and is
// reported.
func TestOpenLoopReportsItsOwnLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func() (func(time.Duration), func()) {
			return func(time.Duration) { pass(100 * time.Millisecond) }, func() {}
		}
		o, err := newLoad(labtest.NewTarget(1), 0, 10*time.Second).Run(t.Context(), noPhase, openLoop(10_000, late))
		if err != nil {
			t.Fatal(err)
		}
		if m := o.Lag.Mean(); m < 45*time.Millisecond || m > 55*time.Millisecond {
			t.Errorf("mean lag %v, want about 50 ms", m)
		}
		if o.Latency.Mean() != o.Lag.Mean()+o.Service.Mean() {
			t.Errorf("latency %v is not lag %v + service %v", o.Latency.Mean(), o.Lag.Mean(), o.Service.Mean())
		}
	})
}

func TestOpenLoopDropsAndCountsBeyondTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := labtest.NewTarget(1)
		target.Stall = func() { pass(100 * time.Millisecond) } // with 10 in flight: 100/s
		o, err := newLoad(target, 0, 10*time.Second).Run(t.Context(), noPhase, openLoop(10, virtualPause))
		if err != nil {
			t.Fatal(err)
		}
		if o.Completed < 950 || o.Completed > 1000 {
			t.Errorf("%d writes done, want about 1000", o.Completed)
		}
		if o.Dropped+o.Latency.Count() != o.Offered {
			t.Errorf("%d offered, %d dropped, %d measured", o.Offered, o.Dropped, o.Latency.Count())
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
				target := labtest.NewTarget(1)
				target.Refuse = tc.refuse
				start := time.Now()
				_, err := newLoad(target, 0, time.Hour).Run(t.Context(), noPhase, load.Closed{Clients: 2})
				if !errors.Is(err, tc.refuse) || time.Since(start) > tc.within {
					t.Fatalf("after %v: %v", time.Since(start), err)
				}
			})
		})
	}
}

// An interrupt ends the load after the writes in flight.
func TestLoadStopsWhenInterrupted(t *testing.T) {
	stop := errors.New("stop")
	synctest.Test(t, func(t *testing.T) {
		target := labtest.NewTarget(1)
		target.Stall = func() { pass(time.Second) }
		l := newLoad(target, 0, time.Hour)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { cancel(stop) })
		start := time.Now()
		_, err := l.Run(ctx, noPhase, load.Closed{Clients: 2})
		if err != stop || time.Since(start) != 3*time.Second || l.Ledger().Acked() != 6 {
			t.Fatalf("after %v, %d acknowledged: %v", time.Since(start), l.Ledger().Acked(), err)
		}
	})
}

// besideTarget runs a window of at least a second beside what takes three, or fails.
func besideTarget(t *testing.T, beside func(context.Context) error) (load.Outcome, error) {
	target := labtest.NewTarget(3)
	target.Stall = func() { pass(time.Millisecond) }
	return load.Window{
		Source: load.NewSource(64, 1), Warmup: 100 * time.Millisecond, Length: time.Second, Generator: load.Closed{Clients: 10},
		Observer: silent{}, Beside: beside,
	}.Run(t.Context(), target)
}

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

// The window lasts as long as what happens beside it, and its error ends the load.
func TestWindowLastsAsLongAsWhatIsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := besideTarget(t, func(context.Context) error { pass(3 * time.Second); return nil })
		if err != nil || o.Length != 3*time.Second || o.Completed < 30_000 || o.Completed > 30_010 {
			t.Errorf("%d in %v, %v", o.Completed, o.Length, err)
		}
		o, err = besideTarget(t, func(context.Context) error { return nil })
		if err != nil || o.Length != time.Second || o.Completed < 10_000 || o.Completed > 10_010 {
			t.Errorf("%d in %v, %v", o.Completed, o.Length, err)
		}
		broken := errors.New("broken")
		if _, err = besideTarget(t, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
