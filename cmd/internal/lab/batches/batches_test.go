package batches

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/sim"
)

func brief() Plan {
	return Plan{
		Delays: []time.Duration{50 * time.Microsecond, 5 * time.Millisecond}, Syncs: []time.Duration{time.Millisecond}, Clients: []int{2, 8}, Shares: []int{50},
		ValueBytes: 1024, RunUp: 1, Ops: 40, Runs: 1, Processors: 2, CostFactor: 100, Seed: 1,
	}
}

// The whole way, on real hosts: each rule has a row under each load, in the order of the plan.
func TestRun(t *testing.T) {
	p := brief()
	r, err := Run(t.Context(), p, report.Silence{})
	if err != nil || r.Partial || len(r.Rows) != 2*3*len(contenders) || len(r.Standings) != len(contenders) {
		t.Fatalf("%d rows, %d standings, partial %v, %v", len(r.Rows), len(r.Standings), r.Partial, err)
	}
	for i, row := range r.Rows {
		c := contenders[i%len(contenders)]
		if row.Rule != c.name || row.OpsPerSec == 0 || row.P99Us < row.DelayUs*2+row.SyncUs || row.P99Us < row.P50Us || row.CPUUsPerOp == 0 || row.Ratio < 1 {
			t.Errorf("row %d: %+v", i, row)
		}
		if open := i/len(contenders)%3 == 2; open != (row.Clients == 0 && row.Rate > 0) {
			t.Errorf("row %d: %+v", i, row.Load)
		}
	}
	labtest.Written(t, r)
}

// The open loop offers a part of the best rate of the closed loops, whichever rule reached it.
func TestOpenLoopRate(t *testing.T) {
	p := brief()
	rows, err := p.measure(t.Context(), p.places()[0])
	if err != nil {
		t.Fatal(err)
	}
	best := 0.0
	for _, row := range rows {
		if row.Clients > 0 {
			best = max(best, row.OpsPerSec)
		}
	}
	if last := rows[len(rows)-1]; math.Abs(last.Rate-best/2) > 1e-6*best || math.Abs(last.OpsPerSec/last.Rate-1) > 0.5 {
		t.Errorf("%.0f of %.0f writes/s, where the best is %.0f", last.OpsPerSec, last.Rate, best)
	}
}

// row returns a row of a made-up report.
func row(rule string, syncUs float64, clients int, p99 float64) Row {
	return Row{DelayUs: 50, SyncUs: syncUs, Load: Load{Clients: clients}, Rule: rule, OpsPerSec: 1e6 / p99, MeanUs: p99 / 2, P50Us: p99 / 2, P99Us: p99, PerBatch: 3.5, PerSync: 7, CPUUsPerOp: 10, Held: 2}
}

func someReport() *Report {
	p := brief()
	p.Delays, p.Syncs, p.Clients, p.Shares = p.Delays[:1], []time.Duration{250 * time.Microsecond, 5 * time.Millisecond}, []int{16, 1000}, nil
	r := &Report{Plan: p, Rows: []Row{
		row("at once", 250, 16, 600), row("depth 1", 250, 16, 900), row("halfway", 250, 16, 630),
		row("at once", 250, 1000, 2000), row("depth 1", 250, 1000, 1000), row("halfway", 250, 1000, 4000),
		row("at once", 5000, 16, 10_000), row("depth 1", 5000, 16, 20_000), row("halfway", 5000, 16, 10_100),
		row("at once", 5000, 1000, 11_000), row("depth 1", 5000, 1000, 33_000), row("halfway", 5000, 1000, 11_000),
	}}
	r.rank()
	return r
}

// The sums, by hand: at once 1+2+1+1, depth 1 1.5+1+2+3, halfway 1.05+4+1.01+1.
func TestRank(t *testing.T) {
	r := someReport()
	for i, want := range []struct {
		rule          string
		sum, worst    float64
		best          float64
		ahead, behind int
	}{
		{"at once", 5, 2, 1, 0, 0}, {"halfway", 7.06, 4, 1, 0, 2}, {"depth 1", 7.5, 3, 0.5, 1, 3},
	} {
		s := r.Standings[i]
		if s.Rule != want.rule || math.Abs(s.Sum-want.sum) > 1e-9 || s.Worst != want.worst || s.Best != want.best || s.Ahead != want.ahead || s.Behind != want.behind || s.Cells != 4 {
			t.Errorf("place %d: %+v, want %+v", i+1, s, want)
		}
	}
	if at := r.Standings[2].BestAt; at.SyncUs != 250 || at.Clients != 1000 {
		t.Errorf("the best cell of depth 1: %+v", at)
	}
	if rate := r.Standings[2].Rate; math.Abs(rate-math.Pow(600.0/900*2/2*1/3, 0.25)) > 1e-9 {
		t.Errorf("throughput to the winner's %v", rate)
	}
}

func TestMedian(t *testing.T) {
	runs := []sim.BatchResult{{P99: 3, PerSync: 1}, {P99: 1, PerSync: 2}, {P99: 2, PerSync: 3}}
	if m := median(runs); m.PerSync != 3 {
		t.Errorf("%+v", m)
	}
	if m := median(runs[:2]); m.P99 != 1 {
		t.Errorf("of two: %+v", m)
	}
}

func TestReport(t *testing.T) {
	r := someReport()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"batches.txt": func(b *bytes.Buffer) error { return r.WriteTable(b) },
		"cells.txt":   func(b *bytes.Buffer) error { return r.writeCells(b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		labtest.Golden(t, name, out.Bytes())
	}
}

// An interrupt leaves the places that are finished, marked partial.
func TestInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p := brief()
	for range 2 * runtime.GOMAXPROCS(0) { // more than are measured at a time
		p.Syncs = append(p.Syncs, time.Duration(len(p.Syncs))*time.Millisecond)
	}
	r, err := Run(ctx, p, interrupter{end: func() { cancel(interrupted) }})
	if !errors.Is(err, interrupted) || r == nil || !r.Partial || len(r.Rows) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// interrupter ends a run when a place is finished.
type interrupter struct {
	report.Silence
	end func()
}

func (i interrupter) Point(int, string, time.Duration) { i.end() }
