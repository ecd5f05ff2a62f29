package flush

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

func someReport() *Report {
	r := &Report{Plan: Plan{ValueBytes: []int{1024, 1 << 20}, Clients: 10, Hosts: 3, FsyncDelay: 10 * time.Millisecond, Duration: time.Second, Warmup: time.Second, Runs: 1}, Env: labtest.Somewhere}
	for i, pt := range r.Plan.points() {
		m := modes[pt.mode]
		rate := float64(100 * (i + 1))
		row := Result{Disk: disks[pt.disk].name, Clamp: m.clamp, Unsafe: m.durability.Unsafe(), MBPerSec: rate * float64(pt.valueBytes) / 1e6, point: pt}
		row.Result = report.Result{Pipeline: m.name, ValueBytes: pt.valueBytes, OpsPerSec: rate, MeanUs: 1e7 / rate, P50Us: 9e6 / rate, P99Us: 3e7 / rate, FsyncsPerOp: 0.3, EntriesPerAppend: 5, Runs: 1}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := someReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	labtest.Golden(t, "flush.txt", out.Bytes())
}

// The ratios are between the rows that their names say.
func TestComparisonsNameTheirRows(t *testing.T) {
	for _, c := range comparisons {
		of, over := modes[c.of], modes[c.over]
		kind := strings.Fields(c.what)[0]
		if !strings.HasPrefix(of.name, kind) {
			t.Errorf("%q divides %q", c.what, of.name)
		}
		switch {
		case strings.Contains(c.what, "both clamped") && !(of.clamp && over.clamp && over.durability == wal.ModeSync),
			strings.Contains(c.what, "no clamp") && (of.clamp || over.clamp),
			strings.Contains(c.what, "with the clamp") && (of.clamp || !over.clamp || of.durability != over.durability):
			t.Errorf("%q divides %+v by %+v", c.what, of, over)
		}
	}
}

// Every mode on every kind of disk, on a real cluster, briefly. Run checks what they acknowledged.
func TestModesRun(t *testing.T) {
	plan := Plan{ValueBytes: []int{256}, Clients: 4, Hosts: 3, FsyncDelay: time.Millisecond, Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 1, Dir: t.TempDir(), Seed: 1}
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil || len(got.Rows) != len(modes)*len(disks) {
		t.Fatalf("%+v, %v", got, err)
	}
	labtest.Empty(t, plan.Dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if got, err := Run(ctx, plan, report.Silence{}); !errors.Is(err, interrupted) || got == nil || !got.Partial {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	good := Plan{ValueBytes: []int{256}, Clients: 1, Hosts: 1, FsyncDelay: 1, Duration: 1, Runs: 1, Dir: t.TempDir()}
	labtest.RefusesEach(t, func() Plan { return good }, Run, map[string]func(*Plan){
		"ValueBytes": func(p *Plan) { p.ValueBytes = []int{1} },
		"Clients":    func(p *Plan) { p.Clients = 0 },
		"Hosts":      func(p *Plan) { p.Hosts = 10 },
		"FsyncDelay": func(p *Plan) { p.FsyncDelay = 0 },
		"Duration":   func(p *Plan) { p.Duration = 0 },
	})
}

func TestFiles(t *testing.T) { labtest.Written(t, someReport()) }
