package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// TestMain lets the test's own program be the child that bench wal starts, as millrace itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == logChildVerb {
		os.Exit(run(context.Background(), os.Args[1:], world{stdout: os.Stdout, stderr: os.Stderr}))
	}
	goleak.VerifyTestMain(m)
}

// oneNode is a target without a disk or a network.
type oneNode struct {
	mu      sync.Mutex
	machine lab.Machine
	index   uint64
	twice   bool  // applies every value twice
	refuse  error // answers every proposal
}

func (n *oneNode) Propose(_ context.Context, value []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	n.index++
	n.machine.Apply(n.index, value)
	if n.twice {
		n.index++
		n.machine.Apply(n.index, value)
	}
	return nil
}

func (n *oneNode) Counters() lab.Counters { return lab.Counters{} }
func (n *oneNode) Close() error           { return nil }
func (n *oneNode) Verify(ctx context.Context, l *lab.Ledger) error {
	return lab.CheckMachines(ctx, []*lab.Machine{&n.machine}, l)
}

// opens returns an OpenFunc for a fresh copy of such a node.
func opens(twice bool, refuse error) lab.OpenFunc {
	return func(context.Context, lab.Setup) (lab.Target, error) {
		return &oneNode{twice: twice, refuse: refuse}, nil
	}
}

// bench runs the command in a directory of its own, where it must leave nothing, with basic as given.
func bench(t *testing.T, ctx context.Context, basic lab.OpenFunc, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	var out strings.Builder
	good := opens(false, nil)
	status = run(ctx, append([]string{"bench"}, args...), world{
		stdout: &out, stderr: errs,
		targets: lab.Registry{lab.BareName: good, "basic": basic, "parallel": good},
	})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
	if _, err := errs.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(errs)
	if err != nil {
		t.Fatal(err)
	}
	return status, out.String(), string(text)
}

var short = []string{"--dir", ".", "--duration", "20ms", "--warmup", "1ms", "--clients", "1,2", "--quiet"}

func TestBenchPrintsATable(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := append([]string{"--pipelines", "basic,parallel", "--out", out}, short...)
	status, stdout, stderr := bench(t, t.Context(), opens(false, nil), args...)
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for _, want := range []string{"append 1 KiB + fdatasync, 1 file", "fdatasync, 3 files", "round trip", "1 client\n", "2 clients\n", "bare", "basic", "ratios within this run", "parallel/basic"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, name := range []string{"results.json", "throughput.svg", "latency.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, _, stderr = bench(t, t.Context(), opens(false, nil), args...)
	checkRefused(t, status, stderr, "results.json is already there")
}

func TestBenchPrintsJSON(t *testing.T) {
	_, stdout, _ := bench(t, t.Context(), opens(false, nil), append([]string{"--json", "--pipelines", "bare", "--quick"}, short...)...)
	var rows []lab.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
}

// A cluster that does not hold what it acknowledged: status 1 and not one figure.
func TestBenchMismatch(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := bench(t, t.Context(), opens(true, nil), append([]string{"--pipelines", "basic", "--out", out}, short...)...)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "verification failed: write 0 of client 0 was applied twice") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", out, err)
	}
}

func checkRefused(t *testing.T, status int, stderr, want string) {
	t.Helper()
	if status != exitRefused || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "millrace: ") {
		t.Errorf("status %d, stderr %q; want %d and one sentence with %q", status, stderr, exitRefused, want)
	}
}

func TestBenchRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--nonsense", "unknown flag: --nonsense"},
		{"extra", "unknown command \"extra\""},
		{"--clients 1,x", `--clients: "x" in "1,x" cannot be read`},
		{"--clients 0", "--clients: 0 is not between 1 and 100000"},
		{"--clients 4,4", `--clients: "4" is there twice`},
		{"--clients 1 --rate 5", "exclude each other"},
		{"--rate -5", "--rate: -5 is not between"},
		{"--rate NaN", "--rate: NaN is not between"},
		{"--rate 0,5", "--rate: 0 is not between"},
		{"--value-bytes 31", "--value-bytes: 31 is not between 32"},
		{"--value-bytes 1k", `"1k"`},
		{"--nodes 0", "--nodes: 0 is not between 1 and 9"},
		{"--pipelines turbo", `--pipelines: unknown pipeline "turbo"`},
		{"--pipelines async", `--pipelines: pipeline "async" is not available in this build`},
		{"--durability fast", `--durability: wal: durability mode "fast" is unknown`},
		{"--fsync-delay 2", `--fsync-delay: "2" is not a duration`},
		{"--fsync-delay -2ms", "--fsync-delay: -2ms is not between"},
		{"--duration 0s", "--duration: 0s is not between"},
		{"--warmup -1s", "--warmup: -1s is not between"},
		{"--runs 0", "--runs: 0 is not between"},
		{"--max-in-flight 0", "--max-in-flight: 0 is not between"},
		{"--dir /does/not/exist", "--dir: cannot use /does/not/exist: no such file or directory"},
		{"--dir " + file, "is not a directory"},
		{"--dir /proc", "--dir: "},
		{"--out " + file, "--out: " + file + " is not a directory"},
		{"--out /proc/x", "--out: cannot write to /proc"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			if !strings.Contains(tc.args, "--pipelines") {
				args = append(args, "--pipelines", "basic")
			}
			if !strings.Contains(tc.args, "--dir") {
				args = append(args, "--dir", ".")
			}
			status, stdout, stderr := bench(t, t.Context(), opens(false, nil), append(args, "--quiet")...)
			checkRefused(t, status, stderr, tc.want)
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

func TestBenchFullDisk(t *testing.T) {
	full := opens(false, fmt.Errorf("append: %w", syscall.ENOSPC))
	status, stdout, stderr := bench(t, t.Context(), full, append([]string{"--pipelines", "basic"}, short...)...)
	checkRefused(t, status, stderr, "is full: free some room")
	if stdout != "" {
		t.Errorf("stdout %q", stdout)
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupts := func(context.Context, lab.Setup) (lab.Target, error) {
		cancel(errInterrupted)
		return &oneNode{}, nil
	}
	status, stdout, stderr := bench(t, ctx, interrupts, append([]string{"--pipelines", "basic"}, short...)...)
	if status != exitInterrupted || !strings.Contains(stdout, "PARTIAL") || !strings.Contains(stdout, "bare") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestUnknownVerbAndVersion(t *testing.T) {
	var out strings.Builder
	if status := run(t.Context(), []string{"version"}, world{stdout: &out}); status != exitOK || !strings.HasPrefix(out.String(), "millrace ") {
		t.Errorf("status %d, %q", status, out.String())
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if status := run(t.Context(), []string{"bnech"}, world{stdout: &out, stderr: null}); status != exitRefused {
		t.Errorf("status %d", status)
	}
}
