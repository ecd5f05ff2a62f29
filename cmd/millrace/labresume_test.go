package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// killAt runs millrace as a process, and kills it when some point begins, counted from 1.
func killAt(t *testing.T, point int, args ...string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context()) // ends it with SIGKILL
	defer cancel()
	process := exec.CommandContext(ctx, program, append(args, "--json-progress")...)
	process.Stdout = io.Discard
	events, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(events); lines.Scan(); {
		var event report.ProgressLine
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			break
		}
		if event.Event == "point" && event.Point == point {
			break
		}
	}
	cancel()
	if err := process.Wait(); err == nil || process.ProcessState.Exited() {
		t.Fatalf("it was not killed, but ended with %v", err)
	}
}

// A measurement that is killed, without a word of warning, loses the present point only. Resumed, it has all
// points and repeats, and says when they were made.
func TestLabMeasureIsKilledAndResumed(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"lab", "measure", "--clients", "1,2", "--nodes", "1", "--duration", "100ms", "--min-warmup", "0s", "--max-warmup", "20ms",
		"--probe", "0s", "--repeat", "3", "--out", out, "--dir", t.TempDir()}
	killAt(t, 4, args...)
	cut, err := archive.Read(out)
	if err != nil || !cut.Run.Partial {
		t.Fatalf("%+v, %v", cut, err)
	}
	if _, _, ok := cut.Run.Repeat(2); !ok {
		t.Fatal("a point that was finished is gone")
	}
	rest := append(args[1:], "--resume", "--quiet")
	status, _, stderr := labVerb(t, t.Context(), append(rest, "--seed", "2")...)
	checkRefused(t, status, stderr, exitCannot, "--resume: the run in "+out+" has the seed 1, and this one has 2")
	status, stdout, stderr := labVerb(t, t.Context(), rest...)
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "WARNING (resumed): The run was made in 2 parts: 3 repeats from ") {
		t.Fatalf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	for order := range 6 {
		r, of, ok := a.Run.Repeat(order)
		if was, _, finished := cut.Run.Repeat(order); !ok || finished != (order < 3) || finished && !reflect.DeepEqual(r, was) {
			t.Errorf("repeat %d of %q is\n%+v\nand was\n%+v", order, of, r, was)
		}
	}
	if a.Run.Partial || len(a.Run.Points) != 2 || len(a.Run.Points[0].Repeats) != 3 || len(a.Envs.Resumed) != 1 || a.Envs.Resumed[0].FromOrder != 3 {
		t.Errorf("%+v, parts %+v", a.Run, a.Envs.Resumed)
	}
	if files, _ := filepath.Glob(filepath.Join(out, "*")); len(files) != 3+6 {
		t.Errorf("files %q", files)
	}
	if status, stdout, _ = labVerb(t, t.Context(), "report", out); status != exitOK || !strings.Contains(stdout, "> **resumed**: The run was made in 2 parts") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !strings.Contains(string(page), "load, resumed 20") {
		t.Errorf("%v: the page does not show where the second part was made", err)
	}
	if err := os.Remove(filepath.Join(out, "report.html")); err != nil {
		t.Fatal(err)
	}
	if status, stdout, stderr = labVerb(t, t.Context(), rest...); status != exitOK || stderr != "" || !strings.Contains(stdout, "is complete: nothing is left to resume") {
		t.Errorf("status %d, stderr %q, stdout %q", status, stderr, stdout)
	}
}

// What is no run, or a damaged one, has the status of damage and a sentence.
func TestLabResumeOfDamage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	shape := labtest.Sweep()
	shape.NoHistograms = true
	labtest.WriteArchive(t, out, shape)
	if err := os.Truncate(filepath.Join(out, archive.ResultFile), 1000); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "rafttoy"}, {"measure"}, {"sweep"}} {
		status, _, stderr := labVerb(t, t.Context(), append(args, "--resume", "--out", out, "--quiet")...)
		checkRefused(t, status, stderr, exitDamaged, "the results are damaged: "+filepath.Join(out, archive.ResultFile))
	}
}
