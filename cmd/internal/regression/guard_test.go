package regression

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var (
	guard   = flag.Bool("regression", false, "build and measure: this tree beside the commit before, and beside itself with a planted slowdown")
	against = flag.String("regression.against", "", "the commit to compare with, instead of the one before")
	keep    = flag.String("regression.keep", "", "keep the archives of the comparison in this directory, which must not exist")
)

// repository is the root of this tree.
const repository = "../../.."

func needGuard(t *testing.T) {
	t.Helper()
	if !*guard {
		t.Skip("it builds programs and measures them; -regression runs it")
	}
	if runtime.GOOS != "linux" {
		t.Skipf("the workload is for Linux, and this is %s", runtime.GOOS)
	}
}

func built(t *testing.T, tree string, edits map[string][]byte) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "workload")
	if err := Build(t.Context(), tree, repository, edits, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestAgainstTheCommitBefore fails if this tree is slower than the commit before. A change that is slower for
// a good reason says so in its message, in a line "Slower: the reason".
func TestAgainstTheCommitBefore(t *testing.T) {
	needGuard(t)
	revision := *against
	if revision == "" {
		var err error
		if revision, err = Baseline(t.Context(), repository); errors.Is(err, ErrNoBaseline) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	tree := t.TempDir()
	if err := Export(t.Context(), repository, revision, tree); err != nil {
		t.Fatal(err)
	}
	before, after := filepath.Join(t.TempDir(), "workload"), built(t, repository, nil)
	if err := Build(t.Context(), tree, repository, nil, before); err != nil {
		t.Skipf("%s cannot be measured with the workload of now: %v", revision, err)
	}
	if same, err := Same(before, after); err != nil {
		t.Fatal(err)
	} else if same {
		t.Skipf("the workload of now is the same program as that of %s", revision)
	}
	dir := *keep
	if dir == "" {
		dir = t.TempDir()
	}
	o, err := Compare(t.Context(), before, after, dir, Usual())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("against %s\n%s", revision, o)
	if slower := o.Explain(); slower != "" {
		reason, err := Accepted(t.Context(), repository, revision)
		if err != nil {
			t.Fatal(err)
		}
		if reason == "" {
			t.Fatalf("slower than %s: %s. If that must be, say why in the commit message, in a line that begins with %q", revision, slower, acceptedPrefix)
		}
		t.Logf("slower than %s: %s. Accepted: %s", revision, slower, reason)
	}
}

// A millisecond of waiting in each append, and processor time in each, are reported; the same program is not.
func TestPlantedSlowdownIsReported(t *testing.T) {
	needGuard(t)
	const file, at = "host/internal/appendlane/lane.go", "\terr := l.Log.Append(writes)\n"
	source, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(at)); n != 1 {
		t.Fatalf("%s has %q %d times, want once: plant the slowdown elsewhere", file, strings.TrimSpace(at), n)
	}
	good := built(t, repository, nil)
	for _, tc := range []struct{ name, planted, want string }{
		{"waits in each append", "\t<-time.After(time.Millisecond)\n", "mean_us > +20%"},
		{"computes in each append", "\tfor begin := time.Now(); time.Since(begin) < 200*time.Microsecond; {\n\t}\n", "cpu_us_per_op > +10%"},
	} {
		slow := built(t, repository, map[string][]byte{file: bytes.Replace(source, []byte(at), []byte(tc.planted+at), 1)})
		o, err := Compare(t.Context(), good, slow, t.TempDir(), Brief())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(o.Explain(), tc.want) {
			t.Errorf("%s: not reported by %q:\n%s", tc.name, tc.want, o)
		}
		t.Logf("%s: %s", tc.name, o.Explain())
	}
	o, err := Compare(t.Context(), good, good, t.TempDir(), Brief())
	if err != nil {
		t.Fatal(err)
	}
	if slower := o.Explain(); slower != "" {
		t.Errorf("the same program is reported as slower: %s\n%s", slower, o)
	}
}
