package completion

import (
	"runtime"
	"slices"
	"sync"
	"testing"
)

// What is held comes with Flush, to each sink in one call; a queue without a sink has it at once.
func TestTogether(t *testing.T) {
	var a, b [][]int
	qa := NewSink(9, func(some []int) { a = append(a, slices.Clone(some)) })
	qb := NewSink(9, func(some []int) { b = append(b, slices.Clone(some)) })
	plain := New[int](9)
	for _, q := range []*Queue[int]{qa, qb, plain} {
		q.Begin(3)
	}
	var held Together
	for i := range 3 {
		qa.Hold(i, &held)
		qb.Hold(10+i, &held)
		plain.Hold(20+i, &held)
	}
	if got := plain.Take(nil); len(a)+len(b) > 0 || !slices.Equal(got, []int{20, 21, 22}) {
		t.Fatalf("before Flush: %v, %v, %v", a, b, got)
	}
	held.Flush()
	held.Flush()
	if len(a) != 1 || len(b) != 1 || !slices.Equal(a[0], []int{0, 1, 2}) || !slices.Equal(b[0], []int{10, 11, 12}) || qa.Space() != 9 {
		t.Errorf("%v, %v, space %d", a, b, qa.Space())
	}
}

// A sink that ends its goroutine keeps nothing from the next one.
func TestTogetherAfterGoexit(t *testing.T) {
	got := 0
	broken, sound := NewSink(1, func([]int) { runtime.Goexit() }), NewSink(1, func([]int) { got++ })
	broken.Begin(1)
	sound.Begin(1)
	var all sync.WaitGroup
	all.Go(func() {
		var held Together
		broken.Hold(1, &held)
		sound.Hold(2, &held)
		held.Flush()
	})
	if all.Wait(); got != 1 || broken.Reject(1, 1) == nil || sound.Reject(1, 1) != nil {
		t.Errorf("the next sink was called %d times", got)
	}
}

// Many goroutines hold and flush: each outcome comes once.
func TestTogetherIsSafe(t *testing.T) {
	const each, holders = 1000, 4
	seen := make([]int, each*holders)
	q := NewSink(each*holders, func(some []int) {
		for _, i := range some {
			seen[i]++
		}
	})
	q.Begin(each * holders)
	var all sync.WaitGroup
	for h := range holders {
		all.Go(func() {
			var held Together
			for i := range each {
				if q.Hold(h*each+i, &held); i%7 == 0 {
					held.Flush()
				}
			}
			held.Flush()
		})
	}
	all.Wait()
	for i, n := range seen {
		if n != 1 {
			t.Fatalf("outcome %d came %d times", i, n)
		}
	}
}
