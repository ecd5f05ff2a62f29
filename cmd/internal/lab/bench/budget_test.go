package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// rowsOf are the rows of a pipeline that follows the model.
func rowsOf(name string, perRound, perCommand float64) (rows []report.Result) {
	for clients, x := range map[int]float64{1: 1, 16: 9, 100: 52, 1000: 395} {
		rows = append(rows, report.Result{
			Pipeline: name, Hosts: 3, Clients: clients, Ops: 100, FsyncsPerOp: 3 / x, CPUUsPerOp: perRound/x + perCommand, AllocsPerOp: 2, EntriesPerOp: 3,
		})
	}
	return rows
}

func TestFitOfTheModel(t *testing.T) {
	perRound, perCommand, ok := fit(rowsOf(BareName, 249, 4))
	if !ok || math.Abs(perRound-249) > 1e-6 || math.Abs(perCommand-4) > 1e-6 {
		t.Errorf("R %v, k %v, %v; want 249, 4", perRound, perCommand, ok)
	}
	if _, _, ok := fit(rowsOf(BareName, 249, 4)[:1]); ok {
		t.Error("one load tells R and k apart")
	}
	if _, _, ok := fit(nil); ok {
		t.Error("no load tells R and k apart")
	}
}

func TestBudgets(t *testing.T) {
	r := Report{Rows: append(rowsOf(BareName, 200, 4), rowsOf("async", 400, 8)...)}
	var b strings.Builder
	r.writeBudgets(&b)
	for _, want := range []string{"bare R 200 µs, k 4.0 µs", "R 400 µs, k 8.0 µs; ÷ bare's 2.00, 2.00", "104.0; 2.00", "156.0; 3.00"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// What commands share is written for the rows that count it: writes, frames and turns of a round, bytes of
// headers, and the heap.
func TestSharing(t *testing.T) {
	row := report.Result{
		Pipeline: GroupsName, Hosts: 3, Clients: 1000, ValueBytes: 32, Ops: 100, FsyncsPerOp: 3.0 / 400, AppendsPerOp: 0.0075, FramesPerOp: 0.1,
		TurnsPerOp: 0.4, LogBytesPerOp: 240, SentBytesPerOp: 94, HeapLiveBytes: 70e6, HeapGoalBytes: 140e6,
	}
	r := Report{Rows: append(rowsOf(BareName, 200, 4), row)}
	var b strings.Builder
	r.writeBudgets(&b)
	for _, want := range []string{"async+groups, 1,000 clients", "3.0; 0.007", "40.0; 0.100", "160.0; 0.400", "48.0", "15.0", "70 MB", "140 MB"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
