package sim

import (
	"testing"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// A founder whose disk hangs applies what the others have committed, while its own log is empty. Then it must
// start again with the whole founding list, or the others refuse it (TestSeeds, seed 3698). With that list
// they hear it, also after a start with a shorter one.
func TestAListCountsUntilTheLogHasAnEntry(t *testing.T) {
	told := 0
	for seed := uint64(1); seed <= 300; seed++ {
		w := newWorld(Options{Seed: seed, churn: true})
		if !w.churn.strangers.named || !w.groupConfig.Volatile {
			continue
		}
		told++
		w.nemesis.stopped = true
		w.startHosts()
		w.meet()
		h := w.hosts[1]
		h.stallUntil = w.now + healTime
		if !w.runUntil(w.now+time.Second, func() bool { return len(h.reached) > 0 }) || h.logged {
			t.Fatalf("seed %d: host %d has applied %v, its log has entries: %t", seed, h.id, h.reached, h.logged)
		}
		h.crash(crashfs.LoseNothing)
		h.stallUntil = 0
		if told%2 == 0 { // an operator shortens it too early, and corrects that
			h.logged = true
			h.start()
			if w.runUntil(w.now+time.Second, func() bool { return w.groupConverged(w.ghosts[0]) }) {
				t.Fatalf("seed %d: host %d, with an empty log and another list, is heard: %s", seed, h.id, w.positions())
			}
			h.crash(crashfs.LoseNothing)
			h.logged = false
		}
		h.start()
		if !w.runUntil(w.now+time.Second, func() bool { return w.groupConverged(w.ghosts[0]) }) {
			t.Fatalf("seed %d: host %d is not taken back: %s", seed, h.id, w.positions())
		}
	}
	if told == 0 {
		t.Error("no seed has shorter lists and applies before entries are durable")
	}
}
