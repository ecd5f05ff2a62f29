package planted_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each bug is run against the judges of the log: first the crash laboratory, for a bounded time, then the
// other tests of the package. A run of all bugs takes an hour and prints a table:
//
//	go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.all
//	go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.only 'roll|fence'
//
// Without flags a few bugs are drawn, and each is run against the one test that is known to find it. The run
// prints the seed of the draw; -planted.seed repeats it.

var (
	all    = flag.Bool("planted.all", false, "run all bugs against all judges, and print the table")
	only   = flag.String("planted.only", "", "like -planted.all, for the bugs whose names match this expression")
	known  = flag.Bool("planted.known", false, "like -planted.all, with the one test that is known to find each bug: ten minutes")
	seed   = flag.Uint64("planted.seed", 0, "draw the bugs of a short run with this seed; 0: with a seed from the clock")
	sample = flag.Int("planted.sample", 3, "bugs that a short run draws")
	labFor = flag.Duration("planted.lab", time.Minute, "time that the crash laboratory has for one bug")
)

func TestBugsAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range bugs {
		if seen[b.name] || b.name == "" || b.what == "" || len(b.edits) == 0 {
			t.Errorf("bug %q: the name is taken, or something is missing", b.name)
		}
		if (b.found == "") != (b.same != "") {
			t.Errorf("bug %q needs either a test that finds it or a reason why none can", b.name)
		}
		seen[b.name] = true
	}
	if len(seen) < 40 {
		t.Errorf("%d bugs are planted, want at least 40", len(seen))
	}
}

// verdict is the result of one bug.
type verdict struct {
	bug     *bug
	layer   string // "laboratory", "suite", "nothing", or "does not apply", "does not compile"
	test    string
	detail  string // images of the laboratory, or an error
	seconds float64
}

func (v verdict) row() string {
	return fmt.Sprintf("| %s: %s | %s | %s | %.0f |", v.bug.name, v.bug.what, v.layer, strings.TrimSpace(v.test+" "+v.detail), v.seconds)
}

func TestEachIsFound(t *testing.T) {
	if *all || *known || *only != "" {
		runAll(t)
		return
	}
	if testing.Short() {
		t.Skip("-short: builds the log once for each bug")
	}
	draw := *seed
	if draw == 0 {
		draw = uint64(time.Now().UnixNano())
	}
	t.Logf("drawn with -planted.seed=%d", draw)
	var drawn []*bug
	for i := range bugs {
		if bugs[i].found != "" && !bugs[i].rare {
			drawn = append(drawn, &bugs[i])
		}
	}
	rng := rand.New(rand.NewPCG(draw, 1))
	rng.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	for _, b := range drawn[:min(*sample, len(drawn))] {
		t.Run(b.name, func(t *testing.T) {
			v := judge(t, b, b.found)
			if v.layer != "laboratory" && v.layer != "suite" {
				t.Errorf("%s does not find %s (%s): %s %s", b.found, b.name, b.what, v.layer, v.detail)
			}
			t.Log(v.row())
		})
	}
}

func runAll(t *testing.T) {
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatalf("-planted.only: %v", err)
	}
	var table []string
	counts := map[string]int{}
	say := func(line string) {
		table = append(table, line)
		fmt.Println(line)
	}
	say("| planted bug | found by | test | seconds |")
	say("|---|---|---|---|")
	for i := range bugs {
		b := &bugs[i]
		if !chosen.MatchString(b.name) {
			continue
		}
		test := ""
		if *known {
			test = b.found
		}
		v := judge(t, b, test)
		counts[v.layer]++
		if v.layer == "nothing" && b.same != "" {
			v.detail = "the same as without: " + b.same
			counts["nothing"]--
			counts["the same"]++
		}
		say(v.row())
		if v.layer != "laboratory" && v.layer != "suite" && b.same == "" {
			t.Errorf("%s (%s): %s %s", b.name, b.what, v.layer, v.detail)
		}
	}
	say(fmt.Sprintf("\n%d bugs: %v", len(table)-2, counts))
}

// judge runs a bug: against one test, or against the laboratory and, if that finds nothing, all other tests.
func judge(t *testing.T, b *bug, test string) verdict {
	began := time.Now()
	v := verdict{bug: b}
	end := func(layer, test, detail string) verdict {
		v.layer, v.test, v.detail, v.seconds = layer, test, detail, time.Since(began).Seconds()
		return v
	}
	dir := t.TempDir()
	overlay, err := b.overlay(dir)
	if err != nil {
		return end("does not apply", "", err.Error())
	}
	program := filepath.Join(dir, "wal.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./"+b.folder())
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return end("does not compile", "", string(out))
	}
	began = time.Now() // of what the judges take
	if (test == "" || test == labTest) && b.in == "" {
		images, failed := runTests(t, program, b.folder(), labTest+"$", "", "-test.v", "-crashlab.seed=1", "-crashlab.images=100000000", "-crashlab.limit="+labFor.String())
		if failed != "" || test != "" {
			layer := "laboratory"
			if failed == "" {
				layer = "nothing"
			}
			return end(layer, failed, images)
		}
	}
	skip := "TestCrashLab|TestReal|Fuzz"
	run := "."
	if test != "" {
		run, skip = "^"+test+"$", ""
	}
	_, failed := runTests(t, program, b.folder(), run, skip, "-test.failfast")
	if failed != "" {
		return end("suite", failed, "")
	}
	return end("nothing", "", "")
}

const (
	labTest     = "TestCrashLab"
	judgeBudget = 5 * time.Minute // for one run; a bug may make the log hang, which finds it, too
)

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	labImages  = regexp.MustCompile(`(\d+) (?:crash images|distinct disks)`)
)

// runTests runs tests of a program. It returns the first that failed, if any, and the number of images that
// the laboratory reported.
func runTests(t *testing.T, program, folder, run, skip string, flags ...string) (images, failed string) {
	ctx, cancel := context.WithTimeout(t.Context(), judgeBudget)
	defer cancel()
	args := append([]string{"-test.count=1", "-test.run=" + run, "-test.timeout=" + judgeBudget.String()}, flags...)
	if skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(root, folder)
	out, err := cmd.CombinedOutput()
	if m := labImages.FindSubmatch(out); m != nil {
		images = fmt.Sprintf("(%s images)", m[1])
	}
	if err == nil {
		return images, ""
	}
	var exit *exec.ExitError
	switch m := failedTest.FindSubmatch(out); {
	case m != nil:
		return images, string(m[1])
	case ctx.Err() != nil || bytes.Contains(out, []byte("test timed out")):
		return images, "does not end"
	case bytes.Contains(out, []byte("panic:")) && errors.As(err, &exit):
		return images, "panics"
	}
	t.Errorf("the tests ended in another way: %v\n%s", err, out)
	return images, "unknown"
}

// TestEachApplies: every edit still applies, exactly once, and the result compiles. The test type-checks the
// packages once for each bug.
func TestEachApplies(t *testing.T) {
	checkers := []*checker{newChecker(t, "./wal"), newChecker(t, "./wal/record"), newChecker(t, "./snapshot")}
	for i := range bugs {
		b := &bugs[i]
		texts, err := b.texts()
		if err != nil {
			t.Errorf("bug %q does not apply: %v", b.name, err)
			continue
		}
		for _, c := range checkers {
			if err := c.check(texts); err != nil {
				t.Errorf("bug %q does not compile: %v", b.name, err)
			}
		}
	}
}
