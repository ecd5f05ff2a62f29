package recipe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// TestMain lets the program of the test be the client's process, as millrace itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ClientVerb {
		if err := ServeClient(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// All recipes together take some 55 minutes, and each with --quick at most two, by their own estimates.
func TestEstimates(t *testing.T) {
	total := time.Duration(0)
	for _, r := range All() {
		if r.About == nil {
			t.Fatalf("%s has no estimate", r.Name)
		}
		full, quick, long := r.About(Full), r.About(Quick), r.About(Long)
		t.Logf("%s: %v, quick %v, long %v, %d MiB", r.Name, full.Round(time.Second), quick.Round(time.Second), long.Round(time.Second), r.NeedMiB(Full))
		if total += full; quick > 2*time.Minute || quick < time.Second || full < quick || long < full || r.NeedMiB(Full) > 25_000 {
			t.Errorf("%s: full %v, quick %v, long %v, %d MiB", r.Name, full, quick, long, r.NeedMiB(Full))
		}
		if text := r.Estimate(Full); !strings.Contains(text, r.Name+": about ") || !strings.Contains(text, "MiB") {
			t.Error(text)
		}
	}
	if total > 56*time.Minute {
		t.Errorf("all recipes take %v", total)
	}
}

// Every recipe runs, for a moment: it leaves an archive that the reader takes, measures every point that it
// names, judges each demand, and prints the source's figures. Interrupted and resumed it leaves the same.
func TestRecipes(t *testing.T) {
	for _, r := range All() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel() // they wait for windows to end, most of the time
			steps := &stopping{}
			o := experiment.Options{
				Recipe: r.Name, Summary: r.Question, Command: []string{"millrace"}, Seed: 3, Dir: t.TempDir(),
				Out: filepath.Join(t.TempDir(), "out"), Hosts: r.Hosts, NeedMiB: r.NeedMiB(Glance), Progress: steps,
			}
			s, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error { return r.Run(ctx, s, Glance) })
			if err != nil {
				t.Fatal(err)
			}
			labtest.Empty(t, o.Dir)
			a, err := archive.Read(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			if a.Run.Partial || len(a.Run.Points) == 0 || len(a.Run.Criteria) == 0 || len(a.Run.Omitted) == 0 {
				t.Errorf("partial %v, %d points, %d criteria, %d left out", a.Run.Partial, len(a.Run.Points), len(a.Run.Criteria), len(a.Run.Omitted))
			}
			for _, p := range a.Run.Points {
				if len(p.Repeats) == 0 {
					t.Errorf("%s was not measured", p.Name)
				}
			}
			judged := 0
			for _, c := range a.Run.Criteria {
				if c.Verdict != archive.NotMeasured || strings.Contains(c.Note, " under ") { // of a busy machine
					judged++
				} else if c.Note == "" {
					t.Errorf("%s was not measured, and no reason is given", c.Name)
				}
			}
			if judged == 0 && allMeasured(a.Run) {
				t.Error("no criterion was evaluated")
			}
			var text bytes.Buffer
			if err := s.WriteText(&text); err != nil || !strings.Contains(text.String(), "criteria") {
				t.Errorf("%v\n%s", err, text.String())
			}
			if testing.Verbose() {
				t.Log(text.String())
			}
			if !slices.Contains([]string{"b0", "b3", "b4", "ratis", "b6", "flush", "snapshots"}, r.Name) { // they take longest, and save points as others do
				checkResumed(t, r, o, steps.points)
			}
		})
	}
}

// allMeasured reports whether an operation ended in each window. On a busy machine a moment is too short.
func allMeasured(r *archive.Run) bool {
	return !slices.ContainsFunc(r.Points, func(p archive.Point) bool {
		return slices.ContainsFunc(p.Repeats, func(r archive.Repeat) bool {
			n, counted := r.Figures[archive.Ops.Name]
			return counted && n == 0
		})
	})
}

