package peers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// scripted is a system whose process is a shell script.
func scripted(name string, kind Kind, script string) System {
	return System{Name: name, Kind: kind, Command: []string{"sh", "-c", "cat >/dev/null; " + script}}
}

// answers is the script of a child with these figures.
func answers(ops, fsyncs float64) string {
	return fmt.Sprintf(`echo '{"result":{"ops":100,"ops_per_sec":%v,"fsyncs_per_op":%v,"cpu_us_per_op":5}}'`, ops, fsyncs)
}

func smallPlan(t *testing.T, systems ...System) Plan {
	return Plan{Systems: systems, Clients: []int{1, 4}, ValueBytes: 1024, Hosts: 3, Duration: time.Second, Runs: 2, Dir: t.TempDir(), Seed: 1}
}

// A peer that fails has no row and is named. So has one that lost a write: its figures are worth nothing. If
// one of ours fails, there is no report.
func TestRunContinuesWithoutAPeer(t *testing.T) {
	lost := `echo '{"error":"verification failed: write 5 is gone","mismatch":true}'`
	plan := smallPlan(t, scripted("bare", Baseline, answers(1000, 3)), scripted("ours", Own, answers(800, 3)),
		scripted("broken", GoPeer, "echo no disk >&2; exit 1"), scripted("forgetful", OtherPeer, lost), scripted("good", GoPeer, answers(400, 3)))
	plan.Missing = []string{"absent: it is not there"}
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range got.Rows {
		names = append(names, fmt.Sprintf("%s/%d %.2f %.2f", row.Pipeline, row.Clients, row.ToBare, row.ToPeer))
	}
	if have, want := strings.Join(names, ", "), "bare/1 1.00 2.50, ours/1 0.80 2.00, good/1 0.40 1.00, bare/4 1.00 2.50, ours/4 0.80 2.00, good/4 0.40 1.00"; have != want {
		t.Errorf("rows %s\nwant %s", have, want)
	}
	var table strings.Builder
	if err := got.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NOT MEASURED: absent: it is not there", "NOT MEASURED: broken, 1 client: its process ended with exit status 1: no disk",
		"NOT MEASURED: forgetful, 1 client: verification failed: write 5 is gone"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	labtest.Empty(t, plan.Dir)

	plan.Systems[1] = scripted("ours", Own, lost)
	if got, err := Run(t.Context(), plan, report.Silence{}); got != nil || !errors.Is(err, lab.ErrMismatch) {
		t.Errorf("%+v, %v", got, err)
	}
	labtest.Empty(t, plan.Dir)
}

// Three hosts need two fsyncs for a write of one client, and half of one for each of four clients' writes.
func TestWhatDoesNotSyncIsMarked(t *testing.T) {
	plan := smallPlan(t, scripted("bare", Baseline, answers(1000, 3)), scripted("one disk", GoPeer, answers(900, 1)), scripted("memory", GoPeer, answers(9000, 0)))
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	var marked []string
	for _, row := range got.Rows {
		if !row.Durable {
			marked = append(marked, fmt.Sprintf("%s/%d", row.Pipeline, row.Clients))
		}
	}
	if have := strings.Join(marked, ", "); have != "one disk/1, memory/1, memory/4" {
		t.Errorf("marked are %s", have)
	}
	var table strings.Builder
	if err := got.WriteTable(&table); err != nil || strings.Count(table.String(), "  NOT DURABLE, ") != 3 {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// Ratios are of samples of one round: in the second round the machine was half as fast for both.
func TestRatiosAreOfOneRound(t *testing.T) {
	run := func(ops ...float64) (of []report.Result) {
		for _, o := range ops {
			of = append(of, report.Result{OpsPerSec: o})
		}
		return of
	}
	if have := ratio(run(800, 400, 820), run(1000, 500, 1000), throughput); have != 0.8 {
		t.Error(have)
	}
	if have := ratio(run(800, 300), run(1000, 500), throughput); have != 0.7 {
		t.Errorf("of two rounds: %v", have)
	}
	if have := ratio(run(800), run(0), throughput); have != 0 {
		t.Errorf("to nothing: %v", have)
	}
}

// straceScript is a strace that says what a real one does, about a process that it starts.
const straceScript = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf '    calls syscall\n--------- ----------------\n      211 fdatasync\n       40 fsync\n--------- ----------------\n      251 total\n' > "$2"
shift 2
exec "$@"
`

func TestStraceCountsBesideTheSystems(t *testing.T) {
	plan := smallPlan(t, scripted("bare", Baseline, answers(1000, 2.4)), scripted("broken", GoPeer, "exit 1"))
	plan.Strace = filepath.Join(t.TempDir(), "strace")
	if err := os.WriteFile(plan.Strace, []byte(straceScript), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Counted) != 1 || got.Counted[0] != (count{System: "bare", Ops: 100, Syncs: 251, Own: 2.4}) {
		t.Errorf("%+v", got.Counted)
	}
	if !strings.HasPrefix(got.Missing[0], "fsyncs of broken, counted by strace: ") {
		t.Errorf("%q", got.Missing)
	}
	var table strings.Builder
	if err := got.WriteTable(&table); err != nil || !strings.Contains(table.String(), "bare 2.51 (2.40)\n") {
		t.Errorf("%v\n%s", err, table.String())
	}
	labtest.Empty(t, plan.Dir)
}

func TestStraceOfAProcessThatNeverSyncs(t *testing.T) {
	if n, err := readStrace(strings.NewReader("")); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := readStrace(strings.NewReader("many fsync\n")); err == nil {
		t.Error("a line that cannot be read is taken for a count")
	}
}

func TestValidateNamesTheField(t *testing.T) {
	labtest.RefusesEach(t, func() Plan { return smallPlan(t) }, Run, map[string]func(*Plan){
		"Clients":    func(p *Plan) { p.Clients = []int{0} },
		"ValueBytes": func(p *Plan) { p.ValueBytes = 31 },
		"Hosts":      func(p *Plan) { p.Hosts = 0 },
		"Duration":   func(p *Plan) { p.Duration = 0 },
		"Warmup":     func(p *Plan) { p.Warmup = -1 },
		"Runs":       func(p *Plan) { p.Runs = 0 },
		"Dir":        func(p *Plan) { p.Dir = "/does/not/exist" },
	})
}
