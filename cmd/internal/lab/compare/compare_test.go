package compare

import (
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

func shape(seed uint64) labtest.Shape {
	return labtest.Shape{Seed: seed, Recipe: "rafttoy", Pipelines: []string{"async"}, Rates: []float64{1000, 4000}, Repeats: 8, Seconds: 2, NoHistograms: true}
}

func read(t *testing.T, s labtest.Shape) *archive.Archive {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	labtest.WriteArchive(t, dir, s)
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func compared(t *testing.T, a, b *archive.Archive) *Comparison {
	t.Helper()
	c, err := Of(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func row(t *testing.T, c *Comparison, point, metric string) Row {
	t.Helper()
	for _, p := range c.Points {
		for _, r := range p.Rows {
			if p.Name == point && r.Metric.Name == metric {
				return r
			}
		}
	}
	t.Fatalf("no %s of %s", metric, point)
	return Row{}
}

func conditions(t *testing.T, texts ...string) []Condition {
	t.Helper()
	var all []Condition
	for _, text := range texts {
		c, err := ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// A run that is a quarter slower: latency and processor time are worse, significantly, at every point, and
// the allocations have not changed. The other way round they are better.
func TestSlowerIsWorse(t *testing.T) {
	slow := shape(2)
	slow.Slower = 1.25
	a, b := read(t, shape(1)), read(t, slow)
	c := compared(t, a, b)
	if len(c.Points) != 2 || c.Few || len(c.OnlyA)+len(c.OnlyB) > 0 {
		t.Fatalf("%+v", c)
	}
	for _, p := range c.Points {
		for _, metric := range []string{"p50_us", "p99_us", "cpu_us_per_op"} {
			r := row(t, c, p.Name, metric)
			if r.Verdict() != "worse" || r.Delta < 0.15 || r.Delta > 0.35 || r.P >= 0.05 {
				t.Errorf("%s, %s: %s by %v, p=%v", p.Name, metric, r.Verdict(), r.Delta, r.P)
			}
			if !(r.A.Low <= r.A.Median && r.A.Median <= r.A.High && r.A.N == 8) || math.IsInf(r.A.High, 0) {
				t.Errorf("%s, %s: %+v", p.Name, metric, r.A)
			}
		}
		if r := row(t, c, p.Name, "allocs_per_op"); r.Verdict() != "" || r.Delta != 0 {
			t.Errorf("allocations: %s by %v", r.Verdict(), r.Delta)
		}
	}
	if r := row(t, compared(t, b, a), "async, 1000/s", "p99_us"); r.Verdict() != "better" || r.Delta > 0 {
		t.Errorf("the other way round: %s by %v", r.Verdict(), r.Delta)
	}
	findings, err := c.Judge(conditions(t, "p99 > +10%", "cpu_us_per_op > 40%", "throughput < -5%"))
	if err != nil || len(findings) != 6 {
		t.Fatalf("%d findings, %v", len(findings), err)
	}
	for _, f := range findings {
		if want := f.Condition.Metric == "p99"; f.Broken != want || f.Undecided {
			t.Errorf("%v at %s: broken %v, undecided %v", f.Condition, f.Point, f.Broken, f.Undecided)
		}
	}
}

// Of runs that differ in nothing but chance, a change beyond ten per cent is rare: none of a hundred here.
func TestChanceBreaksNothing(t *testing.T) {
	a := read(t, shape(1))
	want := conditions(t, "p50 > +10%", "cpu > +10%", "throughput < -10%", "fsyncs > +10%", "allocs > +10%")
	for seed := range uint64(10) {
		findings, err := compared(t, a, read(t, shape(seed+10))).Judge(want)
		if err != nil || len(findings) != 10 {
			t.Fatalf("%d findings, %v", len(findings), err)
		}
		for _, f := range findings {
			if f.Broken {
				t.Errorf("seed %d: %v at %s: %v, p=%v", seed, f.Condition, f.Point, f.Row.Delta, f.Row.P)
			}
		}
	}
}

// With five repeats there is no interval, no p and no verdict, and the table says so.
func TestTooFewRepeats(t *testing.T) {
	few, slow := shape(1), shape(2)
	few.Repeats, slow.Repeats, slow.Slower = MinRepeats-1, MinRepeats-1, 3
	c := compared(t, read(t, few), read(t, slow))
	findings, err := c.Judge(conditions(t, "p99 > +10%"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Broken || !f.Undecided {
			t.Errorf("%+v", f)
		}
	}
	var b strings.Builder
	if err := c.WriteTable(&b, false, findings); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"? (n=5)", "fewer than 6 repeats", "undecided  p99 > +10%"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// Figures of two machines are compared only on demand, and then every output says so.
func TestOtherEnvironment(t *testing.T) {
	other := shape(2)
	other.Change = func(r *archive.Run, env *archive.Environments) {
		env.Load.CPU = "Another CPU"
		r.Warnings = []archive.Warning{{Code: archive.WarnTmpfs, Text: "the files were in memory"}}
	}
	a, b := read(t, shape(1)), read(t, other)
	_, err := Of(a, b, Options{})
	var field *lab.FieldError
	if !errors.As(err, &field) || field.Field != "Force" || !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "processor: Example CPU @ 3.0 GHz and Another CPU") {
		t.Fatalf("%v", err)
	}
	c, err := Of(a, b, Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	var table, text strings.Builder
	if err := errors.Join(c.WriteTable(&table, true, nil), c.WriteJSON(&text, nil)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"WARNING: another environment: processor", "WARNING: B is tmpfs"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	var decoded struct {
		Differences []string `json:"environment_differences"`
		Rows        []jsonRow
	}
	if err := json.Unmarshal([]byte(text.String()), &decoded); err != nil || len(decoded.Differences) != 1 || len(decoded.Rows) < 20 {
		t.Errorf("%+v, %v", decoded.Differences, err)
	}
}

// Points are matched by labels; what only one run has is named, and nothing in common is refused.
func TestPointsInCommon(t *testing.T) {
	more, none := shape(2), shape(3)
	more.Rates = []float64{4000, 8000}
	none.Pipelines = []string{"basic"}
	a, b := read(t, shape(1)), read(t, more)
	c := compared(t, a, b)
	if len(c.Points) != 1 || c.Points[0].Name != "async, 4000/s" || strings.Join(c.OnlyA, "") != "async, 1000/s" || strings.Join(c.OnlyB, "") != "async, 8000/s" {
		t.Errorf("%+v, only A %q, only B %q", c.Points, c.OnlyA, c.OnlyB)
	}
	if _, err := Of(a, read(t, none), Options{}); !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "no point in common") {
		t.Errorf("%v", err)
	}
	if c, err := Of(a, b, Options{Where: map[string]string{"rate": "4000"}}); err != nil || len(c.OnlyA)+len(c.OnlyB) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Of(a, b, Options{Where: map[string]string{"rate": "5"}}); !errors.Is(err, lab.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// A change from nothing has no percentage, is beyond every limit, and is no number in JSON.
func TestChangeFromZero(t *testing.T) {
	m := archive.Failed
	r := rowOf(m, []float64{0, 0, 0, 0, 0, 0}, []float64{1, 2, 3, 4, 5, 6})
	if !math.IsInf(r.Delta, 1) || r.Verdict() != "worse" || finite(r.Delta) != nil || percent(r.Delta) != "from 0" {
		t.Errorf("%+v is %s", r, r.Verdict())
	}
	if f := conditions(t, "failed > +1000%")[0].judge("x", r); !f.Broken {
		t.Errorf("%+v", f)
	}
	if r := rowOf(m, []float64{0, 0, 0, 0, 0, 0}, []float64{0, 0, 0, 0, 0, 0}); r.Delta != 0 || r.Verdict() != "" {
		t.Errorf("%+v", r)
	}
}

func TestParseCondition(t *testing.T) {
	for text, want := range map[string]string{
		"p99 > +10%":        "p99 up 0.1",
		"p99>10%":           "p99 up 0.1",
		"throughput < -5 %": "throughput down -0.05",
		"p99.9 > +0.5%":     "p99.9 up 0.005",
		"p99 < 0%":          "p99 down 0",
		"p99 > -10%":        "would be broken by what has not changed",
		"p99 < 10%":         "would be broken by what has not changed",
		"p99 < +0%":         "would be broken by what has not changed",
		"p99 > 10":          "is no condition",
		"p99 >= 10%":        "is no condition",
		"> 10%":             "is no condition",
		"p99 > 1e3%":        "is no condition",
		"p99 > 9999999%":    "is not between",
		"p99 < -101%":       "is not between",
		"":                  "is no condition",
	} {
		c, err := ParseCondition(text)
		have := c.Metric + map[bool]string{true: " up ", false: " down "}[c.Rise] + strings.TrimSpace(jsonNumber(c.Limit))
		if err != nil {
			have = err.Error()
		}
		if !strings.Contains(have, want) {
			t.Errorf("%q: %s, want %s", text, have, want)
		}
	}
}

func jsonNumber(v float64) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// A condition names a figure as tables do, or in full; a name that fits two is refused with both.
func TestResolve(t *testing.T) {
	metrics := append(archive.StandardMetrics(), archive.Metric{Name: "gap_us"}, archive.Metric{Name: "gap_s"})
	for text, want := range map[string]string{
		"p99": "p99_us", "p99.9": "p999_us", "p999_us": "p999_us", "throughput": "ops_per_sec", "ops": "ops", "allocs": "allocs_per_op",
		"cpu": "cpu_us_per_op", "disk": "disk_bytes_per_op", "fsyncs": "may be fsyncs_per_op or fsyncs_per_sec", "gap": "may be gap_us or gap_s", "nonsense": "there is no figure nonsense; there are allocs_per_op",
	} {
		m, err := conditions(t, text+" > +1%")[0].resolve(metrics)
		have := m.Name
		if err != nil {
			have = err.Error()
		}
		if !strings.Contains(have, want) || (err == nil && have != want) {
			t.Errorf("%q: %s, want %s", text, have, want)
		}
	}
}
