package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/peers"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/lab/peer"
)

func TestBenchPeersRefuses(t *testing.T) {
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"--nonsense", exitUsage, "unknown flag: --nonsense"},
		{"--peers turbo", exitUsage, `--peers: "turbo" is not known; choose from millrace-basic, millrace-parallel, millrace, millrace-batch, etcd-raft-basic`},
		{"--peers etcd,etcd", exitUsage, `--peers: "etcd" is there twice`},
		{"--clients 0", exitUsage, "--clients: 0 is not between 1"},
		{"--value-bytes 31", exitUsage, "--value-bytes: 31 is not between"},
		{"--nodes 0", exitUsage, "--nodes: 0 is not between"},
		{"--runs 0", exitUsage, "--runs: 0 is not between"},
		{"--warmup -1s", exitUsage, "--warmup: -1s is not between"},
	} {
		status, stdout, stderr := runBench(t, t.Context(), opens(good), append([]string{"peers", "--quiet"}, strings.Fields(tc.args)...)...)
		checkRefused(t, status, stderr, tc.status, tc.want)
		if stdout != "" {
			t.Errorf("%s: stdout %q", tc.args, stdout)
		}
	}
}

// What cannot be built is named with the reason, once for each system, and the others are found.
func TestFindSystemsNamesWhatIsMissing(t *testing.T) {
	tree := t.TempDir() // a source tree without the programs
	for name, text := range map[string]string{"go.mod": "module github.com/millrace/millrace\n", "cmd/go.mod": ""} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := peersFlags{systems: "millrace,etcd-raft-basic,etcd-raft-async,millrace-basic", source: tree}
	var plan peers.Plan
	if err := f.findSystems(t.Context(), &plan, newBuilder(f.source, t.TempDir(), nil)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range plan.Systems {
		names = append(names, s.Name)
	}
	if have := strings.Join(names, " "); have != "bare bare+crc+apply bare+cohort millrace millrace-basic" {
		t.Errorf("found %s", have)
	}
	if len(plan.Missing) != 2 || !strings.HasPrefix(plan.Missing[0], "etcd-raft-basic: the source tree has no program in ") || !strings.HasPrefix(plan.Missing[1], "etcd-raft-async: ") {
		t.Errorf("missing: %q", plan.Missing)
	}

	f.source = "/does/not/exist"
	plan = peers.Plan{}
	if err := f.findSystems(t.Context(), &plan, newBuilder(f.source, t.TempDir(), nil)); err != nil || len(plan.Missing) != 2 || !strings.Contains(plan.Missing[0], "--source: ") {
		t.Errorf("%v, missing: %q", err, plan.Missing)
	}
}

// Each name of a system of this program opens a target that there is.
func TestOwnSystemsHaveTargets(t *testing.T) {
	targets := bench.Targets()
	for name, target := range ownSystems {
		if targets[target] == nil {
			t.Errorf("%s is %s, which package bench does not have", name, target)
		}
	}
}

// The child of our own systems, asked as bench peers asks it.
func TestPeerChildMeasures(t *testing.T) {
	ask := func(name string, length time.Duration) (status int, answer lab.ChildAnswer[report.Result], out string) {
		text, err := json.Marshal(peer.Request{Dir: t.TempDir(), Hosts: 3, Clients: 2, ValueBytes: 100, Length: length})
		if err != nil {
			t.Fatal(err)
		}
		in := filepath.Join(t.TempDir(), "request")
		if err := os.WriteFile(in, text, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		before := os.Stdin
		os.Stdin = file
		defer func() { os.Stdin = before }()
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		var printed strings.Builder
		status = run(t.Context(), []string{peerChildVerb, name}, app{stdout: &printed, stderr: null, targets: bench.Registry{bench.BareName: opens(good)}})
		_ = json.Unmarshal([]byte(printed.String()), &answer) // it prints nothing when it refuses
		return status, answer, printed.String()
	}
	for length := range labtest.Lengths(20 * time.Millisecond) {
		status, answer, out := ask(bench.BareName, length)
		if status == exitOK && answer.Result != nil && answer.Result.Ops > 0 {
			break
		}
		if t.Logf("a window of %v: status %d, %s", length, status, out); !strings.Contains(out, "no write was acknowledged") {
			t.Fatal("it does not measure")
		}
	}
	if status, _, out := ask("etcd", time.Millisecond); status != exitUsage || out != "" {
		t.Errorf("status %d, %s", status, out)
	}
}
