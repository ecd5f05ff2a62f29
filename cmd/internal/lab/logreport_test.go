package lab

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/wal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares what a report prints with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

// somewhere is a machine for tables.
var somewhere = Environment{
	OS: "linux/amd64", Kernel: "6.18", CPU: "A CPU", Cores: 2, GoVersion: "go1.26", Dir: "/mnt/disk", Filesystem: "ext4", Load1: 0.25,
}

// logRow is a row that has done ops writes in a second, each taking us microseconds.
func logRow(name string, appenders, groups, runs int, ops, us float64, fsyncs uint64) LogResult {
	r := LogResult{Groups: groups, Fsyncs: fsyncs, EntriesPerFsync: ops / float64(fsyncs), MBPerSec: ops * 1024 / 1e6}
	r.Result = Result{
		Pipeline: name, Clients: appenders, ValueBytes: 1024, Ops: uint64(ops), OpsPerSec: ops, P50Us: us, P99Us: 3 * us, CPUUsPerOp: us / 10,
		FsyncsPerOp: float64(fsyncs) / ops, Runs: runs, MinOpsPerSec: ops * 0.9, MaxOpsPerSec: ops * 1.1,
	}
	return r
}

func recovery(name string, us float64) LogResult {
	r := LogResult{Groups: 1, RecoveredBytes: 1 << 30, MBPerSec: (1 << 30) / us}
	r.Result = Result{Pipeline: name, Ops: 1 << 20, MeanUs: us, CPUUsPerOp: 0.1}
	return r
}

func someLogReport() *LogReport {
	return &LogReport{
		Plan: LogPlan{
			Logs:      []LogChild{{Name: RawLogName}, {Name: OwnLogName}, {Name: "etcd-wal"}, {Name: "raft-wal"}},
			Appenders: []int{1, 1000}, Groups: []int{1, 64}, ValueBytes: 1024, KeepBytes: 256 << 20, RecoverBytes: 1 << 30,
			Duration: 3 * time.Second, Warmup: time.Second, Runs: 3,
		},
		Env: somewhere,
		Rows: []LogResult{
			logRow(RawLogName, 1, 1, 3, 8000, 120, 8000),
			logRow(OwnLogName, 1, 1, 3, 7400, 130, 7400),
			logRow("etcd-wal", 1, 1, 3, 5000, 190, 5000),
			logRow("raft-wal", 1, 1, 1, 6000, 160, 6000),
			logRow(RawLogName, 1000, 1, 3, 700_000, 1400, 700),
			logRow(OwnLogName, 1000, 1, 3, 420_000, 2300, 420),
			logRow("etcd-wal", 1000, 1, 3, 200_000, 5000, 250),
			logRow(OwnLogName, 1000, 64, 3, 410_000, 2400, 420),
			logRow("etcd-wal", 1000, 64, 3, 40_000, 25_000, 20_000),
			recovery(RawLogName, 100_000), recovery(OwnLogName, 800_000), recovery("raft-wal", 900),
		},
		Missing: []string{"bbolt: it is built with the go command, which is not in PATH"},
	}
}

func TestLogTable(t *testing.T) {
	var out bytes.Buffer
	if err := someLogReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "wal.txt", out.Bytes())
}

// Without the rows that an aim is about, nothing is claimed; on tmpfs and a busy machine there is a warning.
func TestLogTableOfLess(t *testing.T) {
	r := someLogReport()
	r.Rows, r.Partial, r.Missing = r.Rows[:1], true, nil
	r.Env.Filesystem, r.Env.Load1 = tmpfs, 3
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "wal-partial.txt", out.Bytes())
}

