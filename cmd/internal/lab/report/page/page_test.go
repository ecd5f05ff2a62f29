package page

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

var keep = flag.String("keep", "", "write the pages and pictures of the tests to this directory, to look at them")

// written makes an archive of each shape and returns the page of all.
func written(t *testing.T, name string, shapes ...labtest.Shape) string {
	t.Helper()
	var archives []*archive.Archive
	for _, s := range shapes {
		dir := filepath.Join(t.TempDir(), "run")
		labtest.WriteArchive(t, dir, s)
		archives = append(archives, read(t, dir))
	}
	return pageOf(t, name, archives...)
}

func read(t *testing.T, dir string) *archive.Archive {
	t.Helper()
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pageOf(t *testing.T, name string, archives ...*archive.Archive) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, archives); err != nil {
		t.Fatal(err)
	}
	if *keep != "" {
		if err := os.WriteFile(filepath.Join(*keep, name+".html"), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// small is a sweep of two loads.
func small() labtest.Shape {
	s := labtest.Sweep()
	s.Rates, s.Repeats, s.Seconds = []float64{1000, 16000}, 1, 4
	return s
}

// swept is a sweep of five loads, a copy of one that the tests share.
func swept(t *testing.T) *archive.Archive {
	t.Helper()
	once.Do(func() {
		s := labtest.Sweep()
		s.Repeats, s.Seconds = 2, 6
		labtest.WriteArchive(t, filepath.Join(shared, "run"), s)
	})
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(shared, "run"))); err != nil {
		t.Fatal(err)
	}
	return read(t, dir)
}

var (
	once   sync.Once
	shared string // a directory of all tests
)

// outside is what makes a browser ask for something.
var outside = regexp.MustCompile(`(?i)https?:|//[a-z0-9]|\bsrc\s*=|href\s*=\s*"[^#]|url\(|@import|<link|<iframe|<object|<embed|<img|xmlns|javascript:|<script>|\son\w+\s*=`)

// The page opens without a network: no script, no address, nothing to fetch.
func TestNoOutsideReference(t *testing.T) {
	html := written(t, "two", small(), labtest.Shape{
		Seed: 2, Recipe: "b0", Pipelines: []string{"async"}, Rates: []float64{4000}, Repeats: 1, Seconds: 4,
	})
	if found := outside.FindString(html); found != "" {
		t.Errorf("the page has %q", found)
	}
	if strings.Count(html, "<script") != 1 || !strings.Contains(html, `<script type="application/json" id="data">`) {
		t.Error("the page has another script than its data")
	}
}

// What comes from a run cannot become part of the page, wherever it is shown.
func TestTextIsEscaped(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(1)>"'`
	s := small()
	s.Change = func(r *archive.Run, env *archive.Environments) {
		r.Summary, r.Command, r.Omitted = evil, []string{evil}, []string{evil}
		r.Config[evil] = evil
		r.Warnings = []archive.Warning{{Code: "odd", Text: evil}}
		r.Criteria[0].Name, r.Criteria[0].Note, r.References[0].What = evil, evil, evil
		env.Load.CPU = evil
		for i := range r.Points {
			p := &r.Points[i]
			p.Name += evil
			p.Labels["log"] = evil + p.Labels["pipeline"]
			for j := range p.Repeats {
				p.Repeats[j].Phases[0].Name = evil
				p.Repeats[j].Errors[evil] = 3
			}
		}
		r.Criteria[0].Point, r.References[0].Point = r.Points[0].Name, ""
	}
	html := written(t, "evil", s)
	if strings.Contains(html, "<img") || strings.Contains(html, "alert(1)</script><") || strings.Count(html, "<script") != 1 {
		t.Error("text of a run became part of the page")
	}
	if strings.Count(html, "alert(1)") < 20 {
		t.Error("text of the run is not shown")
	}
}

