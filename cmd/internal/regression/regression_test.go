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

func (r *repo) baseline(want string) {
	r.t.Helper()
	have, err := Baseline(r.t.Context(), r.dir)
	if err != nil || have != want {
		r.t.Errorf("baseline %s (%v), want %s", have, err, want)
	}
}

// The baseline is the commit before on the main branch, where files differ HEAD, and on another branch the
// commit where that began.
func TestBaseline(t *testing.T) {
	r := newRepo(t)
	if _, err := Baseline(t.Context(), r.dir); !errors.Is(err, ErrNoBaseline) {
		t.Errorf("without a commit: %v", err)
	}
	first := r.commit("1", "first")
	if _, err := Baseline(t.Context(), r.dir); !errors.Is(err, ErrNoBaseline) || !strings.Contains(err.Error(), "the clone has one commit") {
		t.Errorf("with one commit: %v", err)
	}
	second := r.commit("2", "second")
	r.baseline(first)
	r.write("x", "changed")
	r.baseline(second)
	r.git("checkout", "-q", "-b", "branch")
	r.commit("3", "third")
	r.commit("4", "fourth")
	r.baseline(second)
	r.git("branch", "-q", "-D", "main")
	r.baseline(r.git("rev-parse", "HEAD~1"))
}

// A shallow clone, as CI makes, has no commit before.
func TestBaselineOfAShallowClone(t *testing.T) {
	r := newRepo(t)
	r.commit("1", "first")
	r.commit("2", "second")
	clone := filepath.Join(t.TempDir(), "clone")
	r.git("clone", "-q", "--depth", "1", "file://"+r.dir, clone)
	if _, err := Baseline(t.Context(), clone); !errors.Is(err, ErrNoBaseline) || !strings.Contains(err.Error(), "shallow") {
		t.Errorf("%v", err)
	}
	if _, err := Baseline(t.Context(), t.TempDir()); !errors.Is(err, ErrNoBaseline) {
		t.Errorf("without a repository: %v", err)
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

// A commit message accepts a slower program with a reason, and not without one.
func TestAccepted(t *testing.T) {
	r := newRepo(t)
	base := r.commit("1", "first\n\nSlower: of another change")
	for _, tc := range []struct{ message, want string }{
		{"second", ""},
		{"third\n\nSlower:", ""},
		{"fourth\n\nIt is not Slower: no", ""},
		{"fifth\n\nSlower: each frame is checked twice now\n", "each frame is checked twice now"},
	} {
		r.commit(tc.message, tc.message)
		if have, err := Accepted(t.Context(), r.dir, base); err != nil || have != tc.want {
			t.Errorf("%q: %q, %v; want %q", tc.message, have, err, tc.want)
		}
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
	if len(Limits()) != 5 {
		t.Errorf("%d limits", len(Limits()))
	}
}
