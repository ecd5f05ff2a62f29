package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
)

// startLabMember runs a cluster of one member, and returns where it serves loads.
func startLabMember(t *testing.T) (loads string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	output, out := io.Pipe()
	ended := make(chan error, 1)
	plan := remote.MemberPlan{
		Components: remote.Components{Log: "group", Engine: "memory", Transport: "tcp", Pipeline: "async", EarlyAck: true, Groups: 1},
		ID:         1, Members: []string{"127.0.0.1:0"}, Dir: t.TempDir(), Loads: "127.0.0.1:0",
	}
	go func() {
		err := remote.RunMember(ctx, plan, remote.Streams{Out: out, Logger: slog.New(slog.DiscardHandler), Version: versionText()})
		out.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(output).ReadBytes('\n')
	var said remote.Said
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	return said.Loads
}

// The command line of a member means the plan that it was made from.
func TestMemberCommand(t *testing.T) {
	want := remote.MemberPlan{
		Components: remote.Components{
			Log: "group-delay(3ms,65536,100)", Engine: "memory", Transport: "tcp+tls", Pipeline: "clamped", EarlyAck: true, Groups: 1,
			Depth: 8, FsyncDelay: 3, Bandwidth: 9, NetDelay: 4, Leases: true, SnapshotMiB: 5,
		},
		ID: 2, Members: []string{"-", "-"}, Dir: "d", Listen: "l:1", Loads: "o:2", Health: "h:3", Certificates: "c", Probe: 6, For: 7,
	}
	root := newRoot(app{stdout: io.Discard, stderr: os.Stderr})
	line := memberCommand("millrace")(want)
	cmd, rest, err := root.Find(line[1:])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, arg := range rest {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		have[name] = cmd.Flags().Lookup(name).Value.String()
	}
	if text := fmt.Sprint(have); text != "map[certificates:c depth:8 dir:d disk-bandwidth:9 early-ack:true engine:memory for:7ns fsync-delay:3ns groups:1 health:h:3 id:2 leases:true listen:l:1 loads:o:2 log:group-delay(3ms,65536,100) members:-,- net-delay:4ns pipeline:clamped probe:6ns snapshot-mib:5 transport:tcp+tls]" {
		t.Errorf("%s", text)
	}
}

// labWithFigures runs a verb below lab that measures one point once, and returns its archive and its output.
// The window is made longer until it has measured these figures, each above 0.
func labWithFigures(t *testing.T, figures []archive.Metric, args ...string) (a *archive.Archive, stdout string) {
	t.Helper()
	for length := range labtest.Lengths(50 * time.Millisecond) {
		out := filepath.Join(t.TempDir(), "out")
		status, said, stderr := labVerb(t, t.Context(), append(slices.Clone(args), "--duration", length.String(), "--out", out)...)
		if status != exitOK || stderr != "" {
			t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, said)
		}
		var err error
		if a, err = archive.Read(out); err != nil {
			t.Fatal(err)
		}
		none := func(m archive.Metric) bool { return a.Run.Points[0].Repeats[0].Figures[m.Name] <= 0 }
		if stdout = said; !slices.ContainsFunc(figures, none) {
			return a, stdout
		}
	}
	t.Errorf("%v has not measured every figure: %+v", args, a.Run.Points[0].Repeats[0].Figures)
	return a, stdout
}

// A plan of flags is measured on processes, over TLS, with delays; the archive says so.
func TestLabMeasureProcesses(t *testing.T) {
	a, stdout := labWithFigures(t, []archive.Metric{archive.Ops, archive.FsyncsPerOp, archive.CPUUsPerOp, archive.RSSBytes}, "measure", "--processes", "--transport", "tcp+tls", "--clients", "2", "--groups", "2",
		"--min-warmup", "0s", "--max-warmup", "20ms", "--fsync-delay", "10us", "--net-delay", "10us", "--depth", "4", "--disk-bandwidth", "100000000", "--probe", "0s", "--quiet")
	if !strings.Contains(stdout, "load cpu cores") {
		t.Errorf("stdout\n%s", stdout)
	}
	p := a.Run.Points[0]
	if p.Labels[archive.LabelProcesses] != "local" || p.Labels[archive.LabelFsyncDelay] != "10µs" || p.Labels[archive.LabelDepth] != "4" || len(a.Envs.Members) != 0 {
		t.Errorf("%+v, %+v", p.Labels, a.Envs)
	}
}

