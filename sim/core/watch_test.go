package core

import (
	"strings"
	"testing"
)

// A watcher sees every step, and changes nothing.
func TestWatchersChangeNothing(t *testing.T) {
	watched := 0
	for seed := uint64(1); seed <= 12; seed++ {
		if !SettingsOf(seed).Async {
			continue
		}
		watched++
		alone, err := Run(Options{Seed: seed, Ticks: 60})
		if err != nil {
			t.Fatal(err)
		}
		var kinds [EventCrash + 1]int
		terms := map[uint64]uint64{}
		report, err := Run(Options{Seed: seed, Ticks: 60, Watch: func(e *Event) {
			kinds[e.Kind]++
			if e.Kind != EventCrash && e.Status.ID != e.Node {
				t.Errorf("seed %d: event %+v has the status of node %d", seed, e, e.Status.ID)
			}
			if e.Kind == EventCrash {
				terms[e.Node] = e.Disk.Hard.Term
			} else if e.Status.Term < terms[e.Node] {
				t.Errorf("seed %d: node %d is in term %d, and its disk had term %d", seed, e.Node, e.Status.Term, terms[e.Node])
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if report != alone {
			t.Errorf("with a watcher: %v\nwithout: %v", report, alone)
		}
		if kinds[EventStart] == 0 || kinds[EventStep] == 0 || kinds[EventReady] == 0 || kinds[EventSync] == 0 {
			t.Errorf("seed %d: events by kind: %v", seed, kinds)
		}
		if kinds[EventCrash] != report.Faults[Crashed] {
			t.Errorf("seed %d: %d crashes were told, and there were %d", seed, kinds[EventCrash], report.Faults[Crashed])
		}
	}
	if watched == 0 {
		t.Error("no seed could be watched")
	}
}

// A run in synchronous mode cannot be watched, and says so.
func TestSynchronousRunsAreNotWatched(t *testing.T) {
	for seed := uint64(1); ; seed++ {
		if SettingsOf(seed).Async {
			continue
		}
		if _, err := Run(Options{Seed: seed, Watch: func(*Event) {}}); err == nil || !strings.Contains(err.Error(), "cannot be watched") {
			t.Errorf("seed %d: have %v", seed, err)
		}
		return
	}
}
