package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// windowOf measures target with ten clients and a timeline.
func windowOf(t *testing.T, target load.Target, w load.Window) load.Outcome {
	t.Helper()
	w.Source, w.Generator, w.Observer, w.Timeline = load.NewSource(64, 1), load.Closed{Clients: 10}, silent{}, true
	o, err := w.Run(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// While a load runs, its observer sees what the last whole second was like, with few clients too.
func TestLiveShowsTheLastSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		see := &seeing{}
		looks := []load.Live{}
		w := load.Window{
			Source: load.NewSource(64, 1), Generator: load.Closed{Clients: 2}, Observer: see, Timeline: true, Length: 9 * time.Second,
			Beside: func(context.Context) error {
				for range 9 {
					<-time.After(time.Second + 50*time.Millisecond)
					looks = append(looks, see.now())
				}
				return nil
			},
		}
		if _, err := w.Run(t.Context(), stalled(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		steady, stalls := looks[2], looks[5] // of the third second, and of the sixth
		if steady.Rate < 90 || steady.Rate > 110 || steady.P50 < 19*time.Millisecond || steady.P99 > 21*time.Millisecond || steady.Completed == 0 {
			t.Errorf("steady: %+v", steady)
		}
		if stalls.Rate > 10 {
			t.Errorf("stalled: %+v", stalls)
		}
	})
}

// seeing is an observer that looks.
type seeing struct {
	silent
	now func() load.Live
}

func (s *seeing) Live(now func() load.Live) { s.now = now }

// A target stands still in its sixth second. The timeline shows the gap, the rate beside it, and the slow
// writes in the second in which they ended.
func TestTimelineShowsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := stalled(time.Millisecond)
		o := windowOf(t, target, load.Window{Warmup: time.Second, Length: 9 * time.Second})
		tl := o.Timeline
		gap, began := tl.LongestGap(o.Warmup, o.Warmup+o.Length)
		if gap < 990*time.Millisecond || gap > 1010*time.Millisecond || began < 4990*time.Millisecond || began > 5010*time.Millisecond {
			t.Errorf("a gap of %v that began at %v", gap, began)
		}
		if before, during := tl.Rate(2*time.Second, 4*time.Second), tl.Rate(5010*time.Millisecond, 5990*time.Millisecond); before != 10_000 || during != 0 {
			t.Errorf("%v ops/s before, %v during", before, during)
		}
		if before, after := tl.Second(3).Max(), tl.Latencies(6*time.Second, 7*time.Second).Max(); before > 2*time.Millisecond || after < 990*time.Millisecond {
			t.Errorf("maxima %v and %v", before, after)
		}
		if d := tl.Drift(2*time.Second, 5*time.Second); d < -0.01 || d > 0.01 {
			t.Errorf("drift %v", d)
		}
		if d := tl.Drift(2*time.Second, 6*time.Second); d > -0.5 {
			t.Errorf("drift %v of a span that ends in the stall", d)
		}
	})
}

// A warm-up lasts until the throughput is steady, and is no part of the figures.
func TestWarmupEndsWhenSteady(t *testing.T) {
	steady := load.Steadiness{Window: 100 * time.Millisecond, Windows: 3, Tolerance: 0.05, Min: 200 * time.Millisecond, Max: 5 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		target := labtest.NewTarget(1)
		target.Stall = func() {
			each := time.Millisecond
			if since := time.Since(began); since < time.Second && since/(100*time.Millisecond)%2 == 0 {
				each = 5 * time.Millisecond // up and down
			}
			pass(each)
		}
		o := windowOf(t, target, load.Window{Length: time.Second, Steady: &steady})
		if !o.Steady || o.Warmup < 1200*time.Millisecond || o.Warmup > 1600*time.Millisecond {
			t.Errorf("steady %v after %v", o.Steady, o.Warmup)
		}
		if o.Completed < 9990 || o.Completed > 10_010 || o.Latency.Max() != time.Millisecond {
			t.Errorf("%d completed, the longest took %v", o.Completed, o.Latency.Max())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		target, n := labtest.NewTarget(1), atomic.Int64{}
		target.Stall = func() { pass(time.Duration(n.Add(1)) * time.Microsecond) } // it never becomes steady
		steady.Max, steady.Tolerance = time.Second, 0.001
		if o := windowOf(t, target, load.Window{Length: time.Second, Steady: &steady}); o.Steady || o.Warmup != time.Second {
			t.Errorf("steady %v after %v", o.Steady, o.Warmup)
		}
	})
}

// refusing fails for 20 ms of its life.
type refusing struct {
	*labtest.Target
	began time.Time
}

func (r refusing) Propose(ctx context.Context, value []byte) error {
	pass(time.Millisecond)
	if since := time.Since(r.began); since > 500*time.Millisecond && since < 520*time.Millisecond {
		return errors.New("refused")
	}
	return r.Target.Propose(ctx, value)
}

// Failures are in the timeline, and in no latency.
func TestTimelineCountsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := refusing{labtest.NewTarget(1), time.Now()}
		o := windowOf(t, target, load.Window{Length: time.Second})
		completed, failed := o.Timeline.Counts(480*time.Millisecond, 560*time.Millisecond)
		if failed == 0 || failed != o.Failed || completed == 0 {
			t.Errorf("%d failed of %d, %d completed", failed, o.Failed, completed)
		}
	})
}
