package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// smallPlan measures fakes for a blink.
func smallPlan(t *testing.T) Plan {
	open := func(_ context.Context, s Setup) (Target, error) { return newFakeTarget(s.Nodes), nil }
	return Plan{
		Pipelines: []string{"basic", "async"}, Clients: []int{1, 4}, ValueBytes: 1024, Nodes: 3,
		Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 3, Dir: t.TempDir(), Seed: 1, MaxInFlight: 100,
		Targets: Registry{BareName: open, "basic": open, "parallel": open, "async": open},
	}
}

func leftBehind(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind in %s: %v (%v)", dir, entries, err)
	}
}

func TestRunMeasuresTheWholePlan(t *testing.T) {
	plan := smallPlan(t)
	report, err := Run(t.Context(), plan, silence{})
	if err != nil {
		t.Fatal(err)
	}
	leftBehind(t, plan.Dir)
	var names []string
	for _, r := range report.Rows {
		names = append(names, fmt.Sprintf("%s/%d", r.Pipeline, r.Clients))
		if r.Ops == 0 || r.OpsPerSec <= 0 || r.MeanUs <= 0 || r.P50Us <= 0 || r.MaxUs < r.P99Us {
			t.Errorf("%s has empty figures: %+v", r.Pipeline, r)
		}
		if !r.isLimit() && (r.Runs != 3 || r.MinOpsPerSec > r.OpsPerSec || r.MaxOpsPerSec < r.OpsPerSec) {
			t.Errorf("%s: %d runs, %v ≤ %v ≤ %v", r.Pipeline, r.Runs, r.MinOpsPerSec, r.OpsPerSec, r.MaxOpsPerSec)
		}
	}
	want := []string{
		"limit: append 1 KiB + fdatasync, 1 file/1", "limit: append 1 KiB + fdatasync, 3 files/3", "limit: 1 KiB TCP loopback round trip/1",
		"bare/1", "basic/1", "async/1", "bare/4", "basic/4", "async/4",
	}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	if r := report.Rows[3]; r.BytesPerFsync != 2048 || r.EntriesPerAppend != 3 || r.EntriesPerApply != 4 || r.FsyncsPerOp < 2 || r.FsyncsPerOp > 4 {
		t.Errorf("counters: %+v", r)
	}
	if r := report.Rows[0]; r.FsyncsPerOp != 1 || r.MeanUs < 1 {
		t.Errorf("limit row: %+v", r)
	}
}

func TestRunsGoForthAndBack(t *testing.T) {
	plan := smallPlan(t)
	plan.Clients, plan.Runs = []int{1}, 2
	if have := fmt.Sprint(plan.schedule()); have != "[bare, 1 client basic, 1 client async, 1 client async, 1 client basic, 1 client bare, 1 client]" {
		t.Error(have)
	}
}

func TestMedianKeepsTheExtremes(t *testing.T) {
	m := median([]Result{{OpsPerSec: 9}, {OpsPerSec: 1}, {OpsPerSec: 4}, {OpsPerSec: 3}})
	if m.OpsPerSec != 3 || m.MinOpsPerSec != 1 || m.MaxOpsPerSec != 9 || m.Runs != 4 {
		t.Errorf("%+v", m)
	}
}

// Planted faults of a target: no report, the right kind of error, nothing left.
func TestRunReportsNothingOfABrokenTarget(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name  string
		plant func(*fakeTarget)
		want  error
	}{
		{"a node applies a write twice", func(f *fakeTarget) {
			f.deliver = func(_ int, n uint64) int { return 1 + int(n/40%2) }
		}, ErrMismatch},
		{"a node differs in one byte", func(f *fakeTarget) {
			f.damage = func(node int, n uint64, data []byte) {
				if node == 2 && n == 30 {
					data[100]++
				}
			}
		}, ErrMismatch},
		{"the disk is full", func(f *fakeTarget) { f.refuse = fmt.Errorf("append: %w", syscall.ENOSPC) }, ErrRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := smallPlan(t)
			target := newFakeTarget(3)
			tc.plant(target)
			plan.Targets["async"] = target.open
			report, err := Run(t.Context(), plan, silence{})
			if report != nil || !errors.Is(err, tc.want) {
				t.Fatalf("report %v, error %v", report, err)
			}
			if !target.closed {
				t.Error("the target was not closed")
			}
			leftBehind(t, plan.Dir)
		})
	}
	t.Run("it does not start", func(t *testing.T) {
		plan := smallPlan(t)
		plan.Targets["async"] = func(_ context.Context, s Setup) (Target, error) {
			return nil, errors.Join(broken, os.WriteFile(filepath.Join(s.Dir, "rest"), nil, 0o600))
		}
		if report, err := Run(t.Context(), plan, silence{}); report != nil || !errors.Is(err, broken) {
			t.Fatalf("report %v, error %v", report, err)
		}
		leftBehind(t, plan.Dir)
	})
}

