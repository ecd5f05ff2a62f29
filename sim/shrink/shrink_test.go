package shrink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world is a simulator in which the wrong things happen to be known: it fails if faults last long enough,
// and if one of its sets of injections is complete.
type world struct {
	length     int
	kinds      []string // by ordinal of the injection, less one
	guilty     [][]int
	needed     int // the length
	otherwise  string
	tried      []Schedule
	afterFails func()
}

func (w *world) run(s Schedule) (a Attempt) {
	w.tried = append(w.tried, s)
	a.Injections = len(w.kinds)
	happens := func(n int) bool {
		return !slices.Contains(s.Skip, n+1) && !slices.Contains(s.Without, w.kinds[n])
	}
	for n, kind := range w.kinds {
		if happens(n) && !slices.Contains(a.Kinds, kind) {
			a.Kinds = append(a.Kinds, kind)
		}
	}
	for _, set := range w.guilty {
		if s.Length >= w.needed && !slices.ContainsFunc(set, func(n int) bool { return !happens(n) }) {
			a.Failed, a.At, a.What = true, w.needed+3, fmt.Sprintf("node %d and node 2 lead in term 7", len(set))
			if w.afterFails != nil {
				w.afterFails()
			}
			return a
		}
	}
	if w.otherwise != "" {
		a.Failed, a.What = true, w.otherwise
	}
	return a
}

func newWorld() *world {
	w := &world{length: 400, needed: 57, guilty: [][]int{{3, 40, 41}}}
	for n := range 60 {
		w.kinds = append(w.kinds, []string{"crash", "pause", "cut", "slow"}[n%4]) // 3 is slow, 40 crash, 41 pause
	}
	return w
}

func (w *world) smallest(ctx context.Context) Result {
	first := Schedule{Length: w.length}
	return Smallest(ctx, first, w.run(first), w.run)
}

// The injections that matter remain, and nothing else; the length is that of the failure.
func TestWhatMattersRemains(t *testing.T) {
	w := newWorld()
	r := w.smallest(t.Context())
	var kept []int
	for n, kind := range w.kinds {
		if !slices.Contains(r.Schedule.Skip, n+1) && !slices.Contains(r.Schedule.Without, kind) {
			kept = append(kept, n)
		}
	}
	if !slices.Equal(kept, w.guilty[0]) || !slices.Equal(r.Schedule.Without, []string{"cut"}) || r.Schedule.Length < w.needed || r.Schedule.Length > w.needed+5 {
		t.Errorf("%+v keeps %v, want %v within %d", r.Schedule, kept, w.guilty[0], w.needed)
	}
	if !r.Complete || r.Runs != len(w.tried)-1 || r.Runs > 100 {
		t.Errorf("%d runs, complete is %v; the world was run %d times", r.Runs, r.Complete, len(w.tried))
	}
	if a := w.run(r.Schedule); !a.Failed || a.What != r.Attempt.What {
		t.Errorf("what was found shows %+v, not %+v", a, r.Attempt)
	}
}

// A schedule that fails in another way is not the same failure.
func TestAnotherFailureIsNotTaken(t *testing.T) {
	w := newWorld()
	w.otherwise = "5s after the last fault the cluster has no leader"
	if r := w.smallest(t.Context()); r.Attempt.What != w.run(Schedule{Length: w.length}).What || len(r.Schedule.Skip) == 0 {
		t.Errorf("%+v", r)
	}
}

// A shorter run has fewer injections: ordinals that it does not give are not skipped, and do not count.
func TestOrdinalsThatAreNotGiven(t *testing.T) {
	try := func(s Schedule) Attempt {
		return Attempt{Failed: !slices.Contains(s.Skip, 2), What: "x", At: 9, Injections: s.Length / 10}
	}
	first := Schedule{Length: 100, Skip: []int{1, 9}}
	r := Smallest(t.Context(), first, try(first), try)
	if r.Schedule.Length >= 50 || r.Attempt.Left(r.Schedule) > 1 || len(r.Schedule.Skip) > 0 && r.Schedule.Skip[len(r.Schedule.Skip)-1] > r.Attempt.Injections {
		t.Errorf("%+v, %+v", r.Schedule, r.Attempt)
	}
	for n, want := range map[int]int{0: 0, 1: 0, 5: 4, 9: 7, 10: 8} {
		if left := (Attempt{Injections: n}).Left(first); left != want {
			t.Errorf("of %d injections %d are left, want %d", n, left, want)
		}
	}
}

