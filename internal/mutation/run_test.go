//go:build linux

package mutation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/mutation/site"
)

// TestOutputIsRead: the first test that fails is named, or the one that was running when the program ended.
func TestOutputIsRead(t *testing.T) {
	for _, c := range []struct {
		name, output, failed string
		seen                 bool
	}{
		{"all pass", "=== RUN   TestA\n--- PASS: TestA (0.25s)\nPASS\n", "TestA", false},
		{"one fails", "=== RUN   TestA\n=== RUN   TestA/part\n    x_test.go:1: wrong\n    --- FAIL: TestA/part (0.00s)\n--- FAIL: TestA (0.00s)\n=== RUN   ExampleB\n", "TestA", true},
		{"the program ends", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\nfatal error: all goroutines are asleep - deadlock!\n", "TestB", false},
		{"parallel parts", "=== RUN   TestA\n=== PAUSE TestA\n=== RUN   TestB\n=== CONT  TestA\npanic: wrong\n", "TestA", false},
	} {
		var o outcome
		o.read(strings.NewReader(c.output))
		if o.failed != c.failed || o.sawFailure != c.seen {
			t.Errorf("%s: failed %q, seen %v; want %q, %v", c.name, o.failed, o.sawFailure, c.failed, c.seen)
		}
	}
}

// TestATestThatHangsIsEnded with the processes that it has started.
func TestATestThatHangsIsEnded(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var o outcome
	var err error
	var cmd *exec.Cmd
	for limit := 50 * time.Millisecond; o.failed == "" && limit < time.Minute; limit *= 4 { // a busy machine takes longer to begin
		// Each waits for a writer that never comes.
		cmd = exec.Command("/bin/sh", "-c", `echo "=== RUN   TestHangs"; read x < "$0" & read y < "$0"`, pipe)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		o, err = start(t.Context(), cmd, limit)
	}
	if err != nil || !o.timedOut || o.passed || o.failed != "TestHangs" {
		t.Errorf("have %+v, %v; want TestHangs, by time", o, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd = exec.Command("/bin/sh", "-c", `read x < "$0"`, pipe)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := start(ctx, cmd, time.Hour); err != context.Canceled {
		t.Errorf("an interrupted run returned %v, want %v", err, context.Canceled)
	}
}

// TestPlan: the cheapest tests within the budget are run, those that have killed before the others.
func TestPlan(t *testing.T) {
	j, other := &Judge{Package: "raft"}, &Judge{Package: "sim/core", Args: map[string][]string{"": {"-seeds=1"}}}
	reach := map[string]bool{"m": true}
	b := &programs{tests: map[string][]*test{
		"raft": {
			{judge: j, name: "TestSlow", cost: 30, reaches: reach},
			{judge: j, name: "TestQuick", cost: 1, reaches: reach},
			{judge: j, name: "TestKiller", cost: 2, reaches: reach, kills: 9},
			{judge: j, name: "TestElsewhere", cost: 1},
			{judge: j, name: "TestCounts", cost: 1, reaches: reach, failed: true},
		},
		"sim/core": {{judge: other, name: "TestSeeds", cost: 1.5, reaches: reach}},
	}}
	plan, reached := b.plan("m", 20)
	var names []string
	for _, t := range plan {
		names = append(names, t.name)
	}
	if have, want := strings.Join(names, " "), "TestKiller TestQuick TestSeeds"; have != want || reached != 4 {
		t.Errorf("plan %s of %d, want %s of 4", have, reached, want)
	}
	for size, want := range map[float64]int{0.1: 1, 3: 2, 100: 2} { // of one program only
		if have := batch(plan, size); have != want {
			t.Errorf("%d tests in the first %v s, want %d", have, size, want)
		}
	}
}

func TestWilson(t *testing.T) {
	for _, c := range []struct {
		k, n          int
		share, lo, hi float64
	}{
		{0, 0, 0, 0, 1},
		{10, 10, 1, 0.722467, 1},
		{0, 10, 0, 0, 0.277533},
		{450, 500, 0.9, 0.870556, 0.923318},
	} {
		share, lo, hi := wilson(c.k, c.n)
		if near := 1e-4; math.Abs(share-c.share) > near || math.Abs(lo-c.lo) > near || math.Abs(hi-c.hi) > near {
			t.Errorf("%d of %d: %.6f in [%.6f, %.6f], want %v in [%v, %v]", c.k, c.n, share, lo, hi, c.share, c.lo, c.hi)
		}
	}
}

// TestOnlyTheMutantKills: a test that also fails without the mutant has killed nothing, nor has one that
// fails with it only once.
func TestOnlyTheMutantKills(t *testing.T) {
	for _, c := range []struct{ name, program, want, doubtful string }{
		{"fails with the mutant", `test -z "$` + site.Alive + `"`, Killed, ""},
		{"fails always", `false`, Survived, "TestA"},
		{"fails once", `test -e once || { touch once; false; }`, Survived, "TestA"},
		{"passes", `true`, Survived, ""},
	} {
		root := t.TempDir()
		program := fmt.Sprintf("#!/bin/sh\necho '=== RUN   TestA'\nif %s; then echo '--- PASS: TestA (0.01s)'; else echo '--- FAIL: TestA (0.01s)'; exit 1; fi\n", c.program)
		if err := errors.Join(os.Mkdir(filepath.Join(root, "raft"), 0o700), os.WriteFile(filepath.Join(root, "raft.test"), []byte(program), 0o700)); err != nil {
			t.Fatal(err)
		}
		b := &programs{root: root, dir: root}
		r := Result{Result: Survived}
		err := b.try(t.Context(), &r, []*test{{judge: &Judge{Package: "raft"}, name: "TestA", seconds: 0.01}}, 3)
		if doubtful := strings.Join(r.Doubtful, " "); err != nil || r.Result != c.want || doubtful != c.doubtful {
			t.Errorf("%s: %s, doubtful %q, %v; want %s, doubtful %q", c.name, r.Result, doubtful, err, c.want, c.doubtful)
		}
	}
	if slow := (outcome{passed: true, seconds: 3, limit: 5}); slow.passedWell() {
		t.Error("a run that takes more than half of its time passes well")
	}
}