// A load on a member that runs leaves an archive with the environment and the flags of the member.
func TestLabLoad(t *testing.T) {
	a, _ := labWithFigures(t, []archive.Metric{archive.Ops}, "load", "--members", startLabMember(t), "--operation", "read index", "--rate", "200",
		"--min-warmup", "0s", "--max-warmup", "20ms", "--round-trips", "1ms", "--quiet")
	if m := a.Envs.Members; len(m) != 1 || m[0].Name != "1" || m[0].Network == nil || a.Run.Config["member pipeline"] != "async" {
		t.Errorf("%+v, %+v", m, a.Run.Config)
	}
	if p := a.Run.Points[0]; p.Labels[archive.LabelProcesses] != "remote" || p.Labels[archive.LabelOperation] != "read-index" {
		t.Errorf("%+v", p)
	}
}

// A sweep over a member that runs leaves the archive of a sweep, with the flags of the member.
func TestLabLoadSweep(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := labVerb(t, t.Context(), "load", "--members", startLabMember(t), "--sweep", "--start", "50", "--max-rate", "110", "--steps", "1", "--p99", "10s",
		"--duration", "200ms", "--min-warmup", "0s", "--max-warmup", "20ms", "--round-trips", "0s", "--quiet", "--out", out)
	if status != exitOK || stderr != "" || !strings.HasPrefix(stdout, "async: ") {
		t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Run; r.Recipe != "sweep" || r.Config["sweep"] != "true" || r.Config["member pipeline"] != "async" || len(r.Criteria) != 2 || r.Criteria[1].Name != "async: highest rate with p99 below 10s" {
		t.Errorf("%+v", r)
	}
	if p := a.Run.Points[0]; p.Labels[archive.LabelProcesses] != "remote" || p.Labels[archive.LabelRate] != "50" {
		t.Errorf("%+v", p)
	}
}

func TestLabProcessesRefuse(t *testing.T) {
	pki := filepath.Join(t.TempDir(), "pki")
	if status, stdout, _ := labVerb(t, t.Context(), "certificates", "--dir", pki, "--members", "1"); status != exitOK || strings.Count(stdout, "made  "+pki) != 5 {
		t.Fatalf("status %d\n%s", status, stdout)
	}
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"measure --processes --transport loopback", exitUsage, "--processes: hosts in processes of their own need sockets, and --transport loopback"},
		{"measure --processes --log group,etcd", exitUsage, "--processes: hosts in processes of their own are this program, and the log etcd is in another one"},
		{"member --members 127.0.0.1:0 --id 1 --dir . --log etcd", exitUsage, "--log: the log etcd is in another program"},
		{"load", exitUsage, "--members: 0 addresses, want 1 to 9"},
		{"load --members a:1 --clients 0", exitUsage, "--clients: 0 is not between"},
		{"load --members a:1 --sweep --rate 9", exitUsage, "--sweep and --rate exclude each other: a sweep chooses the rates"},
		{"load --members a:1 --sweep --clients 9", exitUsage, "--sweep and --clients exclude each other"},
		{"load --members a:1 --sweep --repeat 2", exitUsage, "--sweep and --repeat exclude each other"},
		{"load --members a:1 --p99 1ms", exitUsage, "--p99 is about a sweep: give --sweep, too"},
		{"load --members a:1 --rate 9 --start 9", exitUsage, "--start is about a sweep: give --sweep, too"},
		{"load --members a:1 --sweep --start 9 --max-rate 8", exitUsage, "--start: 9 is not between 1 and --max-rate, which is 8"},
		{"load --members a:1 --sweep --steps 21", exitUsage, "--steps: 21 is not between 0 and 20"},
		{"load --members a:1 --sweep --p99 -1ms", exitUsage, "--p99: -1ms is below 0"},
		{"load --members a:1 --wait 2h", exitUsage, "--wait: 2h0m0s is not between"},
		{"load --members a:1 --round-trips 2h", exitUsage, "--round-trips: 2h0m0s is not between"},
		{"load --members a:1 --certificates /does/not/exist", exitCannot, "--certificates: "},
		{"load --members 127.0.0.1:1 --wait 1ms", exitCannot, "--members: the member at 127.0.0.1:1 cannot be reached, for 1ms: "},
		{"member", exitUsage, "--members: 0 is not between 1 and 9"},
		{"member --members a:1,b:1 --id 3 --dir .", exitUsage, "--id: 3, and --members names 2"},
		{"member --members a:1 --id 1 --dir .", exitUsage, "--insecure: a:1 can be reached from other machines"},
		{"member --members 127.0.0.1:0 --id 1", exitUsage, "--dir: give the directory"},
		{"member --members 127.0.0.1:0 --id 1 --dir /does/not/exist", exitCannot, "--dir: cannot use /does/not/exist"},
		{"member --members 127.0.0.1:0 --id 1 --dir . --transport tcp+tls", exitUsage, "--certificates: --transport tcp+tls and a directory of certificates do not go together"},
		{"member --members 127.0.0.1:0 --id 1 --dir . --pipeline basic --groups 2", exitUsage, "--pipeline: basic is for comparison, on one group"},
		{"load --members a:1 --serve 127.0.0.1:0", exitUsage, "--serve: there is nothing to serve: give --out, too"},
		{"collect", exitUsage, "--from is missing"},
		{"collect --from a:1", exitUsage, "--out is missing"},
		{"collect --from a:1 --out o --wait 9999h", exitUsage, "--wait: 9999h0m0s is not between"},
		{"collect --from 127.0.0.1:1 --out o", exitCannot, "--from: 127.0.0.1:1 cannot be reached"},
		{"certificates", exitUsage, "--dir is missing"},
		{"certificates --dir x --members 10", exitUsage, "--members: 10 is not between 1 and 9"},
		{"certificates --dir x --days 0", exitUsage, "--days: 0 is not between"},
		{"certificates --dir " + pki, exitCannot, "remove the old files, or choose another directory"},
	} {
		status, _, stderr := labVerb(t, t.Context(), strings.Fields(tc.args)...)
		checkRefused(t, status, stderr, tc.status, tc.want)
	}
}

