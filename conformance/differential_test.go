package conformance

import (
	"flag"
	"maps"
	"slices"
	"testing"
)

var (
	duelSeeds = flag.Uint64("duel-seeds", 300, "scripts to play in TestDifferential")
	duelFirst = flag.Uint64("duel-first", 1, "seed of the first of them")
)

// TestDifferential plays the same scripts to our core and to etcd-io/raft's: the same visible behaviour, but for what
// docs/divergence.md lists.
func TestDifferential(t *testing.T) {
	listed, parted, counts := map[exception]int{}, map[exception]int{}, map[string]int{}
	failed := 0
	for seed := *duelFirst; seed < *duelFirst+*duelSeeds && failed < 5; seed++ {
		d := newDuel(seed)
		where, err := d.play(3000)
		if err != nil {
			t.Error(err)
			failed++
		}
		if where != "" {
			parted[where]++
		}
		for e, n := range d.listed {
			listed[e] += n
		}
		for what, n := range d.counts {
			counts[what] += n
		}
		counts["a step"] += d.steps
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d  %s", counts[what], what)
	}
	for e, row := range rows {
		t.Logf("%8d  (parted %d) %s: %s", listed[e], parted[e], e, row)
	}
}
