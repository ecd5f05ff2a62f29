package load

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The naive twin of a set of sequences is a map.
func TestSequencesAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sequences
		naive := map[uint64]bool{}
		next := uint64(0)
		for range rapid.IntRange(0, 400).Draw(t, "adds") {
			i := next
			switch rapid.IntRange(0, 9).Draw(t, "order") {
			case 0:
				i = rapid.Uint64Range(0, 300).Draw(t, "any")
			case 1: // what was left out comes later, or never
				next += rapid.Uint64Range(1, 70).Draw(t, "gap")
				i = next
			}
			next = max(next, i+1)
			if added := s.add(i); added == naive[i] {
				t.Fatalf("add(%d) = %v, and the set has it: %v", i, added, naive[i])
			}
			naive[i] = true
		}
		compareSets(t, &s, naive)
		copied := sequencesOf(s.bitmap())
		compareSets(t, &copied, naive)
	})
}

func compareSets(t *rapid.T, s *sequences, naive map[uint64]bool) {
	all := slices.Sorted(maps.Keys(naive))
	if have := s.count(); have != uint64(len(all)) {
		t.Fatalf("count %d, want %d", have, len(all))
	}
	last, ok := s.last()
	if ok != (len(all) > 0) || ok && last != all[len(all)-1] {
		t.Fatalf("last %d %v of %v", last, ok, all)
	}
	var have []uint64
	for w, word := range s.bitmap() {
		for bit := range 64 {
			if word&(1<<bit) != 0 {
				have = append(have, uint64(w*64+bit))
			}
		}
	}
	if !slices.Equal(have, all) {
		t.Fatalf("the words hold %v, want %v", have, all)
	}
}
