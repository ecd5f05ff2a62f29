package bench

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

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/profile"
)

// smallPlan measures targets without a disk, for a moment.
func smallPlan(t *testing.T) Plan {
	open := func(_ context.Context, s load.Setup) (load.Target, error) { return labtest.NewTarget(s.Hosts), nil }
	return Plan{
		Pipelines: []string{"basic", "async"}, Clients: []int{1, 4}, ValueBytes: 1024, Hosts: 3,
		Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 3, Dir: t.TempDir(), Seed: 1, MaxInFlight: 100,
		Targets: Registry{BareName: open, "basic": open, "parallel": open, "async": open},
	}
}

func TestRunMeasuresTheWholePlan(t *testing.T) {
	plan := smallPlan(t)
	var got *Report
	for length := range labtest.Lengths(plan.Duration) {
		plan.Duration = length
		var err error
		if got, err = Run(t.Context(), plan, report.Silence{}); err != nil {
			t.Fatal(err)
		}
		// On a busy machine much begins in so short a window and ends behind it.
		none := func(r report.Result) bool { return r.Ops == 0 }
		if r := got.Rows[3]; r.FsyncsPerOp >= 2 && r.FsyncsPerOp <= 4 && !slices.ContainsFunc(got.Rows, none) {
			break
		}
	}
	labtest.Empty(t, plan.Dir)
	var names []string
	for _, r := range got.Rows {
		names = append(names, fmt.Sprintf("%s/%d", r.Pipeline, r.Clients))
		if r.Ops == 0 || r.OpsPerSec <= 0 || r.MeanUs <= 0 || r.P50Us <= 0 || r.MaxUs < r.P99Us {
			t.Errorf("%s has empty figures: %+v", r.Pipeline, r)
		}
		if !isLimit(r) && (r.Runs != 3 || r.MinOpsPerSec > r.OpsPerSec || r.MaxOpsPerSec < r.OpsPerSec) {
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
	if r := got.Rows[3]; r.BytesPerFsync != 2048 || r.EntriesPerAppend != 3 || r.EntriesPerApply != 4 || r.FsyncsPerOp < 2 || r.FsyncsPerOp > 4 { // 3, apart from what begins in the window and ends behind it
		t.Errorf("counters: %+v", r)
	}
	if r := got.Rows[0]; r.FsyncsPerOp != 1 || r.MeanUs < 1 {
		t.Errorf("limit row: %+v", r)
	}
}

// The log of a pipeline is prepared for what bare has written under the same load, unless it must be young.
func TestLogsArePreparedForThePaceOfBare(t *testing.T) {
	for _, young := range []bool{false, true} {
		plan := smallPlan(t)
		plan.Young, plan.Clients, plan.Runs = young, []int{4}, 1
		var prepared int64
		plan.Targets["async"] = func(_ context.Context, s load.Setup) (load.Target, error) {
			prepared = s.WrittenBytes
			return labtest.NewTarget(s.Hosts), nil
		}
		got, err := Run(t.Context(), plan, report.Silence{})
		if err != nil {
			t.Fatal(err)
		}
		least := int64(0)
		for _, r := range got.Rows {
			if r.Pipeline == BareName && !young {
				least = int64(r.OpsPerSec * (plan.Warmup + plan.Duration).Seconds() * 1024)
			}
		}
		if prepared < least || young && prepared != 0 {
			t.Errorf("young %v: %d bytes, want at least %d", young, prepared, least)
		}
	}
}

// The first run of each point has a profile of its own, which is in the table too. A directory that has one
// already is refused before anything is measured.
func TestProfiles(t *testing.T) {
	plan := smallPlan(t)
	plan.Runs, plan.Clients, plan.Profile = 2, []int{4}, filepath.Join(t.TempDir(), "a", "b")
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bare-4.pprof", "basic-4.pprof", "async-4.pprof"} {
		f, err := os.Open(filepath.Join(plan.Profile, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := profile.Decode(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	var table strings.Builder
	if err := got.WriteTable(&table); err != nil || strings.Count(table.String(), "processor time, 4 clients") != 1 {
		t.Errorf("%v\n%s", err, table.String())
	}
	if _, err := Run(t.Context(), plan, report.Silence{}); !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "Profile: ") {
		t.Errorf("a second time: %v", err)
	}
}

func TestRunsGoForthAndBack(t *testing.T) {
	plan := smallPlan(t)
	plan.Clients, plan.Runs = []int{1}, 2
	if have := fmt.Sprint(plan.schedule()); have != "[bare, 1 client basic, 1 client async, 1 client async, 1 client basic, 1 client bare, 1 client]" {
		t.Error(have)
	}
}

// Planted faults of a target: no report, the right kind of error, nothing left.
func TestRunReportsNothingOfABrokenTarget(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name  string
		plant func(*labtest.Target)
		want  error
	}{
		{"a host applies a write twice", func(f *labtest.Target) {
			f.Deliver = func(_ int, n uint64) int { return 1 + int(n/40%2) }
		}, lab.ErrMismatch},
		{"a host differs in one byte", func(f *labtest.Target) {
			f.Damage = func(host int, n uint64, data []byte) {
				if host == 2 && n == 30 {
					data[100]++
				}
			}
		}, lab.ErrMismatch},
		{"the disk is full", func(f *labtest.Target) { f.Refuse = fmt.Errorf("append: %w", syscall.ENOSPC) }, lab.ErrCannot},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := smallPlan(t)
			var target *labtest.Target
			var got *Report
			var err error
			for plan.Duration = range labtest.Lengths(plan.Duration) { // the fault needs some writes
				target = labtest.NewTarget(3)
				tc.plant(target)
				plan.Targets["async"] = target.Open
				if got, err = Run(t.Context(), plan, report.Silence{}); err != nil {
					break
				}
			}
			if got != nil || !errors.Is(err, tc.want) {
				t.Fatalf("report %v, error %v", got, err)
			}
			if !target.Closed() {
				t.Error("the target was not closed")
			}
			labtest.Empty(t, plan.Dir)
		})
	}
	t.Run("it does not start", func(t *testing.T) {
		plan := smallPlan(t)
		plan.Targets["async"] = func(_ context.Context, s load.Setup) (load.Target, error) {
			return nil, errors.Join(broken, os.WriteFile(filepath.Join(s.Dir, "rest"), nil, 0o600))
		}
		if got, err := Run(t.Context(), plan, report.Silence{}); got != nil || !errors.Is(err, broken) {
			t.Fatalf("report %v, error %v", got, err)
		}
		labtest.Empty(t, plan.Dir)
	})
}

func TestRunInterrupted(t *testing.T) {
	stop := errors.New("stop")
	plan := smallPlan(t)
	plan.Runs = 1
	ctx, cancel := context.WithCancelCause(t.Context())
	plan.Targets["async"] = func(ctx context.Context, s load.Setup) (load.Target, error) {
		cancel(stop) // while the third point starts
		return labtest.NewTarget(s.Hosts), nil
	}
	got, err := Run(ctx, plan, report.Silence{})
	if !errors.Is(err, stop) || got == nil || !got.Partial || len(got.Rows) != 5 || !got.Rows[4].Partial {
		t.Fatalf("report %+v, error %v", got, err)
	}
	var table bytes.Buffer
	if err := got.WriteTable(&table); err != nil || !strings.Contains(table.String(), "PARTIAL") {
		t.Errorf("%v\n%s", err, table.String())
	}
	labtest.Empty(t, plan.Dir)
}

// With a budget the windows shrink so that the points left fit. Points that cannot be measured well are left
// out, and the report says so.
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
			{"plenty of time", 0, 5, 0, 0, time.Second, 4 * time.Second, true},
			{"2.5 s a point less 0.5 s overhead", 0, 20, 0, 0, 400 * time.Millisecond, 1600 * time.Millisecond, true},
			{"not enough for all: short windows", 1, 20, 3 * time.Second, 0, 80 * time.Millisecond, 320 * time.Millisecond, true},
			{"time is up", 2, 19, 6 * time.Second, 47 * time.Second, 0, 0, false},
		} {
			<-time.After(tc.passed)
			r.overhead = tc.overhead
			warmup, length, ok := r.window(tc.done, tc.left)
			if warmup != tc.warmup || length != tc.length || ok != tc.ok {
				t.Errorf("%s: %v, %v, %v", tc.name, warmup, length, ok)
			}
		}
	})
	plan := smallPlan(t)
	plan.Budget, plan.Duration = time.Millisecond, time.Second
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil || got.Skipped != 18 || !got.Partial {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	labtest.RefusesEach(t, func() Plan { return smallPlan(t) }, Run, map[string]func(*Plan){
		"Clients":     func(p *Plan) { p.Clients = []int{0} },
		"Rates":       func(p *Plan) { p.Rates = []float64{-1} },
		"ValueBytes":  func(p *Plan) { p.ValueBytes = load.MinValueBytes - 1 },
		"Hosts":       func(p *Plan) { p.Hosts = 0 },
		"Pipelines":   func(p *Plan) { p.Pipelines = []string{"turbo"} },
		"FsyncDelay":  func(p *Plan) { p.FsyncDelay = -1 },
		"Durability":  func(p *Plan) { p.Durability.Kind = 77 },
		"Duration":    func(p *Plan) { p.Duration = 0 },
		"Warmup":      func(p *Plan) { p.Warmup = -1 },
		"Runs":        func(p *Plan) { p.Runs = 0 },
		"MaxInFlight": func(p *Plan) { p.MaxInFlight = 0 },
		"Dir":         func(p *Plan) { p.Dir = "/does/not/exist" },
	})
}

func TestOutFiles(t *testing.T) {
	plan := smallPlan(t)
	plan.Runs = 1
	closed, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	plan.Rates, plan.Clients = []float64{5000}, nil
	open, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*Report{"closed": closed, "open": open, "empty": {}} {
		out := filepath.Join(t.TempDir(), "a", "b")
		if err := report.ValidateOut(out, got); err != nil {
			t.Fatal(err)
		}
		if err := report.WriteFiles(out, got); err != nil {
			t.Fatal(err)
		}
		for _, svg := range []string{"throughput.svg", "latency.svg"} {
			checkXML(t, filepath.Join(out, svg))
		}
		if name != "empty" {
			checkJSON(t, filepath.Join(out, "results.json"))
		}
		if err := report.ValidateOut(out, got); !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "results.json is already there") {
			t.Errorf("%s: second time: %v", name, err)
		}
		if err := report.WriteFiles(out, got); !errors.Is(err, lab.ErrCannot) {
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
	if err := report.WriteFiles(out, &Report{}); !errors.Is(err, lab.ErrCannot) {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(out); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
}
