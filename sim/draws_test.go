package sim

import (
	"strings"
	"testing"
	"time"
)

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

// A violation says how to repeat the run: the test that has made it, and its seed.
func TestViolationNamesItsReplay(t *testing.T) {
	for want, v := range map[string]*Violation{
		"-run TestSeeds -count=1 -seed=7 -events":                {Seed: 7, Faults: defaultFaults},
		"-run TestRests -count=1 -first=7 -rest-seeds=1 -events": {Seed: 7, Faults: defaultFaults, rests: true},
	} {
		if text := v.Error(); !strings.HasSuffix(text, want) {
			t.Errorf("%q, want it to end with %q", text, want)
		}
	}
}

// A property that is broken in a function that a host calls ends the run, although the host recovers from the
// panic.
func TestViolationInAListenerEndsTheRun(t *testing.T) {
	w := newWorld(Options{Seed: 1})
	after := false
	w.plan(time.Millisecond, "an event is heard", nil, func() {
		defer func() { _ = recover() }()
		w.violate("the listener does not like it")
	})
	w.plan(2*time.Millisecond, "the run goes on", nil, func() { after = true })
	defer func() {
		if v, ours := recover().(*Violation); !ours || v.At != time.Millisecond || after {
			t.Errorf("the run ends with %v, and after the violation it goes on: %v", v, after)
		}
	}()
	w.pass(time.Second)
}
