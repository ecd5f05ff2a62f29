package page

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

func viewRead(t *testing.T, s labtest.Shape) *View {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	labtest.WriteArchive(t, dir, s)
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ViewOf(a)
}

func viewSmall() labtest.Shape {
	return labtest.Shape{Seed: 1, Recipe: "rafttoy", Pipelines: []string{"basic", "async"}, Rates: []float64{1000, 8000}, Repeats: 3, Seconds: 3}
}

// The Markdown of a run, whole: warnings, tables, environment, and the command that does it again.
func TestMarkdown(t *testing.T) {
	s := viewSmall()
	s.Change = func(r *archive.Run, _ *archive.Environments) {
		r.Partial = true
		r.Points[0].Repeats[0].Warnings = []archive.Warning{{Code: archive.WarnNotDurable, Text: "No fsync was made."}}
		r.Criteria[1].Note = "a | b\nc"
	}
	v := viewRead(t, s)
	v.Dir = "/runs/x"
	var b strings.Builder
	if err := v.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	labtest.Golden(t, "run.md", []byte(b.String()))
}

// made returns a run with points of the given labels ("clients=1 nodes=3") and throughputs.
func made(points ...any) *View {
	r := &archive.Run{Recipe: "b0", Metrics: archive.StandardMetrics()}
	for i := 0; i < len(points); i += 2 {
		p := archive.Point{Name: fmt.Sprint(i), Labels: map[string]string{}}
		for _, label := range strings.Fields(points[i].(string)) {
			name, value, _ := strings.Cut(label, "=")
			p.Labels[name] = value
		}
		p.Repeats = []archive.Repeat{{Figures: map[string]float64{archive.OpsPerSec.Name: float64(points[i+1].(int))}}}
		r.Points = append(r.Points, p)
	}
	return ViewOf(&archive.Archive{Run: r})
}

// Families differ in more than load; a label that all share is in no name; loads are in the order of numbers.
func TestFamilies(t *testing.T) {
	v := made("clients=16 nodes=3 log=memory", 5, "clients=9 nodes=3 log=memory", 4, "clients=1 nodes=5 log=memory", 1, "rate=100 nodes=5 log=memory", 2)
	var have []string
	for _, f := range v.Families {
		line := f.Name + ":"
		for _, p := range f.Points {
			line += " " + p.Labels["clients"] + p.Labels["rate"]
		}
		have = append(have, line)
	}
	if got, want := strings.Join(have, "; "), "nodes 3, closed loop: 9 16; nodes 5, closed loop: 1; nodes 5, open loop: 100"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if fmt.Sprint(v.Common) != "map[log:memory]" || fmt.Sprint(v.Varying) != "[nodes clients rate]" || fmt.Sprint(v.LoadLabels()) != "[clients rate]" {
		t.Errorf("common %v, varying %v, loads %v", v.Common, v.Varying, v.LoadLabels())
	}
}

// A label can be an axis if all its values are numbers or durations.
func TestNumericLabels(t *testing.T) {
	v := made("fsync_delay=0s log=a mixed=1", 1, "fsync_delay=2ms log=b mixed=x", 2)
	if fmt.Sprint(v.NumericLabels()) != "[fsync_delay]" {
		t.Errorf("%v", v.NumericLabels())
	}
	if x, ok := Number("2ms"); !ok || x != 2000 {
		t.Errorf("2ms is %v, %v", x, ok)
	}
	if curves := made("log=a clients=1", 1, "log=b clients=2", 2).Knee(archive.OpsPerSec); curves != nil {
		t.Errorf("%v has no knee", curves)
	}
	if curves := made("log=a clients=1", 1, "log=a clients=2", 2, "log=b clients=1", 3).Knee(archive.OpsPerSec); len(curves) != 2 {
		t.Errorf("%v, want a curve of two points and one beside it", curves)
	}
	v = made("nodes=5 clients=1", 10, "nodes=1 clients=1", 30, "nodes=3 clients=1", 20, "nodes=3 clients=9", 70)
	curves := v.By(archive.LabelNodes, archive.OpsPerSec)
	if len(curves) != 1 || curves[0].Name != "clients 1" || fmt.Sprint(curves[0].Places) != "[{1 30 30 30} {3 20 20 20} {5 10 10 10}]" {
		t.Errorf("%v; a group of one point makes no curve", curves)
	}
}

// The point that stands for a family is the fastest that was not saturated; if all were, the fastest.
func TestTypical(t *testing.T) {
	v := made("clients=1", 10, "clients=2", 30, "clients=3", 40)
	saturate := func(i int) {
		v.Run.Points[i].Warnings = []archive.Warning{{Code: archive.WarnSaturated, Text: "x"}}
	}
	for _, want := range []string{"3", "2", "1", "3"} {
		p, r := v.Families[0].Typical()
		if p == nil || r == nil || p.Labels["clients"] != want {
			t.Errorf("%v stands for the family, want %s clients", p, want)
		}
		switch want {
		case "3":
			saturate(2)
		case "2":
			saturate(1)
		case "1":
			saturate(0)
		}
	}
	v.Run.Points[0].Repeats, v.Run.Points[1].Repeats, v.Run.Points[2].Repeats[0].Partial = nil, nil, true
	if p, r := v.Families[0].Typical(); p != nil || r != nil {
		t.Errorf("%v stands for a family of which nothing was finished", p)
	}
	if _, err := v.Standings(8); err != ErrNoRepeat {
		t.Errorf("%v", err)
	}
}

