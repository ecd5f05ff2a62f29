package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Places are put into two rings and taken out, from the front and from anywhere. Each ring has the order of a
// slice.
func TestRingBesideASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := make([]Place[int], rapid.IntRange(1, 10).Draw(t, "places"))
		for i := range places {
			places[i].Owner = i
		}
		var rings [2]Ring[int]
		var twins [2][]int
		anyPlace, anyRing := rapid.IntRange(0, len(places)-1), rapid.IntRange(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				i, r := anyPlace.Draw(t, "place"), anyRing.Draw(t, "ring")
				if places[i].In() == nil {
					rings[r].Push(&places[i])
					twins[r] = append(twins[r], i)
				}
			},
			"pop": func(t *rapid.T) {
				r := anyRing.Draw(t, "ring")
				p := rings[r].Pop()
				if (p == nil) != (len(twins[r]) == 0) {
					t.Fatalf("pop of ring %d gives %v, want the first of %v", r, p, twins[r])
				}
				if p == nil {
					return
				}
				if p.Owner != twins[r][0] || p.In() != nil {
					t.Fatalf("pop of ring %d gives %d, still in a ring: %t; want %d", r, p.Owner, p.In() != nil, twins[r][0])
				}
				twins[r] = twins[r][1:]
			},
			"leave": func(t *rapid.T) {
				i := anyPlace.Draw(t, "place")
				places[i].Leave() // in none, it does nothing
				for r := range twins {
					twins[r] = slices.DeleteFunc(twins[r], func(o int) bool { return o == i })
				}
			},
			"": func(t *rapid.T) {
				for r := range rings {
					have, back := []int{}, []int{}
					for p := rings[r].First(); p != nil; p = p.Next() {
						have = append(have, p.Owner)
						if p.In() != &rings[r] {
							t.Fatalf("place %d of ring %d says that it is in another one", p.Owner, r)
						}
					}
					for p := rings[r].last; p != nil; p = p.prev {
						back = append(back, p.Owner)
					}
					slices.Reverse(back)
					if !slices.Equal(have, twins[r]) || !slices.Equal(back, twins[r]) || rings[r].Len() != len(twins[r]) {
						t.Fatalf("ring %d has %v, backwards %v, and counts %d; want %v", r, have, back, rings[r].Len(), twins[r])
					}
				}
			},
		})
	})
}