// checkResumed interrupts a recipe at half of its steps, and resumes it: that leaves what it leaves when it
// goes through, in the same order.
func checkResumed(t *testing.T, r Recipe, o experiment.Options, steps int) {
	t.Helper()
	through := o.Out
	o.Out = filepath.Join(t.TempDir(), "parts")
	run := func(ctx context.Context) error {
		_, err := experiment.Run(ctx, o, func(ctx context.Context, s *experiment.Session) error { return r.Run(ctx, s, Glance) })
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	together := r.Name == "b2" || r.Name == "batches" || r.Name == "b5" // all points are finished at the end
	if r.Name == "batches" {
		stop() // it reports a point when that is measured
	}
	o.Progress = &stopping{at: (steps + 2) / 2, stop: stop}
	if err := run(ctx); err == nil {
		t.Fatal("it was not interrupted")
	}
	rest := &stopping{}
	o.Progress, o.Resume = rest, true
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	labtest.Empty(t, o.Dir)
	want, have := strings.Split(outline(t, through), "\n"), strings.Split(outline(t, o.Out), "\n")
	for i := range max(len(want), len(have)) {
		if i >= len(want) || i >= len(have) || want[i] != have[i] {
			t.Errorf("in parts it has %d lines, and went through %d; the first that differs is\n%q, and\n%q", len(have), len(want), have[min(i, len(have)-1)], want[min(i, len(want)-1)])
			break
		}
	}
	if rest.points == 0 || !together && rest.points >= steps {
		t.Errorf("%d of %d steps were made again", rest.points, steps)
	}
	if r.Name != "batches" { // a run of which all cells are finished is not resumed
		checkJudgedAgain(t, r, o)
	}
}

// checkJudgedAgain resumes a run of which nothing is left to measure: what it kept is judged as it was. So a
// recipe judges figures of repeats, and none that only the process had which measured them. Whether a window
// measured anything, and a machine was busy, depends on the time it got: only the same repeats are compared.
func checkJudgedAgain(t *testing.T, r Recipe, o experiment.Options) {
	t.Helper()
	a, err := archive.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Out, archive.ResultFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	partial := bytes.Replace(text, []byte(`"partial": false`), []byte(`"partial": true`), 1) // that of the run is the first
	if err := os.WriteFile(path, partial, 0o600); err != nil {
		t.Fatal(err)
	}
	rest := &stopping{}
	o.Progress = rest
	if _, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error { return r.Run(ctx, s, Glance) }); err != nil {
		t.Fatal(err)
	}
	again, err := archive.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if rest.points > 0 || len(again.Run.Criteria) != len(a.Run.Criteria) || len(again.Run.References) != len(a.Run.References) {
		t.Fatalf("%d steps were made again; %d of %d criteria, %d of %d references", rest.points, len(again.Run.Criteria), len(a.Run.Criteria), len(again.Run.References), len(a.Run.References))
	}
	for i, c := range again.Run.Criteria {
		was := a.Run.Criteria[i]
		busy := strings.Contains(c.Note, " under ") || strings.Contains(was.Note, " under ") // each part has its own warnings
		if c.Name != was.Name || !busy && (c.Verdict != was.Verdict || c.Note != was.Note || (c.Value == nil) != (was.Value == nil) || c.Value != nil && *c.Value != *was.Value) {
			t.Errorf("judged as %+v, and again as %+v", was, c)
		}
	}
	for i, f := range again.Run.References {
		if was := a.Run.References[i]; f.What != was.What || f.Point != was.Point || (f.Ours == nil) != (was.Ours == nil) || f.Ours != nil && *f.Ours != *was.Ours {
			t.Errorf("beside a source's figure stood %+v, and now %+v", was, f)
		}
	}
}

// stopping calls stop when a point begins, counted from 1.
type stopping struct {
	report.Silence
	points, at int
	stop       func()
}

// Point implements report.Progress.
func (p *stopping) Point(int, string, time.Duration) {
	if p.points++; p.points == p.at {
		p.stop()
	}
}

// outline is what two runs of a recipe have in common, however fast the machine is.
func outline(t *testing.T, dir string) string {
	t.Helper()
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "partial %v, left out %q\n", a.Run.Partial, a.Run.Omitted)
	for _, p := range a.Run.Points {
		fmt.Fprintf(&b, "%s %s:", p.Name, p.Key())
		for _, r := range p.Repeats {
			fmt.Fprintf(&b, " %d %d %s %v", r.Order, r.Seed, r.Histograms, r.Partial)
		}
		b.WriteString("\n")
	}
	for _, c := range a.Run.Criteria {
		fmt.Fprintf(&b, "%s of %s\n", c.Name, c.Point)
	}
	for _, f := range a.Run.References {
		fmt.Fprintf(&b, "%s\n", f.What) // Point is that of a figure, and empty where none was measured
	}
	return b.String()
}

