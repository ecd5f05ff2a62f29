package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

// runLab runs a verb of lab and returns its status and what it printed.
func runLab(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, t.Context(), append([]string{"lab"}, args...)...)
}

func labRun(t *testing.T, seed uint64, change func(*labtest.Shape)) string {
	t.Helper()
	s := labtest.Shape{Seed: seed, Recipe: "rafttoy", Pipelines: []string{"basic", "async"}, Rates: []float64{1000, 4000}, Repeats: 6, Seconds: 2}
	if change != nil {
		change(&s)
	}
	dir := filepath.Join(t.TempDir(), "run")
	labtest.WriteArchive(t, dir, s)
	return dir
}

// A report of two runs: one page with both, and a section of Markdown for each.
func TestLabReport(t *testing.T) {
	a, b := labRun(t, 1, nil), labRun(t, 2, func(s *labtest.Shape) { s.Recipe = "b0" })
	status, stdout, stderr := runLab(t, "report", a, b)
	file := filepath.Join(a, reportFile)
	if status != exitOK || stderr != "the page is "+file+"\n" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), `<section class="run"`); n != 2 {
		t.Errorf("%d runs are in the page", n)
	}
	for _, want := range []string{"## rafttoy, 2026-03-01", "## b0, 2026-03-01", "| pipeline |", "| criterion ", "| source "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if status, _, _ := runLab(t, "report", a); status != exitOK {
		t.Errorf("again: status %d", status)
	}
	out := filepath.Join(t.TempDir(), "x.html")
	if status, _, _ := runLab(t, "report", b, "--out", out); status != exitOK {
		t.Errorf("elsewhere: status %d", status)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
}

// A document gets the tables and pictures of runs between its marks, again and again, and keeps what is
// outside.
func TestLabReportInto(t *testing.T) {
	a, b, c := labRun(t, 1, nil), labRun(t, 2, func(s *labtest.Shape) { s.Recipe = "b0" }), labRun(t, 3, nil)
	dir := t.TempDir()
	document, pictures := filepath.Join(dir, "results.md"), filepath.Join(dir, "img")
	if err := os.WriteFile(document, []byte("# Mine\n\n"+intoBegin+"old\n"+intoEnd+"\nmore of mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if status, stdout, stderr := runLab(t, "report", a, b, c, "--into", document, "--pictures", pictures); status != exitOK || stdout != "" || !strings.Contains(stderr, document) {
			t.Fatalf("status %d, stdout %q, stderr %q", status, stdout, stderr)
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{"# Mine\n\n" + intoBegin: 1, intoEnd + "\nmore of mine\n": 1, "old": 0, "\n## rafttoy, ": 2, "\n## b0, ": 1, "](img/rafttoy-percentiles.svg)": 1, "](img/rafttoy-2-percentiles.svg)": 1} {
		if have := strings.Count(string(text), want); have != n {
			t.Errorf("%q is there %d times, want %d, in\n%s", want, have, n, text)
		}
	}
	first, err := os.ReadFile(filepath.Join(pictures, "rafttoy-percentiles.svg"))
	if err != nil {
		t.Error(err)
	}
	if second, err := os.ReadFile(filepath.Join(pictures, "rafttoy-2-percentiles.svg")); err != nil || bytes.Equal(first, second) {
		t.Errorf("two runs have the same picture (%v)", err)
	}
	link := filepath.Join(t.TempDir(), "link.md")
	if err := os.Symlink(document, link); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := runLab(t, "report", b, "--into", link); status != exitOK {
		t.Errorf("through a link: status %d: %s", status, stderr)
	}
	if text, err := os.ReadFile(document); err != nil || strings.Contains(string(text), "\n## rafttoy, ") {
		t.Errorf("the file behind a link is as it was (%v)", err)
	}
	twice, marked := filepath.Join(dir, "twice.md"), filepath.Join(dir, "marked.md")
	for path, text := range map[string]string{document: intoEnd + intoBegin, twice: intoBegin + "mine\n" + intoBegin + intoEnd, marked: intoBegin + intoEnd} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args   []string
		status int
	}{
		{[]string{"report", a, "--into", document}, exitCannot},
		{[]string{"report", a, "--into", twice}, exitCannot},
		{[]string{"report", a, "--into", marked, "--pictures", filepath.Join(marked, "img")}, exitCannot},
		{[]string{"report", a, "--into", filepath.Join(dir, "none.md")}, exitCannot},
		{[]string{"report", a, "--pictures", pictures}, exitUsage},
	} {
		if status, _, stderr := runLab(t, tc.args...); status != tc.status {
			t.Errorf("%v: status %d, want %d: %s", tc.args, status, tc.status, stderr)
		}
	}
}

// The pictures have the formats that were asked for; SVG is the default. Their directory is made.
func TestLabPlot(t *testing.T) {
	dir, out := labRun(t, 1, nil), filepath.Join(t.TempDir(), "new", "pictures")
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{dir, "--out", out}, []string{"latency.svg", "percentiles.svg", "throughput-by-rate.svg"}},
		{[]string{dir, "--out", out, "--png"}, []string{"latency.png", "percentiles.png", "throughput-by-rate.png"}},
	} {
		status, stdout, stderr := runLab(t, append([]string{"plot"}, tc.args...)...)
		var names []string
		for line := range strings.Lines(stdout) {
			name := strings.TrimSpace(line)
			if info, err := os.Stat(name); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", name, err)
			}
			names = append(names, filepath.Base(name))
		}
		slices.Sort(names)
		if status != exitOK || stderr != "" || !slices.Equal(names, tc.want) {
			t.Errorf("%v: status %d, stderr %q, files %v, want %v", tc.args, status, stderr, names, tc.want)
		}
	}
	empty := labRun(t, 1, func(s *labtest.Shape) {
		s.Change = func(r *archive.Run, _ *archive.Environments) {
			for i := range r.Points {
				r.Points[i].Repeats = nil
			}
		}
	})
	status, _, stderr := runLab(t, "plot", empty)
	checkRefused(t, status, stderr, exitCannot, "has nothing to draw")
}

