package completion

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// A queue beside a naive twin: each outcome comes once, in order; places are never exceeded; the channel has
// an element if and only if outcomes wait.
func TestQueueAgainstItsTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(-1, 9).Draw(rt, "limit")
		q, open, next, begun := New[int](limit), 0, 0, 0
		var waiting, last []int
		mine := make([]int, 3)
		limit = max(limit, 1)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				n := rapid.IntRange(0, 6).Draw(rt, "n")
				got := q.Begin(n)
				if want := min(n, limit-open); got != want {
					rt.Fatalf("Begin(%d) with %d of %d open: %d, want %d", n, open, limit, got, want)
				}
				open, begun = open+got, begun+got
			case 1:
				n := rapid.IntRange(0, begun).Draw(rt, "cancelled")
				q.Cancel(n)
				open, begun = open-n, begun-n
			case 2:
				var some []int
				for range rapid.IntRange(0, begun).Draw(rt, "known") {
					some, next = append(some, next), next+1
				}
				q.Add(some...)
				waiting, begun = append(waiting, some...), begun-len(some)
			case 3:
				if rapid.Bool().Draw(rt, "received") {
					select {
					case <-q.Ready():
					default:
					}
				}
				got := q.Take([][]int{nil, last, mine, mine[:0]}[rapid.IntRange(0, 3).Draw(rt, "memory")])
				if !slices.Equal(got, waiting) {
					rt.Fatalf("Take: %v, want %v", got, waiting)
				}
				open -= len(got)
				last, waiting = got, nil
			}
			if q.Space() != limit-open || (len(q.Ready()) == 1) != (len(waiting) > 0) {
				rt.Fatalf("space %d, ready %d; want %d, and %d wait", q.Space(), len(q.Ready()), limit-open, len(waiting))
			}
		}
	})
}

// One goroutine sleeps until something is known, and misses nothing that others add.
func TestNothingIsMissed(t *testing.T) {
	const each, adders = 2000, 3
	q := New[int](each * adders)
	q.Begin(each * adders)
	var all sync.WaitGroup
	for a := range adders {
		all.Go(func() {
			for i := range each {
				q.Add(a*each + i)
			}
		})
	}
	seen := make([]bool, each*adders)
	var some []int
	for n := 0; n < each*adders; n += len(some) {
		<-q.Ready()
		some = q.Take(some)
		for _, i := range some {
			if seen[i] {
				t.Fatalf("%d came twice", i)
			}
			seen[i] = true
		}
	}
	all.Wait()
}

// Taking allocates nothing when memory goes round, and keeps nothing alive.
func TestTakeReusesMemory(t *testing.T) {
	q := New[*int](8)
	var some []*int
	round := func() {
		q.Begin(4)
		q.Add(nil, nil)
		q.Add(nil)
		q.Add(nil)
		some = q.Take(some)
	}
	round()
	round()
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
	q.Begin(1)
	q.Add(new(int))
	taken := q.Take(nil)
	if q.Take(taken); taken[0] != nil {
		t.Error("what was handed back still points to an outcome")
	}
}

// Who hands the same memory to each Take, or reads an earlier answer meanwhile, loses nothing.
func TestTheMemoryOfTakeIsTheCallers(t *testing.T) {
	q, mine := New[int](8), make([]int, 0, 4)
	kept := []int(nil)
	for i := 1; i < 9; i++ {
		q.Begin(2)
		q.Add(i)
		got := q.Take(mine)
		q.Add(i + 10)
		if !slices.Equal(got, []int{i}) {
			t.Fatalf("outcome %d: %v", i, got)
		}
		before := kept
		if kept = q.Take(nil); !slices.Equal(kept, []int{i + 10}) || i > 1 && before[0] != i+9 {
			t.Fatalf("outcome %d: %v, and before %v", i+10, kept, before)
		}
	}
}
