package objects

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/internal/scratch"
)

func brief(dir string) Plan {
	return Plan{ObjectBytes: 300_000, Uploads: 4, Rate: 500, ValueBytes: 64, Hosts: 3, Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Rounds: 1, Dir: dir, Seed: 1}
}

func someReport() *Report {
	p := brief("")
	p.ObjectBytes, p.Uploads, p.Rate, p.ValueBytes, p.Duration, p.Warmup, p.Rounds = 128<<20, 8, 2000, 100, 5*time.Second, time.Second, 3
	rounds := make([][]Result, len(AllWays))
	for k, w := range AllWays {
		for n := range p.Rounds {
			x := float64(n + 10)
			row := Result{Way: w, Result: report.Result{Runs: 1}, HeapBytes: uint64(20+k+n) << 20, HeapBefore: 10 << 20}
			switch w {
			case Raw:
				row.set(128<<20, time.Second, time.Second)
			case Single, Together:
				row.Uploads = map[Way]int{Single: 1, Together: 8}[w]
				row.set(128<<20, time.Duration(x*1e8), time.Duration(x*1.5e8))
			default:
				row.Rate, row.OpsPerSec, row.P50Us, row.P99Us, row.P999Us, row.MaxUs = 2000, 2000, 50*x*float64(k), 400*x*float64(k), 9000, 12000
			}
			rounds[k] = append(rounds[k], row)
		}
	}
	return &Report{Plan: p, Env: labtest.Somewhere, Rows: compare(rounds)}
}

func TestReportForPeopleAndPrograms(t *testing.T) {
	r := someReport()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"objects.txt":  func(b *bytes.Buffer) error { return r.WriteTable(b) },
		"objects.json": func(b *bytes.Buffer) error { return r.WriteJSON(b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		labtest.Golden(t, name, out.Bytes())
	}
}

func TestRatiosAreOfMedians(t *testing.T) {
	rows := someReport().Rows
	for i, want := range []float64{1, 1 / 1.65, 1 / 1.65} {
		if have := rows[i].HeldRatio; math.Abs(have-want) > 1e-6 {
			t.Errorf("%s: %v of raw, want %v", rows[i].Way, have, want)
		}
	}
	if have, want := rows[4].P99Ratio, 4.0/3; math.Abs(have-want) > 1e-6 {
		t.Errorf("the p99 beside uploads is %v × that alone, want %v", have, want)
	}
	if have, want := rows[2].UploadBytes, 14.0*(1<<20)/8; have != want {
		t.Errorf("%v bytes per upload, want %v", have, want)
	}
}

// Everything, on real hosts, briefly. Run reads every object on every host, and checks what was acknowledged.
func TestRun(t *testing.T) {
	plan := brief(scratch.Dir(t))
	plan.Rounds = 2
	var r *Report
	for plan.Duration = range labtest.Lengths(plan.Duration) {
		var err error
		if r, err = Run(t.Context(), plan, report.Silence{}); err != nil || len(r.Rows) != len(AllWays) || r.Partial {
			t.Fatalf("%+v, %v", r, err)
		}
		none := func(row Result) bool { return row.MiBPerSec == 0 && row.Ops == 0 }
		if !slices.ContainsFunc(r.Rows, none) {
			break
		}
	}
	for _, row := range r.Rows {
		if row.Schema != Schema || row.Failed > 0 || row.MiBPerSec == 0 && row.Ops == 0 || row.HeapBytes < row.HeapBefore || row.HeapBefore == 0 {
			t.Errorf("%+v", row)
		}
	}
	labtest.Empty(t, plan.Dir)
}

// What a host answers is compared with what was uploaded.
func TestWrongContentIsFound(t *testing.T) {
	c := &cluster{plan: brief(""), content: newContent(1, 1)}
	right := func() *repeated { return &repeated{content: c.content, n: c.plan.ObjectBytes} }
	if err := c.compare(t.Context(), right()); err != nil {
		t.Error(err)
	}
	wrong := bytes.Clone(c.content)
	wrong[c.plan.ObjectBytes-1]++
	if err := c.compare(t.Context(), &repeated{content: wrong, n: c.plan.ObjectBytes}); !errors.Is(err, lab.ErrMismatch) {
		t.Errorf("a last byte that is wrong: %v, want ErrMismatch", err)
	}
	if err := c.compare(t.Context(), strings.NewReader("short")); err == nil {
		t.Error("5 bytes were taken for the object")
	}
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
		"ObjectBytes": func(p *Plan) { p.ObjectBytes = 1 },
		"Uploads":     func(p *Plan) { p.Uploads = 65 },
		"Rate":        func(p *Plan) { p.Rate = math.NaN() },
		"ValueBytes":  func(p *Plan) { p.ValueBytes = 1 },
		"Hosts":       func(p *Plan) { p.Hosts = 0 },
		"Rounds":      func(p *Plan) { p.Rounds = 0 },
		"Duration":    func(p *Plan) { p.Duration = 0 },
		"Warmup":      func(p *Plan) { p.Warmup = -1 },
		"Dir":         func(p *Plan) { p.Dir = filepath.Join(p.Dir, "missing") },
	})
}

func TestFiles(t *testing.T) { labtest.Written(t, someReport()) }
