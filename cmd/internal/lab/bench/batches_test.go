package bench

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// One goroutine keeps writes under way at a host that does not lead at first: they go to the leader, and each
// acknowledged one is there once.
func TestBatchesFollowTheLeader(t *testing.T) {
	target, err := Targets().open(t.Context(), load.Setup{Pipeline: BatchName, Hosts: 3, Dir: t.TempDir(), Durability: wal.ModeMemory, ValueBytes: 64, InFlight: 20, Brief: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := target.(*cluster)
	leads, ledger := c.leaders[0].at.Load(), &load.Ledger{}
	for length := range labtest.Lengths(20 * time.Millisecond) {
		c.leaders[0].Set(int(leads+1) % 3)
		w := load.Window{Source: load.NewSource(64, 1), Length: length, Generator: load.Batched{Outstanding: 20}, Observer: report.Silence{}, Ledger: ledger}
		o, err := w.Run(context.Background(), target)
		if err != nil || o.Failed > 0 {
			t.Fatalf("%d failed: %v", o.Failed, err)
		}
		if o.Completed > 20 {
			break
		}
	}
	if at := c.leaders[0].at.Load(); at != leads {
		t.Errorf("values go to host %d, and host %d leads", at+1, leads+1)
	}
}
