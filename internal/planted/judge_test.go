package planted_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// programs builds the tests of packages with bugs in them, once for each package.
type programs struct {
	dir    string
	shared string          // the list of the overlay with all bugs
	alone  map[string]bool // bugs that are not in it
	built  map[string]string
}

func newPrograms(t *testing.T) *programs {
	t.Helper()
	p := &programs{dir: *dir, built: map[string]string{}}
	if p.dir == "" {
		p.dir = t.TempDir()
	}
	all, alone, err := combine(pointers(bugs))
	if err != nil {
		t.Fatal(err)
	}
	if p.shared, err = all.write(p.dir); err != nil {
		t.Fatal(err)
	}
	p.alone = alone
	return p
}

func pointers(bugs []bug) []*bug {
	var list []*bug
	for i := range bugs {
		list = append(list, &bugs[i])
	}
	return list
}

// program returns the tests of a package with a bug in them. It is switched on by the environment, or alone
// in the program.
func (p *programs) program(b *bug, in string) (path string, err error) {
	list, key := p.shared, in
	if p.alone[b.name] {
		key = in + "-" + b.name
	}
	dir := filepath.Join(p.dir, strings.ReplaceAll(key, "/", "_"))
	path = filepath.Join(dir, "tests")
	if *reuse && p.built[key] == "" {
		if _, err := os.Stat(path); err == nil {
			p.built[key] = path
		}
	}
	if p.built[key] != "" {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if p.alone[b.name] {
		texts, err := b.texts()
		if err != nil {
			return "", err
		}
		if list, err = overlay(texts).write(dir); err != nil {
			return "", err
		}
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", list, "-o", path, "./"+in)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c ./%s: %w\n%s", in, err, out)
	}
	p.built[key] = path
	return path, nil
}

// verdict is what a judge said of a bug.
type verdict struct {
	judge
	found  bool
	test   string // that failed
	detail string // what the failure says, or of the laboratory how many images it took
	cpu    time.Duration
}

// The runs of a simulation that find a bug are others as soon as a change moves a draw of its seeds. A judge
// that has lost a bug in the runs of its row is asked for many more, starting at the first.
const (
	widening = 20  // times the runs of the row
	fewest   = 100 // runs, at least
)

// runsFlag is a flag with the number of runs of a simulation; other numbers say where they begin, or how they
// are.
var runsFlag = regexp.MustCompile(`-([a-z-]+) (\d+)\b`)

// widened returns the judge with many more runs, or false if it draws none.
func (j judge) widened() (judge, bool) {
	if j.in != "sim" && j.in != "sim/core" {
		return j, false
	}
	drawn := false
	j.args = runsFlag.ReplaceAllStringFunc(j.args, func(flag string) string {
		m := runsFlag.FindStringSubmatch(flag)
		switch m[1] {
		case "failures", "faults", "lies-every":
			return flag
		case "first":
			return "-first 1"
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return flag
		}
		drawn = true
		return fmt.Sprintf("-%s %d", m[1], max(n*widening, fewest))
	})
	j.args += " -failures 1"
	return j, drawn
}

// layer names the kind of a judge, as in the table of internal/planted/testdata/planted-bugs.md.
func (v verdict) layer() string {
	switch {
	case v.in == "wal" && strings.HasPrefix(v.judge.test, labTest):
		return "crash laboratory"
	case v.in == "sim/core":
		return "core simulation"
	case v.in == "sim":
		return "simulation"
	case v.in == "raft" && slices.Contains([]string{"TestPowerCuts", "TestRandomHistories", "TestRandomHistoriesOfMembers"}, v.judge.test):
		return "random histories"
	}
	return "test of " + v.in
}

const (
	labTest     = "TestCrashLab"
	endless     = "does not end"
	judgeBudget = 5 * time.Minute // for one run; a bug may make a program hang, which finds it, too
)

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	labImages  = regexp.MustCompile(`(\d+) (?:crash images|distinct disks)`)
)

// ask runs one judge. An error means that it says nothing about the bug: it could not be built, or it failed
// in another way than the bug's.
func (p *programs) ask(t *testing.T, b *bug, j judge) (v verdict, err error) {
	v.judge = j
	path, err := p.program(b, j.in)
	if err != nil {
		return v, err
	}
	args, limit := []string{"-test.v", "-test.failfast"}, judgeBudget
	switch j.test {
	case "": // all tests but the random ones
		args = append(args, "-test.run=.", "-test.skip="+labTest+"|TestReal|Fuzz")
	case labTest:
		args = append(args, "-test.run=^"+labTest+"$", "-crashlab.seed=1", "-crashlab.images=100000000", "-crashlab.limit="+labFor.String())
		limit += *labFor // its end is no hang
	default:
		args = append(args, "-test.run=^("+j.test+")$")
	}
	before := failFiles(j.in)
	out, cpu, err := runTests(t, path, j.in, b.name, limit, append(args, strings.Fields(j.args)...))
	for _, file := range failFiles(j.in) {
		if !slices.Contains(before, file) {
			_ = os.Remove(file)
		}
	}
	v.cpu = cpu
	if err == nil {
		return v, nil
	}
	text := string(out)
	switch m := failedTest.FindAllStringSubmatch(text, -1); {
	case m != nil:
		v.test = m[0][1]
	case strings.Contains(text, "test timed out"):
		v.test = endless
	case strings.Contains(text, "panic:") || strings.Contains(text, "fatal error:"):
		v.test = "panics"
	default:
		return v, fmt.Errorf("the tests ended in another way: %w\n%s", err, text)
	}
	if j.says != "" && !strings.Contains(text, j.says) {
		return v, fmt.Errorf("the failure does not say %q:\n%s", j.says, text)
	}
	v.found, v.detail = true, firstComplaint(text)
	if m := labImages.FindStringSubmatch(text); j.test == labTest && m != nil {
		v.detail = m[1] + " images"
	}
	return v, nil
}

// failFiles are the files in which tests of rapid keep what has failed, to try it first in the next run.
func failFiles(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(root, folder, "testdata/rapid/*/*.fail"))
	return files
}

// complaint is what a test says when it fails: "file_test.go:12: text".
var complaint = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.*)$`)

func firstComplaint(text string) string {
	i := strings.Index(text, "--- FAIL: ")
	for _, part := range []string{text[max(i, 0):], text} {
		if m := complaint.FindStringSubmatch(part); m != nil {
			return fmt.Sprintf("%.160s", m[1])
		}
	}
	return ""
}

// runTests runs tests of a program with a bug, and returns the CPU time that they took. What takes longer
// than limit hangs.
func runTests(t *testing.T, program, folder, bug string, limit time.Duration, args []string) (out []byte, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit+10*time.Second)
	defer cancel()
	args = append([]string{"-test.count=1", "-test.timeout=" + limit.String()}, args...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(root, folder)
	cmd.Env = append(os.Environ(), variable+"="+bug)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return both.Bytes(), 0, err
	}
	return both.Bytes(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
