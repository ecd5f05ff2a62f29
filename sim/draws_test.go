package sim

import "testing"

// What a seed draws for calls says nothing about what it draws for reads: all four pairs occur.
func TestCallsAndLeasesAreDrawnApart(t *testing.T) {
	pairs := map[[2]bool]int{}
	for seed := uint64(1); seed <= 64; seed++ {
		w := newWorld(Options{Seed: seed})
		if w.calls != nil {
			pairs[[2]bool{w.calls.Sessions.Expiry > 0, w.groupConfig.Leases}]++
		}
	}
	if len(pairs) < 4 {
		t.Errorf("of 64 seeds with small sessions, and with leases, there are only %v", pairs)
	}
}