// What has a kind of its own is compared by it.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		a, b Attempt
		same bool
	}{
		{Attempt{What: "node 1 leads in term 7"}, Attempt{What: "node 2 leads in term 31"}, true},
		{Attempt{What: "node 1 leads in term 7"}, Attempt{What: "node 1 applies entry 7"}, false},
		{Attempt{What: "x", Kind: "log-matching"}, Attempt{What: "y", Kind: "log-matching"}, true},
		{Attempt{What: "x", Kind: "log-matching"}, Attempt{What: "x", Kind: "one-vote"}, false},
	} {
		if have := kindOf(c.a) == kindOf(c.b); have != c.same {
			t.Errorf("%+v and %+v: %v", c.a, c.b, have)
		}
	}
}

// Nothing smaller fails: the first schedule is returned, and each kind and each injection was left out once.
func TestNothingCanBeLeftOut(t *testing.T) {
	w := &world{length: 10, needed: 10, kinds: []string{"crash", "pause", "cut"}, guilty: [][]int{{0, 1, 2}}}
	if r := w.smallest(t.Context()); len(r.Schedule.Skip)+len(r.Schedule.Without) > 0 || r.Schedule.Length != 10 || !r.Complete {
		t.Errorf("%+v", r)
	}
	for n := range w.kinds {
		if !slices.ContainsFunc(w.tried, func(s Schedule) bool { return slices.Equal(s.Skip, []int{n + 1}) }) {
			t.Errorf("injection %d alone was not left out: %+v", n, w.tried)
		}
	}
}

// A simulator without lengths, kinds and numbers has nothing that can be made smaller, and is not run.
func TestNothingToShrink(t *testing.T) {
	r := Smallest(t.Context(), Schedule{}, Attempt{Failed: true, What: "x"}, func(Schedule) Attempt {
		t.Error("it was run")
		return Attempt{}
	})
	if !r.Complete || r.Attempt.What != "x" {
		t.Errorf("%+v", r)
	}
}

// When its time is over, the search returns the smallest schedule so far.
func TestEndsWithItsContext(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	failed := 0
	w.afterFails = func() {
		if failed++; failed == 4 { // the first run, and three that were smaller
			cancel()
		}
	}
	r := w.smallest(ctx)
	if r.Complete || r.Schedule.Length >= w.length || len(w.tried) != r.Runs+1 {
		t.Errorf("%+v after %d runs", r, len(w.tried))
	}
	last := w.tried[len(w.tried)-1]
	if a := w.run(last); !a.Failed || last.Length != r.Schedule.Length {
		t.Errorf("the last that failed is %+v, and %+v was returned", last, r.Schedule)
	}
}

// Random worlds: what is left fails, and no single injection of it can be left out.
func TestRandomWorlds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		w := &world{length: 1 + rng.IntN(500)}
		w.needed = 1 + rng.IntN(w.length)
		for range 1 + rng.IntN(80) {
			w.kinds = append(w.kinds, fmt.Sprint("kind-", rng.IntN(10)))
		}
		for range 1 + rng.IntN(3) {
			set := rng.Perm(len(w.kinds))[:rng.IntN(min(6, len(w.kinds)))]
			w.guilty = append(w.guilty, set)
		}
		r := w.smallest(t.Context())
		if a := w.run(r.Schedule); !a.Failed {
			t.Fatalf("%+v does not fail", r.Schedule)
		}
		for n := range w.kinds {
			if next := r.Schedule; !slices.Contains(next.Skip, n+1) && !slices.Contains(next.Without, w.kinds[n]) {
				next.Skip = append(slices.Clone(next.Skip), n+1)
				if slices.Sort(next.Skip); w.run(next).Failed {
					t.Fatalf("%+v fails without injection %d, too (guilty: %v)", r.Schedule, n, w.guilty)
				}
			}
		}
	}
}