// embedded decodes the data of a page.
func embedded(t *testing.T, html string) []data {
	t.Helper()
	_, rest, _ := strings.Cut(html, `<script type="application/json" id="data">`)
	text, _, ok := strings.Cut(rest, "</script>")
	if !ok {
		t.Fatal("the page has no data")
	}
	var all []data
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// svgs returns the drawings of a page by the title of their figures. Each must be well-formed.
func svgs(t *testing.T, html string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?s)<figcaption>(.*?)</figcaption>\s*(<svg.*?</svg>)`).FindAllStringSubmatch(html, -1) {
		dec := xml.NewDecoder(strings.NewReader(m[2]))
		for {
			_, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", m[1], err)
			}
		}
		if strings.Contains(m[2], "NaN") || strings.Contains(m[2], "Inf") {
			t.Errorf("%s: a coordinate is no number", m[1])
		}
		all[m[1]] = m[2]
	}
	return all
}

// Each chart that a sweep calls for is drawn, has its data, and the data are the archive's medians.
func TestChartsHaveTheirData(t *testing.T) {
	html := pageOf(t, "sweep", swept(t))
	all := embedded(t, html)
	if len(all) != 1 || all[0].Recipe != "rafttoy" || all[0].Environment.Load.CPU != "Example CPU @ 3.0 GHz" {
		t.Fatalf("data of %d runs: %+v", len(all), all)
	}
	drawn := svgs(t, html)
	have := map[string]chartData{}
	for _, c := range all[0].Charts {
		have[c.Title] = c
		if drawn[c.Title] == "" {
			t.Errorf("%q has data and no drawing", c.Title)
		}
	}
	for _, title := range []string{
		"p50 against throughput", "p99 against throughput", "p99.9 against throughput", "ops/s by rate", "p99 by rate", "Latency by percentile",
		"async, rate 16,000, write", "ops/s over time", "p50 over time", "p99 over time", "processors in use over time", "resident memory over time", "live heap over time", "fsyncs/s over time",
	} {
		c, ok := have[title]
		if !ok {
			t.Errorf("no chart %q", title)
			continue
		}
		want := 3
		if strings.HasPrefix(title, "async") {
			want = 1
		}
		if len(c.Lines) != want {
			t.Errorf("%q has %d lines, want %d", title, len(c.Lines), want)
		}
		for _, l := range c.Lines {
			if len(l.X) < 5 || len(l.X) != len(l.Y) {
				t.Errorf("%q: line %s has %d and %d coordinates", title, l.Name, len(l.X), len(l.Y))
			}
			if want == 3 && strings.Count(drawn[title], `data-line="`+l.Name+`"`) != 1 {
				t.Errorf("%q: line %s is not drawn once", title, l.Name)
			}
		}
	}
}

// The middle line of the knee chart is what the repeats say.
func TestKneeIsTheMedian(t *testing.T) {
	a := swept(t)
	for _, c := range embedded(t, pageOf(t, "knee", a))[0].Charts {
		if c.Title != "p99 against throughput" {
			continue
		}
		for i, p := range a.Run.Points[10:] { // async
			x, _ := p.Median("ops_per_sec")
			y, _ := p.Median("p99_us")
			low, high, _ := p.Range("p99_us")
			l := c.Lines[2]
			if l.Name != "async" || l.X[i] != x || l.Y[i] != y || l.Bounds[i] != [2]float64{low, high} {
				t.Errorf("point %d of %s is at %v, %v, bounds %v; want %v, %v, [%v %v]", i, l.Name, l.X[i], l.Y[i], l.Bounds[i], x, y, low, high)
			}
		}
		return
	}
	t.Error("no chart")
}

// Tables: criteria with their verdicts, the source's figures, warnings, and that the run was cut short.
func TestPageSaysWhatTheRunSays(t *testing.T) {
	s := small()
	s.Change = func(r *archive.Run, _ *archive.Environments) {
		r.Partial = true
		r.Warnings = append(r.Warnings, archive.Warning{Code: archive.WarnInMemory, Text: "the transport is memory"})
	}
	html := written(t, "partial", s)
	for _, want := range []string{
		"PARTIAL", `<b>in-memory</b> the transport is memory`, `<td class="l pass">pass</td>`, `<td class="l fail">fail</td>`, `<td class="l not-measured">not-measured</td>`,
		"16.0 MB/s", "5.90 MB/s", "0.369 ×", "the source gives no number", "Left out: five nodes.", "millrace lab run rafttoy quick",
		"saturated", "CRC-32C 19.0 GB/s", "fdatasync: p50 130 µs", "<td class=\"l\">timeout</td>",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// A run of which nothing was finished still has a page, with its environment.
func TestNothingFinished(t *testing.T) {
	s := small()
	s.NoHistograms = true
	s.Change = func(r *archive.Run, _ *archive.Environments) {
		r.Partial = true
		for i := range r.Points {
			r.Points[i].Repeats[0].Partial = true
		}
	}
	html := written(t, "nothing", s)
	if strings.Contains(html, "<figure>") || !strings.Contains(html, "Example CPU") {
		t.Error("want a page with the environment and without charts")
	}
}

// A damaged file of histograms is an error and not a page with a chart less.
func TestDamagedHistograms(t *testing.T) {
	a := swept(t)
	for _, p := range a.Run.Points {
		for _, r := range p.Repeats {
			if err := os.Truncate(filepath.Join(a.Dir, r.Histograms), 400); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Write(io.Discard, []*archive.Archive{a}); err == nil || !strings.Contains(err.Error(), "line 5") {
		t.Errorf("%v", err)
	}
}

// Repeats whose phases differ, as those with an event do, have a chart each with the event in it.
func TestPhasesOfEachRepeat(t *testing.T) {
	s := small()
	s.Change = func(r *archive.Run, _ *archive.Environments) {
		for i := range r.Points {
			repeat := &r.Points[i].Repeats[0]
			repeat.Phases = append(repeat.Phases[:1:1], archive.Phase{Name: "one <killed>", FromSec: float64(i), ToSec: float64(i) + 2})
		}
	}
	html := written(t, "phases", s)
	for title, svg := range svgs(t, html) {
		if strings.HasSuffix(title, ": ops/s over time") {
			if strings.Count(svg, `<rect class="band"`) != 2 || !strings.Contains(svg, "one &lt;killed&gt;") {
				t.Errorf("%q does not show its event", title)
			}
		}
	}
	if n := strings.Count(html, ": ops/s over time</figcaption>"); n != 3 {
		t.Errorf("%d charts of single repeats, want one for each line", n)
	}
}
