package conformance

import (
	"flag"
	"maps"
	"slices"
	"testing"
)

// Mixed clusters: our nodes and etcd-io/raft's, of both its versions, in one cluster, as in a rolling upgrade
// from one to the other. Every message between them is bytes that one codec wrote and the other reads.

const ourKind, kind36, kind37 = "ours", "v3.6.0", "v3.7.0"

// mixtures are the combinations of libraries in the clusters, in turn. A cluster with v3.7.0 takes several
// times as long, because the test communicates with v3.7.0 over pipes.
var mixtures = [][]string{{ourKind, kind36}, {ourKind, kind36, kind37}, {ourKind, kind36}, {ourKind, kind37}}

var (
	mixedSeeds = flag.Uint64("mixed-seeds", 300, "clusters to play in TestMixedClusters")
	mixedFirst = flag.Uint64("mixed-first", 1, "seed of the first of them")
)

// TestMixedClusters plays seeded histories: elections, transfers, proposals, reads, membership changes,
// compaction and snapshots, crashes, in both storage modes on both sides, over a network that loses, repeats
// and overtakes.
func TestMixedClusters(t *testing.T) {
	seeds := *mixedSeeds
	if testing.Short() {
		seeds = min(seeds, 30)
	}
	child, err := startChild37()
	if err != nil {
		t.Fatal(err)
	}
	cores := makes{ourKind: newOurCore, kind36: newTheirCore, kind37: newCore37(child)}
	counts := map[string]int{}
	for seed := *mixedFirst; seed < *mixedFirst+seeds; seed++ {
		kinds := mixtures[seed%uint64(len(mixtures))]
		w := newWorld(seed, cores, func(id uint64) string { return kinds[(id+seed/4)%uint64(len(kinds))] })
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
		for _, kind := range []string{ourKind, kind36, kind37} {
			if what := what + " " + kind; counts[what] == 0 {
				t.Errorf("in %d clusters there was not once %s", seeds, what)
			}
		}
	}
}