// serveResults serves a run as a load does that has ended.
func serveResults(t *testing.T, run string) (addr string) {
	t.Helper()
	s, err := remote.ServeResults(remote.ResultServing{Serve: "127.0.0.1:0", ServeFor: time.Hour}, filepath.Dir(run), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Await(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

// A load that fails before it has results ends at once, whatever it was to serve, and leaves another's alone.
func TestLabLoadWithoutResults(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ members, wait, out, want string }{
		{"127.0.0.1:1", "50ms", "new", "--members: the member at 127.0.0.1:1 cannot be reached"},
		{startLabMember(t), "10s", "old", "is not empty"},
	} {
		if tc.out == "old" {
			labtest.WriteArchive(t, filepath.Join(dir, "old"), labtest.Shape{Recipe: "load", Pipelines: []string{"async"}, Rates: []float64{1000}, Repeats: 1, Seconds: 1})
		}
		status, stdout, stderr := labVerb(t, t.Context(), "load", "--members", tc.members, "--wait", tc.wait, "--round-trips", "0s", "--dir", dir, "--out", filepath.Join(dir, tc.out), "--serve", "127.0.0.1:0", "--quiet")
		if status != exitCannot || !strings.Contains(stderr, tc.want) || stdout != "" {
			t.Errorf("status %d, stderr %q, stdout %q; want %q", status, stderr, stdout, tc.want)
		}
	}
}

// The results of a load that serves them are collected, and then the load ends.
func TestLabCollect(t *testing.T) {
	dir, members := t.TempDir(), startLabMember(t)
	said, says := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		status := run(context.Background(), []string{"lab", "load", "--members", members, "--clients", "1", "--duration", "20ms", "--min-warmup", "0s", "--max-warmup", "20ms",
			"--dir", dir, "--out", filepath.Join(dir, "runs", "one"), "--serve", "127.0.0.1:0", "--quiet"}, app{stdout: says, stderr: os.Stderr})
		says.Close()
		ended <- status
	}()
	addr := ""
	lines := bufio.NewScanner(said)
	for addr == "" && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "The results are served at "); ok {
			addr, _, _ = strings.Cut(rest, " ")
		}
	}
	status, stdout, stderr := labVerb(t, t.Context(), "collect", "--from", addr, "--out", filepath.Join(dir, "here"))
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "here/one: 1 points") {
		t.Errorf("status %d, stderr %q, stdout %s", status, stderr, stdout)
	}
	if status := <-ended; status != exitOK {
		t.Errorf("the load ended with status %d", status)
	}
	if a, err := archive.Read(filepath.Join(dir, "here", "one")); err != nil || len(a.Run.Points) != 1 {
		t.Errorf("%v", err)
	}
}
