package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var rescues = flag.Uint64("rescues", 30, "run TestRescues with this many seeds")

// TestRescues: a majority is lost for good, and one survivor goes on as a new cluster: with all that it had,
// without losing anything acknowledged since, and apart from every host of the old one.
func TestRescues(t *testing.T) {
	var interrupted, doubtful, lost, apart, returned, majority, snapshots, oldAcked, newAcked int
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for seed := uint64(1); seed <= *rescues; seed++ {
		r, err := sim.Rescues(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		count(&interrupted, r.Interrupted > 0)
		count(&doubtful, r.Doubtful > 0)
		count(&lost, r.Lost > 0)
		count(&apart, r.Apart)
		count(&returned, r.Returned)
		count(&majority, r.Majority)
		count(&snapshots, r.Snapshot)
		oldAcked += r.OldAcked
		newAcked += r.NewAcked
	}
	t.Logf("%d seeds: rescues were interrupted in %d, began with a snapshot in %d, and had entries in doubt in %d; acknowledged commands were lost with the majority in %d; two were rescued apart in %d; old members came back in %d, a majority of them in %d; afterwards the old clusters acknowledged %d commands, the new ones %d",
		*rescues, interrupted, snapshots, doubtful, lost, apart, returned, majority, oldAcked, newAcked)
	for name, n := range map[string]int{"interrupted": interrupted, "snapshots": snapshots, "doubtful": doubtful, "lost": lost, "apart": apart, "returned": returned, "majority": majority} {
		if *rescues >= 100 && n < 5 {
			t.Errorf("%s: only %d runs", name, n)
		}
	}
}
