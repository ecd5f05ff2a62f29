package regression

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	guard   = flag.Bool("regression", false, "build and measure: this tree beside the baseline, and beside itself with planted slowdowns")
	against = flag.String("regression.against", "", "the commit to compare with, instead of the baseline")
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

// TestAgainstTheBaseline fails if this tree is slower than the baseline.
func TestAgainstTheBaseline(t *testing.T) {
	needGuard(t)
	revision := *against
	if revision == "" {
		var err error
		if revision, err = Baseline(t.Context(), repository); errors.Is(err, ErrNoBaseline) {
			t.Skipf("NOT MEASURED: %v", err)
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
		t.Fatalf("%s cannot be measured with the workload of now; move the baseline to a commit that can: %v", revision, err)
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
		t.Fatalf("slower than %s: %s. If that must be, move the baseline (%s) in a commit whose message says why, with figures, in a line that begins with %q", revision, slower, baselineFile, movePrefix)
	}
	if unknown := o.NotMeasured(); len(unknown) > 0 {
		t.Skipf("NOT MEASURED: the windows scatter too much at %s; measure again on a quiet machine", strings.Join(unknown, ", "))
	}
}

// The commit that has moved the baseline says why.
func TestBaselineIsExplained(t *testing.T) {
	if _, err := Baseline(t.Context(), repository); err != nil && !errors.Is(err, ErrNoBaseline) {
		t.Fatal(err)
	}
	reason, err := Moved(t.Context(), repository)
	if errors.Is(err, ErrNoBaseline) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(reason)
}

const plantFile, plantAt = "host/internal/appendlane/lane.go", "\terr := l.Log.Append(writes)\n"

// planted builds the workload with code in front of each append.
func planted(t *testing.T, code string) (program string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(repository, plantFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(plantAt)); n != 1 {
		t.Fatalf("%s has %q %d times, want once: plant the slowdown elsewhere", plantFile, strings.TrimSpace(plantAt), n)
	}
	return built(t, repository, map[string][]byte{plantFile: bytes.Replace(source, []byte(plantAt), []byte(code+plantAt), 1)})
}

// spin is code that computes for a while: a number of steps, since a goroutine that is preempted would spin
// for less than a time.
func spin(d time.Duration) string {
	return fmt.Sprintf("\tspun := uint64(1)\n\tfor range %d {\n\t\tspun = spun*6364136223846793005 + 1442695040888963407\n\t}\n\tif spun == 0 {\n\t\tpanic(spun)\n\t}\n", int(float64(d)/stepTime()))
}

// stepTime is the time of a step in nanoseconds.
func stepTime() float64 {
	const steps = 1 << 20
	least := time.Duration(math.MaxInt64)
	for range 20 {
		begin, spun := time.Now(), uint64(1)
		for range steps {
			spun = spun*6364136223846793005 + 1442695040888963407
		}
		if spun == 0 {
			panic(spun)
		}
		least = min(least, time.Since(begin))
	}
	return float64(least) / steps
}

// A slowdown of 5 % is found. It is planted in each append, as long as 5 % of what the operations of an
// append need under that load.
func TestSlowdownOfFivePercentIsFound(t *testing.T) {
	needGuard(t)
	good := built(t, repository, nil)
	for _, load := range Usual().Loads {
		p := Usual()
		p.Loads = []Load{load}
		cost, err := costOfAnAppend(t.Context(), good, p)
		if err != nil {
			t.Fatal(err)
		}
		slow := planted(t, spin(time.Duration(mustFind*float64(cost))))
		o, err := Compare(t.Context(), good, slow, t.TempDir(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v in each append\n%s", time.Duration(mustFind*float64(cost)), o)
		switch i := o.Intervals[0]; {
		case strings.Contains(o.Explain(), cpuCondition):
		case i.Verdict() == NotMeasured:
			t.Logf("NOT MEASURED at %s: the interval is too wide", i.Point)
		default:
			t.Errorf("5 %% more processor time at %s is not found: %v", i.Point, i)
		}
	}
}

// A millisecond of waiting in each append, and much processor time in each, are reported; the same program is
// not.
func TestPlantedSlowdownIsReported(t *testing.T) {
	needGuard(t)
	good := built(t, repository, nil)
	for _, tc := range []struct{ name, planted, want string }{
		{"waits in each append", "\t<-time.After(time.Millisecond)\n", "mean_us > +20%"},
		{"computes in each append", spin(200 * time.Microsecond), cpuCondition},
	} {
		o, err := Compare(t.Context(), good, planted(t, tc.planted), t.TempDir(), Brief())
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
