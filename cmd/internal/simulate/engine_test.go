package simulate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/shrink"
)

// Whatever ends first, seeds are added in order: runs that end in the opposite order give the same result.
func TestResultsAreAddedInOrder(t *testing.T) {
	plant(t, good)
	want := bare(t, mustRun(t, planFor(Seeds{10, 40})))

	begun := make(chan uint64)
	var release sync.Map
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		wait := make(chan struct{})
		release.Store(seed, wait)
		begun <- seed
		<-wait
		return good(seed, s)
	})
	go func() {
		for range 10 { // three at a time, the last of them first
			var three []uint64
			for range 3 {
				three = append(three, <-begun)
			}
			slices.Sort(three)
			slices.Reverse(three)
			for _, seed := range three {
				wait, _ := release.Load(seed)
				close(wait.(chan struct{}))
			}
		}
	}()
	r := mustRun(t, planFor(Seeds{10, 40}))
	if have := bare(t, r); have != want {
		t.Errorf("%s\nwant\n%s", have, want)
	}
	if len(r.Pieces) != 1 || r.Pieces[0] != (Piece{whole, 10, 40}) || r.Seeds() != 30 || len(r.Machines) != 1 || r.Machines[0].Seeds != 30 || r.Machines[0].Runs != 1 {
		t.Errorf("%+v, %+v", r.Pieces, r.Machines)
	}
}

// A failure ends the run after the seeds that are under way, and all seeds before the end are in the result.
func TestFailureEndsTheRun(t *testing.T) {
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		o := good(seed, s)
		if seed == 25 || seed == 26 || seed == 90 {
			o.Failure, o.At = "node 1 and node 2 lead in term 3", 33
		}
		return o
	})
	var h heard
	p := planFor(Seeds{1, 100})
	r := NewResult(p)
	if err := Run(t.Context(), p, r, &h, unsaved); err != nil {
		t.Fatal(err)
	}
	if r.Failed == 0 || r.Failed > 2 || len(h.failed) != int(r.Failed) || r.Failures[0].Seed != 25 || r.Pieces[0].To > 30 || r.Seeds() != r.Pieces[0].Seeds() {
		t.Fatalf("%d failed, %+v, %+v", r.Failed, r.Failures, r.Pieces)
	}
	f := r.Failures[0]
	if f.At != "tick 33" || f.Replay != "millrace sim --profile fake --seeds 25 --events" || f.Level != fake {
		t.Errorf("%+v", f)
	}
	p.Failures = 3
	if r := mustRun(t, p); r.Failed != 3 || r.Failures[2].Seed != 90 {
		t.Errorf("with three allowed, %d failed: %+v", r.Failed, r.Failures)
	}
}

// A panic of the code under test is a failure of its seed, with the stack.
func TestPanicIsAFailure(t *testing.T) {
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		if seed == 3 {
			panic("the group has no leader")
		}
		return good(seed, s)
	})
	r := mustRun(t, planFor(Seeds{1, 10}))
	if r.Failed != 1 || !strings.HasPrefix(r.Failures[0].What, "panic: the group has no leader\n") || !strings.Contains(r.Failures[0].What, "engine_test.go") {
		t.Errorf("%+v", r.Failures)
	}
}

// A run that does not end is a failure, and the run of the others ends.
func TestRunThatDoesNotEnd(t *testing.T) {
	ended := make(chan struct{})
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		if seed == 2 {
			<-ended
		}
		return good(seed, s)
	})
	p := planFor(Seeds{1, Endless})
	p.Minutes, p.Patience = time.Hour, 100*time.Millisecond
	r := mustRun(t, p)
	close(ended)
	if r.Failed == 0 || r.Failures[0].Seed != 2 || r.Pieces[0].Seeds() != r.Seeds() {
		t.Fatalf("%+v, %+v", r.Failures, r.Pieces)
	}
	for _, f := range r.Failures { // on a busy machine others may take as long
		if !strings.Contains(f.What, "not ended within 100ms") {
			t.Errorf("%+v", f)
		}
	}
	var h heard
	p.Shrink = time.Hour
	if Shrink(t.Context(), p, r, 0, &h); h.shrinks > 0 {
		t.Error("a run that does not end was made smaller")
	}
}

var errEnough = errors.New("enough")

// An interrupt waits for the seeds under way, and says why the run has ended.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		if seed == 20 {
			cancel(errEnough)
		}
		return good(seed, s)
	})
	p := planFor(Seeds{1, 1_000_000_000})
	r := NewResult(p)
	if err := Run(ctx, p, r, &heard{}, unsaved); err != errEnough {
		t.Fatal(err)
	}
	if r.Seeds() < 20 || r.Seeds() >= 1_000_000 || r.Pieces[0].To != r.Seeds()+1 {
		t.Errorf("%+v", r.Pieces)
	}
}

// The time of a plan ends a run in good order.
func TestTimeEndsARun(t *testing.T) {
	plant(t, good)
	p := planFor(Seeds{1, Endless})
	for p.Minutes = range labtest.Lengths(20 * time.Millisecond) {
		r := mustRun(t, p)
		if r.Seeds() == 0 {
			continue // a slow machine
		}
		if r.Pieces[0] != (Piece{whole, 1, r.Seeds() + 1}) {
			t.Errorf("%+v", r.Pieces)
		}
		return
	}
	t.Error("no seed ran")
}

// What cannot be saved ends the run with that error.
func TestSaveFails(t *testing.T) {
	plant(t, good)
	p := planFor(Seeds{1, 5})
	if err := Run(t.Context(), p, NewResult(p), &heard{}, func(*Result) error { return errEnough }); err != errEnough {
		t.Error(err)
	}
}

// A failure is made smaller: what does not matter goes, and the command names what is left.
func TestShrink(t *testing.T) {
	kinds := []string{"crash", "pause", "slow-disk"}
	plant(t, func(seed uint64, s shrink.Schedule) (o Outcome) {
		o = good(seed, s)
		o.Injections, o.At = 9, 17
		happens := func(n int) bool {
			return !slices.Contains(s.Skip, n) && !slices.Contains(s.Without, kinds[n%3])
		}
		o.Coverage = coverage.Matrix{}
		for _, f := range []coverage.Fault{coverage.Crash, coverage.Pause, coverage.SlowDisk} {
			if !slices.Contains(s.Without, f.String()) {
				o.Coverage.Hit(f, coverage.Steady)
			}
		}
		if seed == 7 && s.Length >= 17 && happens(4) && happens(6) {
			o.Failure = "two leaders"
		}
		return o
	})
	p := planFor(Seeds{1, 20})
	p.Shrink = time.Minute
	var h heard
	r := NewResult(p)
	if err := Run(t.Context(), p, r, &h, unsaved); err != nil {
		t.Fatal(err)
	}
	Shrink(t.Context(), p, r, 0, &h)
	s := r.Failures[0].Smallest
	if s == nil || s.Before != 9 || s.Injections != 9-len(s.Schedule.Skip) || !s.Complete || s.Runs != h.shrinks || s.What != "two leaders" {
		t.Fatalf("%+v, %d heard", s, h.shrinks)
	}
	if want := "millrace sim --profile fake --seeds 7 --length 18 --without corrupt-frame,drop-burst,duplicate-burst,long-delay,slow-disk --skip 1-3,5,7-9 --events"; s.Replay != want {
		t.Errorf("%s\nwant\n%s", s.Replay, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Failures[0].Smallest = nil
	if Shrink(ctx, p, r, 0, &h); r.Failures[0].Smallest != nil {
		t.Error("after an interrupt a smaller schedule was looked for")
	}
}
