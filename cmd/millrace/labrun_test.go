package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// labVerb runs a verb of lab in a directory of its own.
func labVerb(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	return runVerb(t, ctx, append([]string{"lab"}, args...)...)
}

func TestLabExperimentsRefuse(t *testing.T) {
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"measure --log etcd", exitCannot, "a program with the log etcd is needed: it is built from Millrace's source tree, and the current directory is not in it; give --source"},
		{"sweep --engine pebble --transport grpc --source .", exitCannot, "a program with the engine pebble and the transport grpc is needed: --source: . is not"},
		{"measure --log group,etcd,pebble --engine memory,pebble", exitCannot, "a program with the engine pebble and the log etcd and the log pebble is needed"},
		{"measure --log group,group", exitUsage, `--log: "group" is there twice`},
		{"measure --fsync-delay 1ms,1000us --clients 1", exitUsage, `the point "async, 1 client" is there twice`},
		{"measure --rate 0.3,0.4", exitUsage, `the point "async, 0/s" is there twice`},
		{"measure --groups 1,x", exitUsage, `--groups: "x" in "1,x" cannot be read`},
		{"measure --fsync-delay 1", exitUsage, `--fsync-delay: "1" in "1" cannot be read`},
		{"measure --nodes 1,2,3,4,5 --groups 1,2,3,4,5,6,7,8,9 --value-bytes 100,200,300,400,500", exitUsage, "--value-bytes: more than 200 combinations"},
		{"measure --transport tcp,udp", exitUsage, `--transport: unknown transport "udp"`},
		{"measure --log bolt", exitUsage, "--log: bolt is not available: one fsync of bbolt"},
		{"measure --pipelines async,basic --groups 2", exitUsage, "--pipelines: basic is for comparison, on one group"},
		{"measure --pipelines clamped --early-ack=false", exitUsage, "--pipelines: clamped is a rule"},
		{"measure --log memory --fsync-delay 1ms", exitUsage, "--fsync-delay: 1ms has no effect with --log memory"},
		{"measure --transport loopback --net-delay 1ms", exitUsage, "--net-delay: 1ms needs sockets"},
		{"measure --operation delete", exitUsage, `--operation: unknown operation "delete"`},
		{"measure --min-warmup 1m", exitUsage, "--min-warmup: 1m0s is not between 0 and --max-warmup, which"},
		{"measure --repeat 0", exitUsage, "--repeat: 0 is not between"},
		{"measure --dir /does/not/exist", exitCannot, "--dir: cannot use /does/not/exist"},
		{"sweep --steps 21", exitUsage, "--steps: 21 is not between 0 and 20"},
		{"sweep --start 0", exitUsage, "--start: 0 is not between 1 and --max-rate"},
		{"run", exitUsage, "want one of rafttoy, "},
		{"run b99", exitUsage, `there is no recipe "b99"; choose from rafttoy, `},
		{"run b0 --quick --glance", exitUsage, "exclude each other"},
		{"run b0 --quick --long", exitUsage, "exclude each other"},
		{"run b0 --out .", exitCannot, "--out: . is not empty"},
		{"run b0 --resume", exitUsage, "--resume: give the directory of the run with --out"},
		{"measure --resume --out none", exitCannot, "--out: none has no result.json"},
		{"load --resume --members 127.0.0.1:1 --out none", exitUsage, "--resume: a load on members cannot be resumed"},
	} {
		args := strings.Fields(tc.args)
		if tc.args == "run b0 --out ." {
			args[3] = t.TempDir()
			if err := os.WriteFile(filepath.Join(args[3], "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			tc.want = "is not empty"
		}
		status, _, stderr := labVerb(t, t.Context(), append(args, "--quiet")...)
		checkRefused(t, status, stderr, tc.status, tc.want)
	}
}

// A plan of flags leaves an archive with the command that does it again, and every setting.
func TestLabMeasure(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := labVerb(t, t.Context(), "measure", "--pipelines", "async,parallel", "--rate", "100", "--nodes", "1", "--duration", "50ms",
		"--min-warmup", "0s", "--max-warmup", "20ms", "--probe", "0s", "--repeat", "2", "--quiet", "--out", out, "--disk-bandwidth", "900000000")
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "parallel, 100/s") {
		t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Run; len(r.Points) != 2 || len(r.Points[0].Repeats) != 2 || r.Config["net-delay"] != "0s" || r.Config["rate"] != "100" ||
		strings.Join(r.Command[:3], " ") != "millrace lab measure" || !strings.Contains(strings.Join(r.Command, " "), "--rate=100") {
		t.Errorf("%+v", r)
	} else if l := r.Points[0].Labels; l[archive.LabelBandwidth] != "900000000" {
		t.Errorf("labels %v", l)
	}
	bench, err := os.ReadFile(filepath.Join(out, archive.BenchFile))
	if err != nil || strings.Count(string(bench), "/disk_bandwidth=900000000/") != 4 {
		t.Errorf("%v in\n%s", err, bench)
	}
}

// Several components are measured in one run. What tells points apart is in their names and labels.
func TestLabMeasureSeveralComponents(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := labVerb(t, t.Context(), "measure", "--log", "group,group-delay(1ms,65536,100)", "--transport", "tcp,loopback", "--rate", "100", "--nodes", "1", "--duration", "50ms",
		"--min-warmup", "0s", "--max-warmup", "20ms", "--probe", "0s", "--quiet", "--out", out)
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range a.Run.Points {
		names = append(names, p.Name)
	}
	want := []string{
		"log group, transport tcp, async, 100/s", "log group, transport loopback, async, 100/s",
		"log group-delay(1ms,65536,100), transport tcp, async, 100/s", "log group-delay(1ms,65536,100), transport loopback, async, 100/s",
	}
	if !slices.Equal(names, want) || a.Run.Points[3].Labels[archive.LabelTransport] != "loopback" {
		t.Errorf("points %q, want %q", names, want)
	}
}

// Progress for programs: each line of the error output is an event.
func TestLabJSONProgress(t *testing.T) {
	status, _, stderr := labVerb(t, t.Context(), "measure", "--rate", "100", "--nodes", "1", "--duration", "50ms", "--min-warmup", "0s", "--max-warmup", "20ms", "--probe", "0s", "--json-progress")
	var events []string
	for line := range strings.Lines(stderr) {
		var l report.ProgressLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l.Event != "phase" && l.Event != "live" {
			events = append(events, l.Event)
		}
	}
	if status != exitOK || strings.Join(events, " ") != "begin point done end" {
		t.Errorf("status %d, events %q", status, events)
	}
	status, _, stderr = labVerb(t, t.Context(), "measure", "--quiet", "--json-progress")
	checkRefused(t, status, stderr, exitUsage, "--quiet and --json-progress exclude each other")
}

// A sweep says up to which rate it went.
func TestLabSweep(t *testing.T) {
	status, stdout, stderr := labVerb(t, t.Context(), "sweep", "--start", "50", "--max-rate", "110", "--nodes", "1", "--duration", "200ms", "--p99", "10s",
		"--min-warmup", "0s", "--max-warmup", "20ms", "--probe", "0s", "--quiet")
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "async: ") || !strings.Contains(stdout, "highest rate without saturation") {
		t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestLabList(t *testing.T) {
	if status, stdout, _ := labVerb(t, t.Context(), "list"); status != exitOK || !strings.Contains(stdout, "rafttoy") || !strings.Contains(stdout, "dissertation") || !strings.Contains(stdout, "quick ") {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

// A recipe says before it begins how long it takes and how much space it needs.
func TestLabEstimates(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, _, stderr := labVerb(t, ctx, "run", "b0", "--quick"); !strings.Contains(stderr, "b0: about 1m") || !strings.Contains(stderr, "2000 MiB") {
		t.Error(stderr)
	}
}

// An interrupted recipe prints and writes what it has.
func TestLabInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := labVerb(t, ctx, "run", "b0", "--glance", "--quiet", "--out", out)
	if status != exitInterrupted || stderr != "" || !strings.Contains(stdout, "PARTIAL") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	if a, err := archive.Read(out); err != nil || !a.Run.Partial {
		t.Errorf("%+v, %v", a, err)
	}
}
