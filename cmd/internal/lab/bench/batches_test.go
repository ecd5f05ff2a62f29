package bench

import (
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// One goroutine keeps writes under way at a host that does not lead at first: they go to the leader, and each
// acknowledged one is there once.
func TestBatchesFollowTheLeader(t *testing.T) {
	target := openBrief(t, load.Setup{Pipeline: BatchName, InFlight: 20})
	c := target.(*cluster)
	leads, ledger := c.leaders[0].at.Load(), &load.Ledger{}
	runWindows(t, target, load.Batched{Outstanding: 20}, ledger, 20, func() { c.leaders[0].Set(int(leads+1) % 3) })
	if at := c.leaders[0].at.Load(); at != leads {
		t.Errorf("values go to host %d, and host %d leads", at+1, leads+1)
	}
}