// ViewOf many families the fastest are chosen, and stay in the order of the run.
func TestStandingsAreTheFastest(t *testing.T) {
	v := made("log=a", 10, "log=b", 40, "log=c", 20, "log=d", 40, "log=e", 40)
	standings, err := v.Standings(3)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range standings {
		names = append(names, s.Name())
	}
	if strings.Join(names, "") != "bde" {
		t.Errorf("%v", names)
	}
}

// Only the phase measure is in the percentiles, and no part of a latency is taken for an operation.
func TestOperations(t *testing.T) {
	dir := t.TempDir()
	w, err := archive.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	began := labtest.ArchiveBegan()
	log, err := w.Histograms("x", began)
	if err != nil {
		t.Fatal(err)
	}
	for second, us := range []int64{9000, 100, 200, 9000} {
		for _, tag := range []string{"write", "write" + archive.TagLag, "read"} {
			h := hdrhistogram.New(100, int64(time.Minute), 3)
			for range 10 {
				_ = h.RecordValue(us * 1000)
			}
			start := began.Add(time.Duration(second) * time.Second)
			if err := log.Add(archive.Interval{Tag: tag, Start: start, End: start.Add(time.Second), Histogram: h}); err != nil {
				t.Fatal(err)
			}
		}
	}
	name, err := log.Close()
	if err != nil {
		t.Fatal(err)
	}
	v := made("clients=1", 1)
	v.Dir = dir
	repeat := &v.Run.Points[0].Repeats[0]
	repeat.Began, repeat.Histograms = began, name
	repeat.Phases = []archive.Phase{{Name: archive.PhaseWarmup, ToSec: 1}, {Name: archive.PhaseMeasure, FromSec: 1.3, ToSec: 2.8}}
	operations, err := v.Operations(repeat)
	if err != nil || len(operations) != 2 || operations[0].Tag != "write" || operations[1].Tag != "read" {
		t.Fatalf("%v, %v", operations, err)
	}
	m := operations[0].Measured
	if len(operations[0].Intervals) != 4 || m.TotalCount() != 20 || m.Max() > 201_000 {
		t.Errorf("%d intervals, %d latencies up to %d ns in the measurement", len(operations[0].Intervals), m.TotalCount(), m.Max())
	}
	quantiles := Quantiles(m)
	last := quantiles[len(quantiles)-1]
	if quantiles[0].N != 1 || last.N != 20 || math.Abs(last.Us-200) > 1 || math.Abs(quantiles[0].Us-100) > 1 {
		t.Errorf("from %+v to %+v", quantiles[0], last)
	}
	for i := range quantiles[1:] {
		if quantiles[i+1].N <= quantiles[i].N || quantiles[i+1].Us < quantiles[i].Us {
			t.Errorf("%+v comes after %+v", quantiles[i+1], quantiles[i])
		}
	}
}

// One band stands for the phases of several repeats only if they are alike.
func TestPhases(t *testing.T) {
	standing := func(seconds float64) Standing {
		return Standing{Repeat: &archive.Repeat{Phases: []archive.Phase{{Name: "measure", FromSec: 1, ToSec: seconds}}}}
	}
	if p := Phases([]Standing{standing(10), standing(10.5)}); len(p) != 1 {
		t.Errorf("%v", p)
	}
	if p := Phases([]Standing{standing(10), standing(20)}); p != nil {
		t.Errorf("%v", p)
	}
}

// A curve of a day keeps its spikes and its gaps, its order, and a bounded length.
func TestThin(t *testing.T) {
	var day []Place
	for i := range 86_400 {
		y := 100 + math.Sin(float64(i))
		switch {
		case i == 40_000:
			y = 9000
		case i == 50_000:
			y = 1
		case i >= 60_000 && i < 61_000:
			y = math.NaN()
		}
		day = append(day, Place{X: float64(i), Y: y})
	}
	kept := thin(day)
	low, high, gaps := math.Inf(1), 0.0, 0
	for i, p := range kept {
		if i > 0 && p.X <= kept[i-1].X {
			t.Fatalf("%v comes after %v", p.X, kept[i-1].X)
		}
		if math.IsNaN(p.Y) {
			gaps++
			continue
		}
		low, high = min(low, p.Y), max(high, p.Y)
	}
	if len(kept) > maxPlaces || low != 1 || high != 9000 || gaps < 5 {
		t.Errorf("%d places from %v to %v with %d gaps", len(kept), low, high, gaps)
	}
	if short := day[:maxPlaces]; len(thin(short)) != maxPlaces {
		t.Error("a short curve was thinned")
	}
}