// A regression of a quarter is reported by its condition, with status 1; the same run is not.
func TestLabCompare(t *testing.T) {
	a, b := labRun(t, 1, nil), labRun(t, 2, func(s *labtest.Shape) { s.Slower = 1.25 })
	status, stdout, stderr := runLab(t, "compare", a, b, "--fail-if", "p99 > +10%", "--fail-if", "throughput < -5%")
	if status != exitFailed || stderr != "millrace: 4 of 8 conditions are broken\n" || strings.Count(stdout, "BROKEN") != 4 || strings.Count(stdout, "holds") != 4 {
		t.Errorf("status %d, stderr %q\n%s", status, stderr, stdout)
	}
	for _, want := range []string{"async, 1000/s", "95 % interval", "p99", "worse", "CPU/op"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if status, stdout, stderr := runLab(t, "compare", a, a, "--fail-if", "p99 > +10%", "--where", "pipeline=async"); status != exitOK || stderr != "" || strings.Contains(stdout, "basic") {
		t.Errorf("with itself: status %d, stderr %q\n%s", status, stderr, stdout)
	}
	if status, stdout, _ := runLab(t, "compare", a, b, "--json"); status != exitOK || !strings.HasPrefix(stdout, "{") || !strings.Contains(stdout, `"verdict": "worse"`) {
		t.Errorf("JSON: status %d, %s", status, stdout)
	}
}

// Each refusal has its status and one sentence.
func TestLabRefuses(t *testing.T) {
	good := labRun(t, 1, nil)
	few := labRun(t, 2, func(s *labtest.Shape) { s.Repeats = 3 })
	other := labRun(t, 3, func(s *labtest.Shape) {
		s.Change = func(_ *archive.Run, env *archive.Environments) { env.Load.Kernel = "7.0" }
	})
	damaged := labRun(t, 4, nil)
	if err := os.Truncate(filepath.Join(damaged, archive.ResultFile), 100); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"report"}, exitUsage, "want one directory of a run or several, have none"},
		{[]string{"report", "/does/not/exist"}, exitCannot, "/does/not/exist has no result.json"},
		{[]string{"report", good, damaged}, exitDamaged, "result.json: unexpected end"},
		{[]string{"report", good, "--out", "/does/not/exist/x.html"}, exitCannot, "cannot create /does/not/exist/x.html"},
		{[]string{"plot", damaged}, exitDamaged, "the results are damaged"},
		{[]string{"plot", good, good}, exitUsage, "want one directory of a run, have 2"},
		{[]string{"compare", good}, exitUsage, "want the directories of two runs, have 1"},
		{[]string{"compare", good, other}, exitCannot, "--force: the runs were made in different environments"},
		{[]string{"compare", good, few, "--fail-if", "p99 > +10%"}, exitCannot, "4 of 4 conditions cannot be judged: they need 6 repeats"},
		{[]string{"compare", good, good, "--fail-if", "p99 > 10"}, exitUsage, `--fail-if: "p99 > 10" is no condition`},
		{[]string{"compare", good, good, "--fail-if", "speed > 10%"}, exitUsage, "--fail-if: \"speed > 10%\": there is no figure speed"},
		{[]string{"compare", good, good, "--where", "pipeline"}, exitUsage, `--where: "pipeline" is not a label`},
		{[]string{"compare", good, good, "--where", "rate=1", "--where", "rate=2"}, exitUsage, "--where: rate is there twice"},
		{[]string{"compare", good, good, "--where", "rate=7"}, exitUsage, "--where: no point has these labels"},
	} {
		status, _, stderr := runLab(t, tc.args...)
		checkRefused(t, status, stderr, tc.status, tc.want)
	}
	if status, stdout, _ := runLab(t, "compare", good, other, "--force"); status != exitOK || !strings.Contains(stdout, "WARNING: another environment: kernel: 6.1.0 and 7.0") {
		t.Errorf("forced: status %d\n%s", status, stdout)
	}
}

// A page that cannot be written whole leaves the one of before.
func TestLabReportIsAllOrNothing(t *testing.T) {
	dir := labRun(t, 1, nil)
	if status, _, stderr := runLab(t, "report", dir); status != exitOK {
		t.Fatalf("status %d, %s", status, stderr)
	}
	before, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.hlog"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	for _, log := range logs {
		if err := os.Truncate(log, 300); err != nil {
			t.Fatal(err)
		}
	}
	status, _, stderr := runLab(t, "report", dir)
	checkRefused(t, status, stderr, exitDamaged, "the results are damaged")
	after, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err != nil || string(after) != string(before) {
		t.Errorf("the page of before has changed (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(dir, reportFile+".pending")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part of the page is left: %v", err)
	}
}