func TestRunInterrupted(t *testing.T) {
	stop := errors.New("stop")
	plan := smallPlan(t)
	plan.Runs = 1
	ctx, cancel := context.WithCancelCause(t.Context())
	plan.Targets["async"] = func(ctx context.Context, s Setup) (Target, error) {
		cancel(stop) // while the third point starts
		return newFakeTarget(s.Nodes), nil
	}
	report, err := Run(ctx, plan, silence{})
	if !errors.Is(err, stop) || report == nil || !report.Partial || len(report.Rows) != 5 || !report.Rows[4].Partial {
		t.Fatalf("report %+v, error %v", report, err)
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "PARTIAL") {
		t.Errorf("%v\n%s", err, table.String())
	}
	leftBehind(t, plan.Dir)
}

// With a budget the windows shrink so that the points left fit, and what cannot be measured well is left out and said.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := Plan{Duration: 4 * time.Second, Warmup: time.Second, Budget: 50 * time.Second}
		r := &runner{plan: plan, started: time.Now()}
		for _, tc := range []struct {
			name             string
			done, left       int
			overhead, passed time.Duration // passed: since the last case
			warmup, length   time.Duration
			ok               bool
		}{
			{"plenty of room", 0, 5, 0, 0, time.Second, 4 * time.Second, true},
			{"2.5 s a point less 0.5 s overhead", 0, 20, 0, 0, 400 * time.Millisecond, 1600 * time.Millisecond, true},
			{"not for all: short, and on", 1, 20, 3 * time.Second, 0, 80 * time.Millisecond, 320 * time.Millisecond, true},
			{"time is up", 2, 19, 6 * time.Second, 47 * time.Second, 0, 0, false},
		} {
			pass(tc.passed)
			r.overhead = tc.overhead
			warmup, length, ok := r.window(tc.done, tc.left)
			if warmup != tc.warmup || length != tc.length || ok != tc.ok {
				t.Errorf("%s: %v, %v, %v", tc.name, warmup, length, ok)
			}
		}
	})
	plan := smallPlan(t)
	plan.Budget, plan.Duration = time.Millisecond, time.Second
	report, err := Run(t.Context(), plan, silence{})
	if err != nil || report.Skipped != 18 || !report.Partial {
		t.Fatalf("%+v, %v", report, err)
	}
}

func TestPlanCheckNamesTheFlag(t *testing.T) {
	for flag, spoil := range map[string]func(*Plan){
		"--clients":       func(p *Plan) { p.Clients = []int{0} },
		"--rate":          func(p *Plan) { p.Rates = []float64{-1} },
		"--value-bytes":   func(p *Plan) { p.ValueBytes = MinValueBytes - 1 },
		"--nodes":         func(p *Plan) { p.Nodes = 0 },
		"--pipelines":     func(p *Plan) { p.Pipelines = []string{"turbo"} },
		"--fsync-delay":   func(p *Plan) { p.FsyncDelay = -1 },
		"--durability":    func(p *Plan) { p.Durability.Kind = 77 },
		"--duration":      func(p *Plan) { p.Duration = 0 },
		"--warmup":        func(p *Plan) { p.Warmup = -1 },
		"--runs":          func(p *Plan) { p.Runs = 0 },
		"--max-in-flight": func(p *Plan) { p.MaxInFlight = 0 },
		"--dir":           func(p *Plan) { p.Dir = "/does/not/exist" },
	} {
		plan := smallPlan(t)
		spoil(&plan)
		_, err := Run(t.Context(), plan, silence{})
		if !errors.Is(err, ErrRefused) || !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestOutFiles(t *testing.T) {
	plan := smallPlan(t)
	plan.Runs = 1
	closed, err := Run(t.Context(), plan, silence{})
	if err != nil {
		t.Fatal(err)
	}
	plan.Rates, plan.Clients = []float64{5000}, nil
	open, err := Run(t.Context(), plan, silence{})
	if err != nil {
		t.Fatal(err)
	}
	for name, report := range map[string]*Report{"closed": closed, "open": open, "empty": {}} {
		out := filepath.Join(t.TempDir(), "a", "b")
		if err := CheckOut(out, report); err != nil {
			t.Fatal(err)
		}
		if err := WriteFiles(out, report); err != nil {
			t.Fatal(err)
		}
		for _, svg := range []string{"throughput.svg", "latency.svg"} {
			checkXML(t, filepath.Join(out, svg))
		}
		if name != "empty" {
			checkJSON(t, filepath.Join(out, "results.json"))
		}
		if err := CheckOut(out, report); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "results.json is already there") {
			t.Errorf("%s: second time: %v", name, err)
		}
		if err := WriteFiles(out, report); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: overwritten: %v", name, err)
		}
	}
}

func checkXML(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil || len(data) < 1000 {
		t.Fatalf("%s: %d bytes, %v", name, len(data), err)
	}
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func checkJSON(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for field := range strings.FieldsSeq(`schema pipeline nodes clients rate value_bytes fsync_delay_us ops_per_sec mean_us p50_us
			p90_us p99_us p999_us max_us fsyncs_per_op bytes_per_fsync entries_per_append entries_per_apply cpu_us_per_op
			allocs_per_op runs marks partial env`) {
			if _, ok := row[field]; !ok {
				t.Errorf("%v: no %s", row["pipeline"], field)
			}
		}
	}
}

func TestWriteFilesLeavesAllOrNothing(t *testing.T) {
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "latency.svg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFiles(out, &Report{}); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}
