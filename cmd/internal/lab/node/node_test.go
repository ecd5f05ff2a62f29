package node

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

func brief(dir string) Plan {
	return Plan{Clients: []int{2, 5}, Ways: AllWays, ValueBytes: 64, Hosts: 3, Duration: 10 * time.Millisecond, Warmup: time.Millisecond, Runs: 2, Dir: dir, Seed: 1}
}

func someReport() *Report {
	p := brief("")
	p.Clients, p.Ways, p.ValueBytes, p.Duration, p.Warmup, p.Runs = []int{100}, []Way{Bytes, Committed, Read, Lease}, 1024, 2*time.Second, 500*time.Millisecond, 3
	r := &Report{Plan: p, Env: labtest.Somewhere}
	runs := make([][]Result, len(p.Ways))
	for run := range p.Runs {
		for i, w := range p.Ways {
			x := float64(i+1) * float64(run+5)
			row := Result{Way: w, Result: report.Result{Pipeline: w.String(), Hosts: 3, Clients: 100, ValueBytes: 1024, OpsPerSec: 10_000 * x, CPUUsPerOp: 40 / x, AllocsPerOp: 4 + 0.1*float64(i), Runs: 1, Warnings: []string{}}}
			if w.asks() {
				row.MeanUs, row.P50Us, row.P99Us = 1000/x, 900/x, 4000/x
			}
			runs[i] = append(runs[i], row)
		}
	}
	r.Rows = compare(runs)
	return r
}

func TestReportForPeopleAndPrograms(t *testing.T) {
	r := someReport()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"node.txt":  func(b *bytes.Buffer) error { return r.WriteTable(b) },
		"node.json": func(b *bytes.Buffer) error { return r.WriteJSON(b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		labtest.Golden(t, name, out.Bytes())
	}
}

// Leaders that another host has taken over while the machine was busy are brought back: asking to be elected
// does not help while the followers hear the other one.
func TestLeadersComeBack(t *testing.T) {
	c, err := openCluster(t.Context(), 3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bench.CloseHosts(c.hosts); err != nil {
			t.Error(err)
		}
	}()
	for _, id := range []uint64{bytesGroup, typedGroup} {
		if err := c.hosts[0].Group(id).TransferLeadership(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.awaitLeaders(t.Context()); err != nil || !c.leads(bytesGroup) || !c.leads(typedGroup) {
		t.Errorf("after the leaders had moved: %v", err)
	}
}

// A ratio is of windows of one run, and the row has the median of the runs' ratios.
func TestRatiosAreOfOneRun(t *testing.T) {
	row := func(ops float64) Result { return Result{Result: report.Result{OpsPerSec: ops, Runs: 1}} }
	rows := compare([][]Result{{row(100), row(1000), row(10)}, {row(50), row(900), row(6)}})
	if rows[0].Ratio != 1 || rows[1].Ratio != 0.6 || rows[1].OpsPerSec != 50 || rows[1].MinOpsPerSec != 6 || rows[1].MaxOpsPerSec != 900 {
		t.Errorf("%+v", rows)
	}
}

// Every way, on real hosts, briefly. Run checks what was acknowledged and what was read.
func TestRun(t *testing.T) {
	plan := brief(t.TempDir())
	r, err := Run(t.Context(), plan, report.Silence{})
	if err != nil || len(r.Rows) != 2*len(AllWays) || r.Partial {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, row := range r.Rows {
		if row.Way != AllWays[i%len(AllWays)] || row.Clients != plan.Clients[i/len(AllWays)] || row.Failed > 0 || row.Schema != Schema {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	labtest.Empty(t, plan.Dir)
}

// A read that misses what was acknowledged before it ends the run.
func TestStaleReadIsFound(t *testing.T) {
	r := reader{machine: &machine{count: 6}, want: 7}
	if err := r.once(t.Context(), Empty); err != nil || !errors.Is(r.fewest, lab.ErrMismatch) {
		t.Errorf("%v, %v", err, r.fewest)
	}
}

// A client uses its buffer again, and what was acknowledged is still there: the codec copies.
func TestTypedWritesCopy(t *testing.T) {
	for _, w := range AllWays {
		if w.writes() && (writer{way: w}).Copies() != (w != Bytes) {
			t.Error(w)
		}
	}
	var _ load.Copier = writer{}
}

func TestInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	plan := brief(t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	r, err := Run(ctx, plan, report.Silence{})
	if !errors.Is(err, interrupted) || r == nil || !r.Partial || len(r.Rows) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	labtest.Empty(t, plan.Dir)
}

func TestValidateNamesTheField(t *testing.T) {
	labtest.RefusesEach(t, func() Plan { return brief(t.TempDir()) }, Run, map[string]func(*Plan){
		"Clients":    func(p *Plan) { p.Clients = []int{1, 0} },
		"Ways":       func(p *Plan) { p.Ways, p.Hosts = []Way{Forwarded}, 1 },
		"ValueBytes": func(p *Plan) { p.ValueBytes = 1 },
		"Hosts":      func(p *Plan) { p.Hosts = lab.MaxHosts + 1 },
		"Duration":   func(p *Plan) { p.Duration = 0 },
		"Warmup":     func(p *Plan) { p.Warmup = -1 },
		"Runs":       func(p *Plan) { p.Runs = 0 },
		"Dir":        func(p *Plan) { p.Dir = filepath.Join(p.Dir, "missing") },
	})
	if _, err := ParseWay("fast"); !errors.Is(err, lab.ErrInvalid) {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) { labtest.Written(t, someReport()) }
