package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

// runSim runs sim in this process.
func runSim(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, ctx, append([]string{"sim"}, args...)...)
}

func TestSimHelp(t *testing.T) {
	var all strings.Builder
	for _, verb := range [][]string{{"--help"}, {"merge", "--help"}} {
		_, out, _ := runSim(t, t.Context(), verb...)
		all.WriteString(out)
	}
	labtest.Golden(t, "sim-help.txt", []byte(all.String()))
}

// The core and a story of whole hosts run, and the report and the page say so.
func TestSimRuns(t *testing.T) {
	for _, tc := range []struct{ profile, seeds string }{{"core", "1:21"}, {"founding", "1:4"}} {
		page := filepath.Join(t.TempDir(), "report.html")
		status, out, errs := runSim(t, t.Context(), "--profile", tc.profile, "--seeds", tc.seeds, "--quiet", "--html", page)
		if status != exitOK || errs != "" || !strings.Contains(out, "profile "+tc.profile+", seeds [1, ") || !strings.Contains(out, "nothing was found") {
			t.Errorf("%s: status %d\n%s\n%s", tc.profile, status, out, errs)
		}
		if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "<td>"+tc.profile+"</td>") {
			t.Errorf("%s: %.300s (%v)", tc.profile, html, err)
		}
	}
}

// A replay shows every event, numbers the injections, and leaves out what it is told to.
func TestSimEvents(t *testing.T) {
	seed := []string{"--profile", "core", "--seeds", "7", "--events", "--quiet"}
	status, whole, _ := runSim(t, t.Context(), seed...)
	if status != exitOK || strings.Count(whole, "\n") < 1000 || !strings.Contains(whole, "injection 3: ") {
		t.Fatalf("status %d\n%.1000s", status, whole)
	}
	_, short, _ := runSim(t, t.Context(), append(seed, "--length", "40")...)
	if len(short) >= len(whole) {
		t.Errorf("with faults for 40 ticks there are %d bytes of events, otherwise %d", len(short), len(whole))
	}
	_, skipped, _ := runSim(t, t.Context(), append(seed, "--skip", "2-3")...)
	_, without, _ := runSim(t, t.Context(), append(seed, "--without", "crash,power-cut,majority-crash")...)
	if !strings.Contains(skipped, "left out") || !strings.Contains(without, "left out") || strings.Contains(whole, "left out") {
		t.Error("what is left out is not shown, or something is left out that should not be")
	}
}

// A soak that was interrupted goes on, and a damaged file has the status of damage.
func TestSimSoak(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "soak.json")
	soak := []string{"--profile", "core", "--quiet", "--soak", file, "--seeds"}
	if status, out, errs := runSim(t, t.Context(), append(soak, "1:6")...); status != exitOK {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if status, out, _ := runSim(t, interrupted, append(soak, "1:1000000")...); status != exitInterrupted || !strings.Contains(out, "profile core, seeds [1, ") {
		t.Errorf("interrupted: status %d\n%s", status, out)
	}
	status, out, errs := runSim(t, t.Context(), append(soak, "1:16")...)
	if status != exitOK || !strings.Contains(out, "seeds [1, 16)") || !strings.Contains(out, "of 3 runs") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	if status, _, errs := runSim(t, t.Context(), append(soak, "1:16")...); status != exitOK || !strings.Contains(errs, "has all seeds of this run") {
		t.Errorf("status %d: %s", status, errs)
	}
	if err := os.Truncate(file, 300); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := runSim(t, t.Context(), append(soak, "1:20")...); status != exitDamaged || !strings.Contains(errs, "is not a whole result of millrace sim") {
		t.Errorf("status %d: %s", status, errs)
	}
	if status, _, errs := runSim(t, t.Context(), "merge", file); status != exitDamaged || !strings.Contains(errs, "is not a whole result of millrace sim") {
		t.Errorf("merge: status %d: %s", status, errs)
	}
}

// Two parts of the seeds, one as a file and one as what --json prints, are merged; one of them twice is
// refused.
func TestSimMerge(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.json"), filepath.Join(dir, "two.json")
	base := []string{"--profile", "core", "--seeds", "10:20", "--quiet", "--shard"}
	if status, out, errs := runSim(t, t.Context(), append(base, "0/2", "--soak", one)...); status != exitOK {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	status, out, errs := runSim(t, t.Context(), append(base, "1/2", "--json")...)
	if status != exitOK || errs != "" {
		t.Fatalf("status %d\n%s%s", status, out, errs)
	}
	if err := os.WriteFile(two, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "all.html")
	if status, out, errs := runSim(t, t.Context(), "merge", one, two, "--html", page); status != exitOK || !strings.Contains(out, "seeds [10, 20)\n") || !strings.Contains(out, "10 seeds, ") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	if info, err := os.Stat(page); err != nil || info.Size() < 1000 {
		t.Errorf("%v, %v", info, err)
	}
	if status, _, errs := runSim(t, t.Context(), "merge", one, one); status != exitUsage || !strings.Contains(errs, "seed 10 is in") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// Demands that are not met are failures, and mistakes name the flag.
func TestSimRefuses(t *testing.T) {
	status, out, _ := runSim(t, t.Context(), "--profile", "core", "--seeds", "1:3", "--hits", "1000000", "--quiet")
	if status != exitFailed || !strings.Contains(out, "were hit less often than 1,000,000 times") {
		t.Errorf("status %d\n%s", status, out)
	}
	for line, want := range map[string]string{
		"--profile everything": "--profile: ", "--seeds 5:5": "--seeds: ", "--shard 2/2": "--shard: ", "--skip 0": "--skip: ", "--skip 1 --seeds 1:3": "--skip: ",
		"--without fire": "--without: ", "--workers -1": "--workers: ", "--failures 0": "--failures: ", "--length 5 --profile full": "--length: ",
		"--events --seeds 1:3": "--events: ", "--events --seeds 1 --json": "exclude each other", "--minutes -1": "--minutes: ", "--patience 0s": "--patience: ",
		"merge": "want one file or several", "--hits -1": "--hits: ", "--shrink -1s": "--shrink: ",
	} {
		if status, _, errs := runSim(t, t.Context(), strings.Fields(line)...); status != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("sim %s: status %d: %s", line, status, errs)
		}
	}
	for _, line := range []string{"merge /does/not/exist", "--seeds 1 --soak /does/not/exist"} {
		if status, _, errs := runSim(t, t.Context(), strings.Fields(line)...); status != exitCannot {
			t.Errorf("sim %s: status %d: %s", line, status, errs)
		}
	}
}