func TestLogFiles(t *testing.T) {
	for name, r := range map[string]Files{"wal": someLogReport(), "flush": someFlushReport(), "mechanisms": someMechanismReport()} {
		out := filepath.Join(t.TempDir(), "out")
		if err := errors.Join(CheckOut(out, r), WriteFiles(out, r)); err != nil {
			t.Fatal(name, err)
		}
		for _, o := range r.outputs() {
			if info, err := os.Stat(filepath.Join(out, o.name)); err != nil || info.Size() == 0 {
				t.Errorf("%s, %s: %v", name, o.name, err)
			}
		}
		if err := CheckOut(out, r); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func someMechanismReport() *MechanismReport {
	r := &MechanismReport{Plan: MechanismPlan{Duration: time.Second, Runs: 3, BatchBytes: []int{1 << 10, 1000 << 10}}, Env: somewhere}
	for i, n := range r.Plan.BatchBytes {
		for j, m := range mechanisms {
			rate := 1000 * float64(j+1) / float64(i+1)
			r.Rows = append(r.Rows, Result{Pipeline: m.name, ValueBytes: n, OpsPerSec: rate, P50Us: 1e6 / rate, P99Us: 2e6 / rate, CPUUsPerOp: 50, Runs: 3, MinOpsPerSec: rate - 1, MaxOpsPerSec: rate + 1})
		}
	}
	return r
}

func TestMechanismTable(t *testing.T) {
	var out bytes.Buffer
	if err := someMechanismReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "mechanisms.txt", out.Bytes())
}

func someFlushReport() *FlushReport {
	r := &FlushReport{Plan: FlushPlan{ValueBytes: []int{1024, 1 << 20}, Clients: 10, Nodes: 3, Delay: 10 * time.Millisecond, Duration: time.Second, Warmup: time.Second, Runs: 1}, Env: somewhere}
	for i, pt := range r.Plan.points() {
		m := flushModes[pt.mode]
		rate := float64(100 * (i + 1))
		row := FlushResult{Disk: flushDisks[pt.disk].name, Clamp: m.clamp, Unsafe: m.mode.Unsafe(), MBPerSec: rate * float64(pt.valueBytes) / 1e6, point: pt}
		row.Result = Result{Pipeline: m.name, ValueBytes: pt.valueBytes, OpsPerSec: rate, MeanUs: 1e7 / rate, P50Us: 9e6 / rate, P99Us: 3e7 / rate, FsyncsPerOp: 0.3, EntriesPerAppend: 5, Runs: 1}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestFlushTable(t *testing.T) {
	var out bytes.Buffer
	if err := someFlushReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "flush.txt", out.Bytes())
}

// The ratios are between the rows that their names say.
func TestFlushRatiosNameTheirRows(t *testing.T) {
	for _, c := range flushRatios {
		of, over := flushModes[c.of], flushModes[c.over]
		kind := strings.Fields(c.what)[0]
		if !strings.HasPrefix(of.name, kind) {
			t.Errorf("%q divides %q", c.what, of.name)
		}
		switch {
		case strings.Contains(c.what, "both clamped") && !(of.clamp && over.clamp && over.mode == wal.ModeSync),
			strings.Contains(c.what, "no clamp") && (of.clamp || over.clamp),
			strings.Contains(c.what, "with the clamp") && (of.clamp || !over.clamp || of.mode != over.mode):
			t.Errorf("%q divides %+v by %+v", c.what, of, over)
		}
	}
}

// Every mode and every kind of disk, on a real cluster, briefly; what it acknowledged is checked by the way.
func TestFlushModesRun(t *testing.T) {
	plan := FlushPlan{ValueBytes: []int{256}, Clients: 4, Nodes: 3, Delay: time.Millisecond, Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 1, Dir: t.TempDir(), Seed: 1}
	report, err := RunFlush(t.Context(), plan, silence{})
	if err != nil || len(report.Rows) != len(flushModes)*len(flushDisks) {
		t.Fatalf("%+v, %v", report, err)
	}
	leftBehind(t, plan.Dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	if report, err := RunFlush(ctx, plan, silence{}); !errors.Is(err, interrupted) || report == nil || !report.Partial {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestFlushPlanCheckNamesTheFlag(t *testing.T) {
	good := FlushPlan{ValueBytes: []int{256}, Clients: 1, Nodes: 1, Delay: 1, Duration: 1, Runs: 1, Dir: t.TempDir()}
	for flag, spoil := range map[string]func(*FlushPlan){
		"--value-bytes": func(p *FlushPlan) { p.ValueBytes = []int{1} },
		"--clients":     func(p *FlushPlan) { p.Clients = 0 },
		"--nodes":       func(p *FlushPlan) { p.Nodes = 10 },
		"--fsync-delay": func(p *FlushPlan) { p.Delay = 0 },
		"--duration":    func(p *FlushPlan) { p.Duration = 0 },
	} {
		plan := good
		spoil(&plan)
		if _, err := RunFlush(t.Context(), plan, silence{}); !errors.Is(err, ErrRefused) || !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Every way to write, on the real disk, for a moment.
func TestMechanismsRun(t *testing.T) {
	plan := MechanismPlan{BatchBytes: []int{1000}, Duration: time.Millisecond, Runs: 2, Dir: t.TempDir()}
	report, err := RunMechanisms(t.Context(), plan, silence{})
	if errors.Is(err, ErrRefused) {
		t.Skip(err) // not Linux
	}
	if err != nil || len(report.Rows) != len(mechanisms) {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, row := range report.Rows {
		if row.OpsPerSec == 0 || row.Runs != 2 || row.P50Us == 0 {
			t.Errorf("%+v", row)
		}
	}
	leftBehind(t, plan.Dir)
}
