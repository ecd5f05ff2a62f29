package budget

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Groups take and give bytes. The sum stays within the budget, a group gets what it asks for as long as it
// then holds no more than is left for others, and what was returned can be taken again.
func TestBudgetBesideItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{Max: rapid.Int64Range(0, 1000).Draw(t, "max")}
		holds := make([]int64, rapid.IntRange(1, 5).Draw(t, "groups"))
		sum := func() (n int64) {
			for _, h := range holds {
				n += h
			}
			return n
		}
		anyGroup := rapid.IntRange(0, len(holds)-1)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				g, n := anyGroup.Draw(t, "group"), rapid.Int64Range(0, 600).Draw(t, "bytes")
				left := b.Max - sum() // before it takes
				want := holds[g]+n <= left
				fits := b.Fits(holds[g], n)
				if took := b.Reserve(holds[g], n); took != want || fits != want {
					t.Fatalf("group %d holds %d of %d and %d are left; %d more: took %t, fits %t, want %t", g, holds[g], b.Max, left, n, took, fits, want)
				}
				if want {
					holds[g] += n
				}
			},
			"give": func(t *rapid.T) {
				g := anyGroup.Draw(t, "group")
				n := rapid.Int64Range(0, holds[g]).Draw(t, "bytes")
				b.Give(n)
				holds[g] -= n
			},
			"": func(t *rapid.T) {
				if used := b.Used(); used != sum() || used > b.Max {
					t.Fatalf("%d bytes are used, want %d, at most %d", used, sum(), b.Max)
				}
			},
		})
	})
}

// Groups that cannot work fill what they can get. If n of them fill at the same time, each holds a part of
// n+1. If they fill one after the other, each holds half of what the others left. In both cases there is
// space for a group that can work.
func TestStuckGroupsLeaveSpace(t *testing.T) {
	const most, step = 1 << 20, 256
	for n := int64(1); n <= 10; n++ {
		atOnce, oneByOne := Budget{Max: most}, Budget{Max: most}
		holds := make([]int64, n)
		for more := true; more; {
			more = false
			for i := range holds {
				if atOnce.Reserve(holds[i], step) {
					holds[i] += step
					more = true
				}
			}
		}
		for i, own := range holds {
			if part := most / (n + 1); own < part-step || own > part+step {
				t.Errorf("%d groups at once: group %d holds %d of %d bytes, want about %d", n, i, own, most, part)
			}
		}
		left := int64(most)
		for i := range n {
			own := int64(0)
			for oneByOne.Reserve(own, step) {
				own += step
			}
			if own < left/2-step || own > left/2+step {
				t.Errorf("one by one: group %d holds %d of the %d bytes left, want about half", i, own, left)
			}
			left -= own
		}
		if !atOnce.Reserve(0, step) || !oneByOne.Reserve(0, step) {
			t.Errorf("%d stuck groups leave no space for a command of %d bytes", n, step)
		}
	}
}

// Many goroutines take and give at once: the sum never exceeds the budget.
func TestBudgetAtOnce(t *testing.T) {
	b := Budget{Max: 1000}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				if b.Reserve(0, 300) {
					if used := b.Used(); used > 1000 {
						t.Errorf("%d of 1000 bytes are used", used)
					}
					b.Give(300)
				}
			}
		})
	}
	all.Wait()
	if used := b.Used(); used != 0 {
		t.Errorf("%d bytes are used in the end", used)
	}
}
