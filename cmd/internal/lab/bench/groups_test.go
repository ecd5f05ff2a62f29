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

// Clients of several groups: each write is once in the group of its client, on every host, and the hosts
// count what they do for all groups together.
func TestSeveralGroups(t *testing.T) {
	const groups, clients = 3, 12
	target, err := Targets().open(t.Context(), load.Setup{Pipeline: GroupsName, Groups: groups, Hosts: 3, Dir: t.TempDir(), Durability: wal.ModeMemory, ValueBytes: 64, InFlight: clients, Brief: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	}()
	ledger := &load.Ledger{}
	for length := range labtest.Lengths(20 * time.Millisecond) {
		w := load.Window{Source: load.NewSource(64, 1), Length: length, Generator: load.Closed{Clients: clients}, Observer: report.Silence{}, Ledger: ledger}
		o, err := w.Run(context.Background(), target)
		if err != nil || o.Failed > 0 {
			t.Fatalf("%d failed: %v", o.Failed, err)
		}
		if o.Completed > clients {
			break
		}
	}
	for of, machines := range target.(*cluster).machines {
		for host, m := range machines {
			if m.State().Entries == 0 {
				t.Errorf("host %d has no command of group %d", host+1, of+1)
			}
		}
	}
	if c := target.Counters(); c.Turns == 0 || c.Frames == 0 || c.LogBytes < 3*64 || c.SentBytes < 2*64 {
		t.Errorf("counters %+v", c)
	}
}
