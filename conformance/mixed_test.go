package conformance

import (
	"flag"
	"maps"
	"slices"
	"testing"
)

// Mixed clusters: our nodes and etcd-io/raft's in one cluster, as in a rolling upgrade from one to the other. Every message
// between them is bytes that one codec wrote and the other reads.

const ourKind, kind36 = "ours", "v3.6.0"

var (
	mixedSeeds = flag.Uint64("mixed-seeds", 300, "clusters to play in TestMixedClusters")
	mixedFirst = flag.Uint64("mixed-first", 1, "seed of the first of them")
)

// TestMixedClusters plays seeded histories: elections, transfers, proposals, reads, changes of members, compaction and
// snapshots, crashes, in both storage modes on both sides, over a network that loses, repeats and overtakes.
func TestMixedClusters(t *testing.T) {
	seeds := *mixedSeeds
	if testing.Short() {
		seeds = min(seeds, 30)
	}
	cores := makes{ourKind: newOurCore, kind36: newTheirCore}
	counts := map[string]int{}
	for seed := *mixedFirst; seed < *mixedFirst+seeds; seed++ {
		w := newWorld(seed, cores, func(id uint64) string { return []string{ourKind, kind36}[(id+seed)%2] })
		if err := w.run(4000); err != nil {
			t.Error(err)
		}
		for what, n := range w.counts {
			counts[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%6d  %s", counts[what], what)
	}
	for _, what := range []string{
		"an election won by", "a change of members applied by", "a snapshot installed by", "a read answered to", "a restart of", "a log compacted by",
	} {
		for _, kind := range []string{ourKind, kind36} {
			if what := what + " " + kind; counts[what] == 0 {
				t.Errorf("in %d clusters there was not once %s", seeds, what)
			}
		}
	}
}
