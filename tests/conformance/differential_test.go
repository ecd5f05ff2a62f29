package conformance

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

const defaultDuels = 400

var (
	duelSeeds = flag.Uint64("duel-seeds", defaultDuels, "scripts to play in TestDifferential")
	duelFirst = flag.Uint64("duel-first", 1, "seed of the first of them")
)

const duelSteps = 3000

// TestDifferential plays the same scripts to our core and to etcd-io/raft's, in both storage modes. Their
// visible behaviour must be the same, except for what docs/divergence.md lists. Asynchronous storage workers
// are executed at once.
//
// Left out is what cannot be the same for some time: ReadOnlyLeaseBased, MaxSizePerMsg = 0, and messages that
// no correct peer sends.
func TestDifferential(t *testing.T) {
	seeds := *duelSeeds
	if testing.Short() {
		seeds = min(seeds, 30)
	}
	listed, counts := map[exception]int{}, map[string]int{}
	for seed := *duelFirst; seed < *duelFirst+seeds; seed++ {
		d := newDuel(seed, newTwin)
		parted, err := d.play(duelSteps)
		if err != nil {
			t.Fatal(err)
		}
		if parted != "" {
			counts["a script that ended early: "+string(parted)]++
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
	for _, e := range slices.Sorted(maps.Keys(rows)) {
		t.Logf("%8d  excused: %s", listed[e], e)
		if listed[e] == 0 && *duelFirst == 1 && seeds >= defaultDuels {
			t.Errorf("in %d scripts no difference needed the exception %q; the list is longer than the truth", seeds, e)
		}
	}
}

// TestExceptionsAreListed checks that each exception has a row that our users can read.
func TestExceptionsAreListed(t *testing.T) {
	for e, row := range rows {
		if !isDivergenceRow(t, row) {
			t.Errorf("%s: docs/divergence.md has no row %q", e, row)
		}
	}
}

// TestDuelFindsADifference checks that two nodes that differ are found, with the seed and the step.
func TestDuelFindsADifference(t *testing.T) {
	for what, change := range map[string]func(*settings){
		"a larger window":           func(s *settings) { s.maxInflightMsgs++ },
		"larger messages":           func(s *settings) { s.maxSizePerMsg, s.maxInflightBytes = s.maxSizePerMsg+50, 0 },
		"pre-vote or not":           func(s *settings) { s.preVote = !s.preVote },
		"a quorum checked or not":   func(s *settings) { s.checkQuorum = !s.checkQuorum },
		"forwards or not":           func(s *settings) { s.disableForwarding = !s.disableForwarding },
		"larger batches to apply":   func(s *settings) { s.maxCommittedSizePerReady += 40 },
		"steps down or not":         func(s *settings) { s.stepDownOnRemoval = !s.stepDownOnRemoval },
		"a longer election timeout": func(s *settings) { s.electionTicks++ },
	} {
		t.Run(what, func(t *testing.T) {
			for seed := uint64(1); seed <= 20; seed++ {
				d := newDuel(seed, func(s settings, founders []uint64) *twin {
					other := s
					change(&other)
					return pairUp(s, founders, newOurCore(s), newTheirCore(other))
				})
				if _, err := d.play(duelSteps); err != nil {
					if !strings.Contains(err.Error(), "ours") || !strings.Contains(err.Error(), "step") {
						t.Errorf("have %v, want both sides and the step", err)
					}
					return
				}
			}
			t.Error("20 scripts found no difference")
		})
	}
}
