package regression

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// repo is a repository that a test makes.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	r := &repo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main")
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repo) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// commit makes a commit in which file x has the content, and returns it.
func (r *repo) commit(content, message string) string {
	r.t.Helper()
	r.write("x", content)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", message)
	return r.git("rev-parse", "HEAD")
}

// name puts a text into the file that names the baseline.
func (r *repo) name(text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Join(r.dir, filepath.Dir(baselineFile)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.write(baselineFile, text)
}

func TestBaseline(t *testing.T) {
	r := newRepo(t)
	first := r.commit("1", "first")
	for text, want := range map[string]string{
		"":                                  "names no commit",
		"# only words\n":                    "names no commit",
		"main\n":                            "is not the one line",
		first + "\n" + first + "\n":         "is not the one line",
		strings.Repeat("7", 40) + "\n":      ErrNoBaseline.Error(),
		"# why\n\n" + first + "\n# the end": "",
	} {
		r.name(text)
		have, err := Baseline(t.Context(), r.dir)
		if want == "" && (err != nil || have != first) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v; want %q", text, have, err, want)
		}
	}
}

// A commit that moves the baseline says why, with figures.
func TestMovedBaseline(t *testing.T) {
	r := newRepo(t)
	if _, err := Moved(t.Context(), r.dir); !errors.Is(err, ErrNoBaseline) {
		t.Errorf("without a baseline: %v", err)
	}
	for i, tc := range []struct{ message, want string }{
		{"the baseline moves", ""},
		{"it moves\n\nBaseline: because it must", ""},
		{"it moves\n\nNot the Baseline: 4", ""},
		{"it moves\n\nBaseline: sums are joined,\n16 clients 61 to 48 us", "sums are joined,\n16 clients 61 to 48 us"},
	} {
		r.name(strings.Repeat("#", i+1))
		r.commit(tc.message, tc.message)
		r.commit(tc.message+" and on", "another commit\n\nBaseline: 7")
		have, err := Moved(t.Context(), r.dir)
		if have != tc.want || (err == nil) != (tc.want != "") || errors.Is(err, ErrNoBaseline) {
			t.Errorf("%q: %q, %v; want %q", tc.message, have, err, tc.want)
		}
	}
	clone := filepath.Join(t.TempDir(), "clone")
	r.git("clone", "-q", "--depth", "1", "file://"+r.dir, clone)
	if _, err := Moved(t.Context(), clone); !errors.Is(err, ErrNoBaseline) {
		t.Errorf("in a shallow clone: %v", err)
	}
}

// A tree is exported as it was committed, whatever has changed since.
func TestExport(t *testing.T) {
	r := newRepo(t)
	if err := os.MkdirAll(filepath.Join(r.dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write("a/b/run", "#!")
	if err := os.Chmod(filepath.Join(r.dir, "a/b/run"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := r.commit("1", "first")
	r.commit("2", "second")
	dir := t.TempDir()
	if err := Export(t.Context(), r.dir, first, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "x"))
	info, err2 := os.Stat(filepath.Join(dir, "a", "b", "run"))
	if err != nil || string(text) != "1" || err2 != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("x is %q (%v), run is %v (%v)", text, err, info, err2)
	}
	if err := Export(t.Context(), r.dir, "no-such-commit", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no-such-commit") {
		t.Errorf("%v", err)
	}
}

// Neither program is first more often, nor earlier on average.
func TestTurns(t *testing.T) {
	for _, slices := range []int{4, 12, 32} {
		var count, place [2]int
		for at, i := range turns(slices) {
			count[i]++
			place[i] += at
		}
		if count[0] != slices || count[1] != slices || place[0] != place[1] {
			t.Errorf("%d slices: %v times, at %v", slices, count, place)
		}
	}
}

// A workload that does not answer is explained by what it has printed, and none stays behind.
func TestWorkloadDies(t *testing.T) {
	program := filepath.Join(t.TempDir(), "workload")
	for script, want := range map[string]string{
		"#!/bin/sh\necho no disk >&2\nexit 3\n":              "no disk",
		"#!/bin/sh\nread line\necho nonsense\nread line\n":   `has answered "nonsense`,
		"#!/bin/sh\nread line\necho '{\"ops\":0}'\nread x\n": "0 operations",
	} {
		if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		p, err := start(t.Context(), program)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.slice(Load{Clients: 1, Ops: 1, ValueBytes: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", script, err, want)
		}
		if err := p.stop(); err != nil && !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%q: %v", script, err)
		}
		if p.cmd.ProcessState == nil {
			t.Errorf("%q is still alive", script)
		}
	}
	if _, err := start(t.Context(), filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a program that does not exist was started")
	}
}

// What a slice has used is told by operation.
func TestFigures(t *testing.T) {
	u := used{Ops: 200, Seconds: 0.5, CPUUs: 4000, Allocs: 600, Fsyncs: 50, MeanUs: 700, Switches: 100}
	for name, want := range map[string]float64{
		archive.OpsPerSec.Name: 400, archive.CPUUsPerOp.Name: 20, archive.AllocsPerOp.Name: 3, archive.FsyncsPerOp.Name: 0.25, archive.MeanUs.Name: 700, archive.SwitchesPerOp.Name: 0.5,
	} {
		if have := u.figures()[name]; have != want {
			t.Errorf("%s: %v, want %v", name, have, want)
		}
	}
	if len(Limits()) != 4 {
		t.Errorf("%d limits", len(Limits()))
	}
}
