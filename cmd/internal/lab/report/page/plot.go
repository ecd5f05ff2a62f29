// A plot draws lines on logarithmic axes, since clients and latencies span decades.

package page

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter
	margin     = 1.3 // factor between the outermost point and the frame
)

// Colours that differ for colour-blind readers too (Okabe and Ito).
var (
	Grey       = color.RGBA{120, 120, 120, 255}
	Vermillion = color.RGBA{213, 94, 0, 255}
	Blue       = color.RGBA{0, 114, 178, 255}
	Green      = color.RGBA{0, 158, 115, 255}
	Purple     = color.RGBA{204, 121, 167, 255}
	Orange     = color.RGBA{230, 159, 0, 255}
	SkyBlue    = color.RGBA{86, 180, 233, 255}
	Yellow     = color.RGBA{190, 178, 20, 255}
)

// Points of a line. Points that have no place on logarithmic axes are left out by Add.
type Points = plotter.XYs

// Point is one of them.
type Point = plotter.XY

// PlotFigure is a plot under construction, with the box around all its points.
type PlotFigure struct {
	plot       *plot.Plot
	xmin, xmax float64
	ymin, ymax float64
	any        bool
	xTicks     plot.ConstantTicks
}

// NewFigure returns a figure without lines.
func NewFigure(title, xLabel, yLabel string) *PlotFigure {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, xLabel, yLabel
	p.Legend.Top, p.Legend.Left = true, true
	return &PlotFigure{plot: p}
}

// Add draws a line with dots, and names it in the legend.
func (f *PlotFigure) Add(legend string, c color.RGBA, points Points, dashed bool) error {
	return f.add(legend, c, points, dashed, vg.Points(3))
}

// AddPlain is Add without dots.
func (f *PlotFigure) AddPlain(legend string, c color.RGBA, points Points, dashed bool) error {
	return f.add(legend, c, points, dashed, 0)
}

func (f *PlotFigure) add(legend string, c color.RGBA, points Points, dashed bool, dot vg.Length) error {
	points = positive(points)
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = c, c
	line.Width, dots.Radius = vg.Points(1.8), dot
	dots.Shape = draw.CircleGlyph{}
	if dashed {
		line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
	}
	f.plot.Add(line)
	if dot > 0 {
		f.plot.Add(dots)
		f.plot.Legend.Add(legend, line, dots)
	} else {
		f.plot.Legend.Add(legend, line)
	}
	f.include(points)
	return nil
}

// AddThin draws a thin dotted line without a legend.
func (f *PlotFigure) AddThin(c color.RGBA, points Points) error {
	points = positive(points)
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(0.8)
	line.Dashes = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
	f.plot.Add(line)
	f.include(points)
	return nil
}

// positive drops the points that a logarithm does not take.
func positive(points Points) Points {
	return slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return !(p.X > 0 && p.Y > 0) })
}

func (f *PlotFigure) include(points Points) {
	xmin, xmax, ymin, ymax := plotter.XYRange(points)
	if !f.any {
		f.xmin, f.xmax, f.ymin, f.ymax, f.any = xmin, xmax, ymin, ymax, true
		return
	}
	f.xmin, f.xmax = min(f.xmin, xmin), max(f.xmax, xmax)
	f.ymin, f.ymax = min(f.ymin, ymin), max(f.ymax, ymax)
}

// Bar is the range of a figure over several runs.
type Bar struct{ X, Low, High float64 }

// AddBars draws a bar for each range, without a legend.
func (f *PlotFigure) AddBars(c color.RGBA, bars []Bar) error {
	var ranges ranges
	var corners Points
	for _, b := range bars {
		if b.X > 0 && b.Low > 0 && b.High > b.Low {
			ranges = append(ranges, b)
			corners = append(corners, Point{X: b.X, Y: b.Low}, Point{X: b.X, Y: b.High})
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	drawn, err := plotter.NewYErrorBars(ranges)
	if err != nil {
		return err
	}
	drawn.Color, drawn.Width = c, vg.Points(1)
	f.plot.Add(drawn)
	f.include(corners)
	return nil
}

// ranges are bars as gonum wants them: from a place, how far down and how far up.
type ranges []Bar

func (r ranges) Len() int                         { return len(r) }
func (r ranges) XY(i int) (x, y float64)          { return r[i].X, r[i].Low }
func (r ranges) YError(i int) (low, high float64) { return 0, r[i].High - r[i].Low }

// LabelX labels the x axis at one place. Once it was called, there are no other labels.
func (f *PlotFigure) LabelX(at float64, label string) {
	f.xTicks = append(f.xTicks, plot.Tick{Value: at, Label: label})
}

// Formats of pictures.
const (
	SVG = "svg"
	PNG = "png"
)

// Write writes the figure as SVG. If ticks are given, the x axis has labels there, and otherwise at 1, 2 and
// 5 of each decade.
func (f *PlotFigure) Write(w io.Writer, ticks ...float64) error {
	return f.WriteAs(w, SVG, ticks...)
}

// WriteAs is Write for one of the formats.
func (f *PlotFigure) WriteAs(w io.Writer, format string, ticks ...float64) error {
	f.frame()
	if len(ticks) > 0 {
		f.plot.X.Tick.Marker = ticksAt(ticks)
	}
	if len(f.xTicks) > 0 {
		f.plot.X.Tick.Marker = f.xTicks
	}
	to, err := f.plot.WriterTo(plotWidth, plotHeight, format)
	if err != nil {
		return err
	}
	_, err = to.WriteTo(w)
	return err
}

// frame sets logarithmic axes with space around the points; gonum cannot do it for a single point.
func (f *PlotFigure) frame() {
	if !f.any {
		f.xmin, f.xmax, f.ymin, f.ymax = 1, 10, 1, 10
	}
	p := f.plot
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Min, p.X.Max = f.xmin/margin, f.xmax*margin
	p.Y.Min, p.Y.Max = f.ymin/margin, f.ymax*margin
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
}

// logTicks labels 1, 2 and 5 of each decade.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for exp := math.Floor(math.Log10(low)); math.Pow(10, exp) <= high; exp++ {
		for _, m := range []float64{1, 2, 5} {
			if x := m * math.Pow(10, exp); x >= low && x <= high {
				ticks = append(ticks, plot.Tick{Value: x, Label: tickLabel(x)})
			}
		}
	}
	return ticks
}

func ticksAt(values []float64) plot.ConstantTicks {
	values = slices.Clone(values)
	slices.Sort(values)
	var ticks plot.ConstantTicks
	for _, v := range slices.Compact(values) {
		ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v)})
	}
	return ticks
}

func tickLabel(x float64) string {
	if x >= 1 {
		return report.Count(x)
	}
	return fmt.Sprintf("%g", math.Round(x*1e6)/1e6)
}
