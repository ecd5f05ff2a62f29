package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/recipe"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// TestMain lets the program of the test be the process that bench wal starts, as millrace itself is, a member
// of the lab, and a lab that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == logChildVerb || os.Args[1] == peerChildVerb || os.Args[1] == "serve") ||
		len(os.Args) > 2 && os.Args[1] == "lab" && (os.Args[2] == "member" || os.Args[2] == "measure") {
		ctx, stop := untilInterrupt(os.Exit)
		defer stop()
		os.Exit(run(ctx, os.Args[1:], app{stdout: os.Stdout, stderr: os.Stderr, targets: bench.Targets()}))
	}
	goleak.VerifyTestMain(m)
}

// opens returns an OpenFunc for new targets of one host, spoilt by fault.
func opens(fault func(*labtest.Target)) load.OpenFunc {
	return func(context.Context, load.Setup) (load.Target, error) {
		t := labtest.NewTarget(1)
		fault(t)
		return t, nil
	}
}

func good(*labtest.Target)      {}
func doubles(t *labtest.Target) { t.Deliver = func(int, uint64) int { return 2 } }
func full(t *labtest.Target)    { t.Refuse = fmt.Errorf("append: %w", syscall.ENOSPC) }

// runBench runs the command in a directory of its own, where it must leave nothing. basic opens the pipeline
// basic.
func runBench(t *testing.T, ctx context.Context, basic load.OpenFunc, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	var out strings.Builder
	status = run(ctx, append([]string{"bench"}, args...), app{
		stdout: &out, stderr: errs,
		targets: bench.Registry{bench.BareName: opens(good), "basic": basic, "parallel": opens(good), bench.FullBareName: opens(good)},
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
	args := append([]string{"--pipelines", "bare+crc+apply,basic,parallel", "--out", out}, short...)
	status, stdout, stderr := runBench(t, t.Context(), opens(good), args...)
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for _, want := range []string{"append 1 KiB + fdatasync, 1 file", "fdatasync, 3 files", "round trip", "1 client\n", "2 clients\n", "bare", "bare + CRC + apply", "basic", "ratios within this run", "parallel/basic", "throughput ÷ bare+crc+apply: basic"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, name := range []string{"results.json", "throughput.svg", "latency.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, _, stderr = runBench(t, t.Context(), opens(good), args...)
	checkRefused(t, status, stderr, exitCannot, "results.json is already there")
}

func TestBenchPrintsJSON(t *testing.T) {
	_, stdout, _ := runBench(t, t.Context(), opens(good), append([]string{"--json", "--pipelines", "bare", "--quick"}, short...)...)
	var rows []report.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
}

// benchUntilFailed makes the windows longer until the fault of basic is found. That needs a write.
func benchUntilFailed(t *testing.T, basic load.OpenFunc, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	for length := range labtest.Lengths(20 * time.Millisecond) {
		with := append(slices.Clone(args), "--duration", length.String())
		t.Run(length.String(), func(t *testing.T) { status, stdout, stderr = runBench(t, t.Context(), basic, with...) })
		if status != exitOK {
			break
		}
		if i := slices.Index(args, "--out"); i >= 0 {
			if err := os.RemoveAll(args[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return status, stdout, stderr
}

// A cluster that does not hold what it acknowledged: status 1 and not one figure.
func TestBenchMismatch(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := benchUntilFailed(t, opens(doubles), append([]string{"--pipelines", "basic", "--out", out}, short...)...)
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "verification failed: write 0 of client 0 was applied twice") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", out, err)
	}
}

// checkRefused wants an exit status and one sentence on stderr.
func checkRefused(t *testing.T, status int, stderr string, wantStatus int, want string) {
	t.Helper()
	if status != wantStatus || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "millrace: ") {
		t.Errorf("status %d, stderr %q; want %d and one sentence with %q", status, stderr, wantStatus, want)
	}
}

func TestBenchRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"--nonsense", exitUsage, "unknown flag: --nonsense"},
		{"extra", exitUsage, "unknown command \"extra\""},
		{"--clients 1,x", exitUsage, `--clients: "x" in "1,x" cannot be read`},
		{"--clients 0", exitUsage, "--clients: 0 is not between 1 and 100000"},
		{"--clients 4,4", exitUsage, `--clients: "4" is there twice`},
		{"--clients 1 --rate 5", exitUsage, "exclude each other"},
		{"--rate -5", exitUsage, "--rate: -5 is not between"},
		{"--rate NaN", exitUsage, "--rate: NaN is not between"},
		{"--rate 0,5", exitUsage, "--rate: 0 is not between"},
		{"--value-bytes 31", exitUsage, "--value-bytes: 31 is not between 32"},
		{"--value-bytes 1k", exitUsage, `"1k"`},
		{"--nodes 0", exitUsage, "--nodes: 0 is not between 1 and 9"},
		{"--pipelines turbo", exitUsage, `--pipelines: unknown pipeline "turbo"`},
		{"--pipelines async", exitUsage, `--pipelines: pipeline "async" is not available in this build`},
		{"--durability fast", exitUsage, `--durability: wal: durability mode "fast" is unknown`},
		{"--fsync-delay 2", exitUsage, `--fsync-delay: "2" is not a duration`},
		{"--fsync-delay -2ms", exitUsage, "--fsync-delay: -2ms is not between"},
		{"--duration 0s", exitUsage, "--duration: 0s is not between"},
		{"--warmup -1s", exitUsage, "--warmup: -1s is not between"},
		{"--runs 0", exitUsage, "--runs: 0 is not between"},
		{"--max-in-flight 0", exitUsage, "--max-in-flight: 0 is not between"},
		{"--dir /does/not/exist", exitCannot, "--dir: cannot use /does/not/exist: no such file or directory"},
		{"--dir " + file, exitCannot, "is not a directory"},
		{"--dir /proc", exitCannot, "--dir: "},
		{"--out " + file, exitCannot, "--out: " + file + " is not a directory"},
		{"--profile " + file, exitCannot, "--profile: " + file + " is not a directory"},
		{"--out /proc/x", exitCannot, "--out: cannot write to /proc"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			if !strings.Contains(tc.args, "--pipelines") {
				args = append(args, "--pipelines", "basic")
			}
			if !strings.Contains(tc.args, "--dir") {
				args = append(args, "--dir", ".")
			}
			status, stdout, stderr := runBench(t, t.Context(), opens(good), append(args, "--quiet")...)
			checkRefused(t, status, stderr, tc.status, tc.want)
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

// A verb that bench had names the recipe that answers its question, whatever flags it had.
func TestBenchNamesTheRecipe(t *testing.T) {
	for verb, name := range movedBenches {
		if _, ok := recipe.ByName(name); !ok {
			t.Errorf("bench %s names the recipe %s, which is none", verb, name)
		}
		t.Run(verb, func(t *testing.T) {
			status, stdout, stderr := runBench(t, t.Context(), opens(good), verb, "--quick", "--groups", "1")
			checkRefused(t, status, stderr, exitUsage, "bench "+verb+" is a recipe of the lab: millrace lab run "+name)
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

func TestBenchFullDisk(t *testing.T) {
	status, stdout, stderr := benchUntilFailed(t, opens(full), append([]string{"--pipelines", "basic"}, short...)...)
	checkRefused(t, status, stderr, exitCannot, "--dir: the disk under ")
	if stdout != "" {
		t.Errorf("stdout %q", stdout)
	}
}

func TestBenchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupts := opens(func(*labtest.Target) { cancel(errInterrupted) })
	status, stdout, stderr := runBench(t, ctx, interrupts, append([]string{"--pipelines", "basic"}, short...)...)
	if status != exitInterrupted || !strings.Contains(stdout, "PARTIAL") || !strings.Contains(stdout, "bare") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestUnknownVerbAndVersion(t *testing.T) {
	var out strings.Builder
	if status := run(t.Context(), []string{"version"}, app{stdout: &out}); status != exitOK || !strings.HasPrefix(out.String(), "millrace ") {
		t.Errorf("status %d, %q", status, out.String())
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if status := run(t.Context(), []string{"bnech"}, app{stdout: &out, stderr: null}); status != exitUsage {
		t.Errorf("status %d", status)
	}
}
