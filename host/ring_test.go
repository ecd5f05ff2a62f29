package host

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Places are put into two rings and taken out, from the front and from anywhere. Each ring has the order of a
// slice.
func TestRingBesideASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := make([]place[int], rapid.IntRange(1, 10).Draw(t, "places"))
		for i := range places {
			places[i].owner = i
		}
		var rings [2]ring[int]
		var twins [2][]int
		anyPlace, anyRing := rapid.IntRange(0, len(places)-1), rapid.IntRange(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				i, r := anyPlace.Draw(t, "place"), anyRing.Draw(t, "ring")
				if places[i].in == nil {
					rings[r].push(&places[i])
					twins[r] = append(twins[r], i)
				}
			},
			"pop": func(t *rapid.T) {
				r := anyRing.Draw(t, "ring")
				p := rings[r].pop()
				if (p == nil) != (len(twins[r]) == 0) {
					t.Fatalf("pop of ring %d gives %v, want the first of %v", r, p, twins[r])
				}
				if p == nil {
					return
				}
				if p.owner != twins[r][0] || p.in != nil {
					t.Fatalf("pop of ring %d gives %d, still in a ring: %t; want %d", r, p.owner, p.in != nil, twins[r][0])
				}
				twins[r] = twins[r][1:]
			},
			"leave": func(t *rapid.T) {
				i := anyPlace.Draw(t, "place")
				places[i].leave() // in none, it does nothing
				for r := range twins {
					twins[r] = slices.DeleteFunc(twins[r], func(o int) bool { return o == i })
				}
			},
			"": func(t *rapid.T) {
				for r := range rings {
					have, back := []int{}, []int{}
					for p := rings[r].first; p != nil; p = p.next {
						have = append(have, p.owner)
						if p.in != &rings[r] {
							t.Fatalf("place %d of ring %d says that it is in another one", p.owner, r)
						}
					}
					for p := rings[r].last; p != nil; p = p.prev {
						back = append(back, p.owner)
					}
					slices.Reverse(back)
					if !slices.Equal(have, twins[r]) || !slices.Equal(back, twins[r]) || rings[r].n != len(twins[r]) {
						t.Fatalf("ring %d has %v, backwards %v, and counts %d; want %v", r, have, back, rings[r].n, twins[r])
					}
				}
			},
		})
	})
}
