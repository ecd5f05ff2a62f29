package sim

import (
	"testing"

	"github.com/millrace/millrace/sim/coverage"
)

// Where members install no snapshots, no host may lose a part of its log behind its own snapshot.
func TestWhoNeedsItsLog(t *testing.T) {
	var needs int
	for seed := range uint64(400) {
		w := newWorld(Options{Seed: seed})
		if !w.needsLogs() {
			continue
		}
		needs++
		if w.mode.Unsafe() || w.mayHit(coverage.BitFlip) || w.mayHit(coverage.MisdirectedWrite) {
			t.Errorf("seed %d: pipeline %s, mode %v, and a leader may lack what a member needs", seed, w.pipeline.Name(), w.mode)
		}
	}
	if needs == 0 {
		t.Error("no seed takes snapshots with a pipeline that installs none")
	}
}
