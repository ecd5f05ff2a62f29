package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// Both rows of the typed face have each acknowledged write once on every host.
func TestTypedFace(t *testing.T) {
	for name, clients := range map[string]load.Generator{TypedName: load.Closed{Clients: 4}, TypedBatchName: load.Batched{Outstanding: 20}} {
		t.Run(name, func(t *testing.T) {
			target, err := Targets().open(t.Context(), load.Setup{Pipeline: name, Hosts: 3, Dir: t.TempDir(), Durability: wal.ModeMemory, ValueBytes: 64, InFlight: 20, Brief: true, Seed: 1})
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
				w := load.Window{Source: load.NewSource(64, 1), Length: length, Generator: clients, Observer: report.Silence{}, Ledger: ledger}
				o, err := w.Run(context.Background(), target)
				if err != nil || o.Failed > 0 {
					t.Fatalf("%d failed: %v", o.Failed, err)
				}
				if o.Completed > 20 {
					break
				}
			}
			if err := target.Verify(t.Context(), ledger); err != nil {
				t.Error(err)
			}
		})
	}
}

// The face is compared with the bytes of the same load, and only where both were measured.
func TestTypedLine(t *testing.T) {
	rows := map[string]report.Result{
		"async": {OpsPerSec: 100, CPUUsPerOp: 10}, TypedName: {OpsPerSec: 90, CPUUsPerOp: 12}, TypedBatchName: {OpsPerSec: 1, CPUUsPerOp: 1},
	}
	if line := typedLine(rows); line != "typed ÷ async: throughput 0.90  CPU 1.20" {
		t.Errorf("%q", line)
	}
	delete(rows, "async")
	if line := typedLine(rows); strings.TrimSpace(line) != "" {
		t.Errorf("%q with nothing to compare with", line)
	}
}
