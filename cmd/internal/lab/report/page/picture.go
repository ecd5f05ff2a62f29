// Pictures draw an archive for README files and pages: one picture in each file, as SVG or PNG, with
// colours and fonts of its own, because there is no style sheet where it will be shown. It draws the same
// curves as the page does.

package page

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

var colors = []color.RGBA{Blue, Vermillion, Green, Purple, Grey}

// Pictures is the pictures of one archive, in one format.
type Pictures struct {
	view   *View
	format string
}

// PicturesOf returns the pictures of an archive. The format is one of package report.
func PicturesOf(a *archive.Archive, format string) *Pictures { return &Pictures{ViewOf(a), format} }

// maxCurves is how many curves a picture shows: names of more would lie over them. The page has them all.
const maxCurves = 16

// Outputs implements report.Files: throughput by each load, p99 against throughput, latency by percentile. A
// picture without a curve, or with too many, is left out. A nil Set has the names that are known before.
func (s *Pictures) Outputs() []report.Output {
	if s == nil {
		return nil
	}
	var all []report.Output
	add := func(name string, curves int, draw func(io.Writer) error) {
		if curves > 0 && curves <= maxCurves {
			all = append(all, report.Output{Name: name + "." + s.format, Write: draw})
		}
	}
	for _, label := range s.view.NumericLabels() {
		curves := s.view.By(label, archive.OpsPerSec)
		add("throughput-by-"+strings.ReplaceAll(label, "_", "-"), len(curves), func(w io.Writer) error { return s.throughput(w, label, curves) })
	}
	if len(s.view.LoadLabels()) > 0 {
		curves := s.view.Knee(archive.P99Us)
		add("latency", len(curves), func(w io.Writer) error { return s.knee(w, curves) })
	}
	if standings, err := s.view.Standings(len(colors)); err == nil {
		curves := Percentiles(standings)
		add("percentiles", len(curves), func(w io.Writer) error { return s.percentiles(w, curves) })
	} else if !errors.Is(err, ErrNoRepeat) {
		add("percentiles", 1, func(io.Writer) error { return err }) // a damaged file must be heard of
	}
	return all
}

func (s *Pictures) title(what string) string {
	title := fmt.Sprintf("%s: %s", s.view.Run.Recipe, what)
	var codes []string
	for _, w := range s.view.Warnings() {
		codes = append(codes, w.Code)
	}
	if len(codes) > 0 {
		title += " [" + strings.Join(codes, ", ") + "]"
	}
	return title
}

func (s *Pictures) throughput(w io.Writer, label string, curves []Curve) error {
	f := NewFigure(s.title("throughput"), LabelText(label), "acknowledged operations per second")
	for i, c := range curves {
		if err := add(f, i, c, 1); err != nil {
			return err
		}
		var bars []Bar
		for _, p := range c.Places {
			bars = append(bars, Bar{X: p.X, Low: p.Low, High: p.Top})
		}
		if err := f.AddBars(colors[i%len(colors)], bars); err != nil {
			return err
		}
	}
	return f.WriteAs(w, s.format, xs(curves)...)
}

const usPerMs = 1000

func (s *Pictures) knee(w io.Writer, curves []Curve) error {
	f := NewFigure(s.title("p99 against throughput"), "acknowledged operations per second", "p99 latency in ms")
	for i, c := range curves {
		if err := add(f, i, c, usPerMs); err != nil {
			return err
		}
	}
	return f.WriteAs(w, s.format)
}

func (s *Pictures) percentiles(w io.Writer, curves []Curve) error {
	f := NewFigure(s.title("latency by percentile"), "share of operations that took no longer", "latency in ms")
	last := 1.0
	for i, c := range curves {
		var points Points
		for _, p := range c.Places {
			points = append(points, Point{X: p.X, Y: p.Y / usPerMs})
			last = max(last, p.X)
		}
		if err := f.AddPlain(c.Name, colors[i%len(colors)], points, i >= len(colors)); err != nil {
			return err
		}
	}
	for _, t := range PercentileTicks() {
		if t.N <= last {
			f.LabelX(t.N, t.Label)
		}
	}
	return f.WriteAs(w, s.format)
}

// add draws a curve in its colour; those beyond the colours are dashed.
func add(f *PlotFigure, i int, c Curve, divisor float64) error {
	var points Points
	for _, p := range c.Places {
		points = append(points, Point{X: p.X, Y: p.Y / divisor})
	}
	return f.Add(c.Name, colors[i%len(colors)], points, i >= len(colors))
}

func xs(curves []Curve) []float64 {
	const maxTicks = 12
	seen := map[float64]bool{}
	var all []float64
	for _, c := range curves {
		for _, p := range c.Places {
			if p.X > 0 && !seen[p.X] {
				seen[p.X] = true
				all = append(all, p.X)
			}
		}
	}
	if len(all) > maxTicks {
		return nil
	}
	return all
}
