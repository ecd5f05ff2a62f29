package logs

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// logRow is a row of ops writes in a second, each of which took us microseconds.
func logRow(name string, appenders, groups, runs int, ops, us float64, fsyncs uint64) child.Result {
	r := child.Result{Groups: groups, Fsyncs: fsyncs, EntriesPerFsync: ops / float64(fsyncs), MBPerSec: ops * 1024 / 1e6}
	r.Result = report.Result{
		Pipeline: name, Clients: appenders, ValueBytes: 1024, Ops: uint64(ops), OpsPerSec: ops, P50Us: us, P99Us: 3 * us, CPUUsPerOp: us / 10,
		FsyncsPerOp: float64(fsyncs) / ops, Runs: runs, MinOpsPerSec: ops * 0.9, MaxOpsPerSec: ops * 1.1,
	}
	return r
}

func recovery(name string, us float64) child.Result {
	r := child.Result{Groups: 1, RecoveredBytes: 1 << 30, MBPerSec: (1 << 30) / us}
	r.Result = report.Result{Pipeline: name, Ops: 1 << 20, MeanUs: us, CPUUsPerOp: 0.1}
	return r
}

func someReport() *Report {
	return &Report{
		Plan: Plan{
			Logs:      []Log{{Name: child.RawLogName}, {Name: child.OwnLogName}, {Name: "etcd-wal"}, {Name: "raft-wal"}},
			Appenders: []int{1, 1000}, Groups: []int{1, 64}, ValueBytes: 1024, KeepBytes: 256 << 20, RecoverBytes: 1 << 30,
			Duration: 3 * time.Second, Warmup: time.Second, Runs: 3,
		},
		Env: labtest.Somewhere,
		Rows: []child.Result{
			logRow(child.RawLogName, 1, 1, 3, 8000, 120, 8000),
			logRow(child.OwnLogName, 1, 1, 3, 7400, 130, 7400),
			logRow("etcd-wal", 1, 1, 3, 5000, 190, 5000),
			logRow("raft-wal", 1, 1, 1, 6000, 160, 6000),
			logRow(child.RawLogName, 1000, 1, 3, 700_000, 1400, 700),
			logRow(child.OwnLogName, 1000, 1, 3, 420_000, 2300, 420),
			logRow("etcd-wal", 1000, 1, 3, 200_000, 5000, 250),
			logRow(child.OwnLogName, 1000, 64, 3, 410_000, 2400, 420),
			logRow("etcd-wal", 1000, 64, 3, 40_000, 25_000, 20_000),
			recovery(child.RawLogName, 100_000), recovery(child.OwnLogName, 800_000), recovery("raft-wal", 900),
		},
		Missing: []string{"bbolt: it is built with the go command, which is not in PATH"},
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := someReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	labtest.Golden(t, "wal.txt", out.Bytes())
}

// Without other rows there is no ratio to them. On tmpfs and on a busy machine there is a warning.
func TestTableOfLess(t *testing.T) {
	r := someReport()
	r.Rows, r.Partial, r.Missing = r.Rows[:1], true, nil
	r.Env.Filesystem, r.Env.Load1 = lab.Tmpfs, 3
	var out bytes.Buffer
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	labtest.Golden(t, "wal-partial.txt", out.Bytes())
}

func TestFiles(t *testing.T) {
	labtest.Written(t, someReport())
	labtest.Written(t, someMechanismReport())
}

func someMechanismReport() *MechanismReport {
	r := &MechanismReport{Plan: MechanismPlan{Duration: time.Second, Runs: 3, BatchBytes: []int{1 << 10, 1000 << 10}}, Env: labtest.Somewhere}
	for i, n := range r.Plan.BatchBytes {
		for j, m := range mechanisms {
			rate := 1000 * float64(j+1) / float64(i+1)
			r.Rows = append(r.Rows, report.Result{Pipeline: m.name, ValueBytes: n, OpsPerSec: rate, P50Us: 1e6 / rate, P99Us: 2e6 / rate, CPUUsPerOp: 50, Runs: 3, MinOpsPerSec: rate - 1, MaxOpsPerSec: rate + 1})
		}
	}
	return r
}

func TestMechanismTable(t *testing.T) {
	var out bytes.Buffer
	if err := someMechanismReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	labtest.Golden(t, "mechanisms.txt", out.Bytes())
}

// Every way to write, on the real disk, for a moment.
func TestMechanismsRun(t *testing.T) {
	plan := MechanismPlan{BatchBytes: []int{1000}, Duration: time.Millisecond, Runs: 2, Dir: t.TempDir()}
	got, err := RunMechanisms(t.Context(), plan, report.Silence{})
	if errors.Is(err, lab.ErrCannot) {
		t.Skip(err) // not Linux
	}
	if err != nil || len(got.Rows) != len(mechanisms) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, row := range got.Rows {
		if row.OpsPerSec == 0 || row.Runs != 2 || row.P50Us == 0 {
			t.Errorf("%+v", row)
		}
	}
	labtest.Empty(t, plan.Dir)
}
