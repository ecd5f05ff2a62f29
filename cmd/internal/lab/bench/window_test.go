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

// openBrief opens three hosts in memory for values of 64 bytes. The test closes them.
func openBrief(t *testing.T, s load.Setup) load.Target {
	t.Helper()
	s.Hosts, s.Dir, s.Durability, s.ValueBytes, s.Brief, s.Seed = 3, t.TempDir(), wal.ModeMemory, 64, true, 1
	target, err := Targets().open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target
}

// runWindows loads a target in longer and longer windows, until one has more writes than this. before, if it
// is set, is called before each of them.
func runWindows(t *testing.T, target load.Target, g load.Generator, ledger *load.Ledger, writes uint64, before func()) {
	t.Helper()
	for length := range labtest.Lengths(20 * time.Millisecond) {
		if before != nil {
			before()
		}
		w := load.Window{Source: load.NewSource(64, 1), Length: length, Generator: g, Observer: report.Silence{}, Ledger: ledger}
		o, err := w.Run(context.Background(), target)
		if err != nil || o.Failed > 0 {
			t.Fatalf("%d failed: %v", o.Failed, err)
		}
		if o.Completed > writes {
			return
		}
	}
}
