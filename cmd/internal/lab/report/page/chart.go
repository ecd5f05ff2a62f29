// A Chart is drawn as SVG for pages that must open without a network: an element to put into HTML,
// without scripts, fonts or addresses. Colours come from the page's style sheet by class, so that one drawing
// is right on light and on dark ground and in print. Lines differ by dashes too, so that they can be told
// apart on paper and without colours.
//
// Package report draws for README files instead, which have no style sheet.
//
// Rejected: a library of scripts in the page. It draws only where scripts run, so no test without a browser
// can look at the result, and half a megabyte of code would be in each report.

package page

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// MaxLines is how many lines differ from each other in colour and dashes. A caller with more draws several
// charts.
const MaxLines = 8

// Size of the drawing, in the units of its coordinate system. The page scales it.
const (
	width, height = 520.0, 300.0
	left, right   = 70.0, 12.0
	top, bottom   = 10.0, 44.0
)

// Axis is one of the two.
type Axis struct {
	Label string
	Unit  archive.Unit // of the numbers at its ticks
	Log   bool
	// Ticks are the only labelled places, if there are any.
	Ticks []Tick
}

// Tick is a labelled place on an axis.
type Tick struct {
	At    float64
	Label string
}

// ChartPoint is a place on a line. NaN in Y is a gap. If Low and High differ, a bar between them is drawn.
type ChartPoint struct {
	X, Y      float64
	Low, High float64
}

// Line is a named sequence of points. Points that a logarithmic axis cannot show are left out.
type Line struct {
	Name   string
	Points []ChartPoint
	Dots   bool
}

// Band is a stretch of the x axis with a name, drawn behind the lines.
type Band struct {
	From, To float64
	Name     string
}

// Chart is lines over two axes.
type Chart struct {
	Title string
	X, Y  Axis
	Lines []Line
	Bands []Band
}

// Empty reports whether no point of the chart can be drawn.
func (c Chart) Empty() bool {
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if c.visible(p) {
				return false
			}
		}
	}
	return true
}

func (c Chart) visible(p ChartPoint) bool {
	return !math.IsNaN(p.Y) && (!c.X.Log || p.X > 0) && (!c.Y.Log || p.Y > 0)
}

// SVG returns the drawing.
func (c Chart) SVG() string {
	x, y := c.scales()
	var b strings.Builder
	begin(&b, c.Title)
	for i, band := range c.Bands {
		from, to := x.at(band.From), x.at(band.To)
		fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, from, top, max(to-from, 0), height-top-bottom)
		fmt.Fprintf(&b, `<text class="band" x="%.1f" y="%.1f">%s</text>`, from+4, bandTop(i), html.EscapeString(band.Name))
	}
	drawAxes(&b, c.X, c.Y, x, y)
	for i, l := range c.Lines {
		c.draw(&b, i, l, x, y)
	}
	b.WriteString("</svg>")
	return b.String()
}

// bandTop staggers the names of bands, which may be narrower than their names.
func bandTop(i int) float64 { return top + 11 + 11*float64(i%3) }

func begin(b *strings.Builder, title string) {
	fmt.Fprintf(b, `<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
}

// scales fits both axes around all points, their bars and the bands.
func (c Chart) scales() (x, y scale) {
	x, y = newScale(c.X.Log, left, width-right), newScale(c.Y.Log, height-bottom, top)
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if !c.visible(p) {
				continue
			}
			x.include(p.X)
			y.include(p.Y)
			if p.hasBar() {
				y.include(p.Low)
				y.include(p.High)
			}
		}
	}
	for _, band := range c.Bands {
		x.include(band.From)
		x.include(band.To)
	}
	x.fit(len(c.Bands) == 0)
	y.fit(true)
	return x, y
}

func (p ChartPoint) hasBar() bool { return p.High > p.Low }

// stretches cuts a line at its gaps. A stretch of one point has no length, and is drawn as a dot.
func (c Chart) stretches(l Line) [][]ChartPoint {
	var all [][]ChartPoint
	gap := true
	for _, p := range l.Points {
		switch {
		case math.IsNaN(p.Y):
			gap = true
		case !c.visible(p):
		case gap:
			all, gap = append(all, []ChartPoint{p}), false
		default:
			all[len(all)-1] = append(all[len(all)-1], p)
		}
	}
	return all
}

func (c Chart) draw(b *strings.Builder, i int, l Line, x, y scale) {
	class := fmt.Sprintf("c%d", i%MaxLines)
	fmt.Fprintf(b, `<g class="%s" data-line="%s">`, class, html.EscapeString(l.Name))
	var path strings.Builder
	for _, stretch := range c.stretches(l) {
		for j, p := range stretch {
			pen := "L"
			if j == 0 {
				pen = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, x.at(p.X), y.at(p.Y))
		}
		if len(stretch) == 1 && !l.Dots {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2"/>`, x.at(stretch[0].X), y.at(stretch[0].Y))
		}
	}
	fmt.Fprintf(b, `<path class="line" d="%s"/>`, path.String())
	for _, p := range l.Points {
		if !c.visible(p) {
			continue
		}
		if p.hasBar() {
			fmt.Fprintf(b, `<path class="bar" d="M%.1f %.1fV%.1f"/>`, x.at(p.X), y.at(p.Low), y.at(p.High))
		}
		if l.Dots {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3"><title>%s</title></circle>`, x.at(p.X), y.at(p.Y),
				html.EscapeString(fmt.Sprintf("%s: %s at %s", l.Name, label(c.Y, p.Y), label(c.X, p.X))))
		}
	}
	b.WriteString("</g>")
}
