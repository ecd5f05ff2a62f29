package bench

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Both rows of the typed face have each acknowledged write once on every host.
func TestTypedFace(t *testing.T) {
	for name, clients := range map[string]load.Generator{TypedName: load.Closed{Clients: 4}, TypedBatchName: load.Batched{Outstanding: 20}} {
		t.Run(name, func(t *testing.T) {
			target := openBrief(t, load.Setup{Pipeline: name, InFlight: 20})
			ledger := &load.Ledger{}
			runWindows(t, target, clients, ledger, 20, nil)
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