// The demands of rafttoy and b0 hold for figures like the source's, and fail for others.
func TestJudgements(t *testing.T) {
	for _, tc := range []struct {
		name    string
		judge   func(*experiment.Session)
		figures map[string]map[string]float64
		want    []archive.Verdict
	}{
		{"rafttoy as in the source", func(s *experiment.Session) { judgeRafttoy(s, rafttoyScale{judged: 16.384, clients: []int{1000}}) }, map[string]map[string]float64{
			"basic, 4,000/s": {"mean_us": 13200}, "parallel, 4,000/s": {"mean_us": 7300}, "async, 4,000/s": {"mean_us": 5240},
			"parallel, 1,000 clients": {"entries_per_append": 928, "ops_per_sec": 1}, "async, 1,000 clients": {"entries_per_append": 1542, "ops_per_sec": 1.5},
		}, []archive.Verdict{archive.Pass, archive.Pass, archive.Pass, archive.Pass}},
		{"rafttoy with a slow async", func(s *experiment.Session) { judgeRafttoy(s, rafttoyScale{judged: 16.384, clients: []int{1000}}) }, map[string]map[string]float64{
			"parallel, 4,000/s": {"mean_us": 7300}, "async, 4,000/s": {"mean_us": 7000},
		}, []archive.Verdict{archive.Fail, archive.NotMeasured, archive.NotMeasured, archive.NotMeasured}},
		{"b0", judgeB0, map[string]map[string]float64{
			b0Ablated[0].point(lengths{}).Name: {"p50_us": 22500}, b0Ablated[1].point(lengths{}).Name: {"p50_us": 12000},
			b0Ablated[2].point(lengths{}).Name: {"p50_us": 2500}, b0Ablated[3].point(lengths{}).Name: {"p50_us": 3000},
			b0Ablated[4].point(lengths{}).Name: {"p50_us": 2500}, b0Ablated[5].point(lengths{}).Name: {"p50_us": 20000},
		}, []archive.Verdict{archive.Pass, archive.Fail, archive.Pass}},
		{"node: limits that were chosen", func(s *experiment.Session) { judgeTyped(s, typedScale{clients: []int{16}}) }, map[string]map[string]float64{
			typedPoint(writeCommitted, 16): {"rate_ratio": 0.9}, typedPoint(readByLease, 16): {"ops_per_sec": 3}, typedPoint(readLinearizable, 16): {"ops_per_sec": 2},
		}, []archive.Verdict{archive.Provisional, archive.Provisional}},
		{"batches without the rule of hosts", func(s *experiment.Session) { judgeNextBatch(s, nextBatchScale{}) },
			map[string]map[string]float64{allCells("depth 1"): {"sum_of_ratios": 2, "mean_ratio": 1, "worst_ratio": 1}}, []archive.Verdict{archive.NotMeasured, archive.NotMeasured, archive.NotMeasured}},
	} {
		s := sessionWith(t, tc.figures)
		tc.judge(s)
		if len(s.Archive.Criteria) != len(tc.want) {
			t.Fatalf("%s: %d criteria", tc.name, len(s.Archive.Criteria))
		}
		for i, c := range s.Archive.Criteria {
			if c.Verdict != tc.want[i] {
				t.Errorf("%s: %s: %s, want %s", tc.name, c.Name, c.Verdict, tc.want[i])
			}
		}
	}
}

// sessionWith is a session in which points were measured with these figures.
func sessionWith(t *testing.T, figures map[string]map[string]float64) *experiment.Session {
	t.Helper()
	o := experiment.Options{Recipe: "test", Dir: t.TempDir(), Hosts: 1, Progress: report.Silence{}}
	s, err := experiment.Run(t.Context(), o, func(_ context.Context, s *experiment.Session) error {
		for name, of := range figures {
			if err := s.Add(name, map[string]string{"name": name}, archive.Repeat{Figures: of}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Archive.Warnings = nil // of the machine on which the test runs
	return s
}
