package lab

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
)

// The plots: throughput against the load, and latency against throughput, one line for each pipeline and a dashed grey
// one for bare. Axes are logarithmic, since clients and latencies go over decades.

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter
	plotMargin = 1.3 // factor between the outermost point and the frame
)

// Colours that differ for colour-blind readers too (Okabe and Ito).
var lineColors = map[string]color.RGBA{
	BareName:   {120, 120, 120, 255},
	"basic":    {213, 94, 0, 255},
	"parallel": {0, 114, 178, 255},
	"async":    {0, 158, 115, 255},

	RawLogName: {120, 120, 120, 255},
	OwnLogName: {0, 158, 115, 255},
	"etcd-wal": {0, 114, 178, 255},
	"raft-wal": {213, 94, 0, 255},
	"bbolt":    {204, 121, 167, 255},
}

// lineOf collects the points of one pipeline.
func (r *Report) lineOf(pipeline string, at func(Result) (x, y float64)) plotter.XYs {
	var line plotter.XYs
	for _, row := range r.Rows {
		if row.Pipeline != pipeline {
			continue
		}
		if x, y := at(row); x > 0 && y > 0 {
			line = append(line, plotter.XY{X: x, Y: y})
		}
	}
	return line
}

func (r *Report) openLoop() bool { return len(r.Plan.Rates) > 0 }

func (r *Report) conditions() string {
	return fmt.Sprintf("%d nodes, %d-byte values, fsync + %v", r.Plan.Nodes, r.Plan.ValueBytes, r.Plan.FsyncDelay)
}

func (r *Report) writeThroughputPlot(w io.Writer) error {
	p := plot.New()
	p.Title.Text = "Throughput by load: " + r.conditions()
	p.Y.Label.Text = "acknowledged writes per second"
	load := func(row Result) float64 { return float64(row.Clients) }
	p.X.Label.Text = "clients (one write outstanding each)"
	if r.openLoop() {
		load = func(row Result) float64 { return row.Rate }
		p.X.Label.Text = "writes per second offered"
	}
	var loads []float64
	for _, row := range r.Rows {
		if !row.isLimit() {
			loads = append(loads, load(row))
		}
	}
	f := figure{plot: p}
	for _, name := range r.systems() {
		line := r.lineOf(name, func(row Result) (x, y float64) { return load(row), row.OpsPerSec })
		if err := f.add(name, name, line, name == BareName); err != nil {
			return err
		}
	}
	p.Legend.Top, p.Legend.Left = true, true
	f.frame()
	p.X.Tick.Marker = ticksAt(loads)
	return f.writeTo(w)
}

func (r *Report) writeLatencyPlot(w io.Writer) error {
	p := plot.New()
	p.Title.Text = "Latency by throughput: " + r.conditions()
	p.X.Label.Text = "acknowledged writes per second"
	p.Y.Label.Text = "latency in ms: mean (line), p99 (thin, dotted)"
	if r.openLoop() {
		p.Y.Label.Text += ", from the intended send time"
	}
	f := figure{plot: p}
	for _, name := range r.systems() {
		mean := r.lineOf(name, func(row Result) (x, y float64) { return row.OpsPerSec, row.MeanUs / 1e3 })
		if err := f.add(name, name, mean, name == BareName); err != nil {
			return err
		}
		p99 := r.lineOf(name, func(row Result) (x, y float64) { return row.OpsPerSec, row.P99Us / 1e3 })
		if err := f.addThin(name, p99); err != nil {
			return err
		}
	}
	p.Legend.Top, p.Legend.Left = true, true
	f.frame()
	return f.writeTo(w)
}

// writeThroughputPlot draws a line for each log with the first number of groups, and a thin one for each other number.
func (r *LogReport) writeThroughputPlot(w io.Writer) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Appends by load: one process, %d-byte values; thin: more groups than %d", r.Plan.ValueBytes, r.Plan.Groups[0])
	p.X.Label.Text = "appenders (one value outstanding each)"
	p.Y.Label.Text = "durable appends per second"
	f := figure{plot: p}
	var loads []float64
	for _, a := range r.Plan.Appenders {
		loads = append(loads, float64(a))
	}
	for _, log := range r.Plan.Logs {
		for i, groups := range r.Plan.Groups {
			var line plotter.XYs
			for _, a := range r.Plan.Appenders {
				if row, ok := r.find(log.Name, a, groups); ok {
					line = append(line, plotter.XY{X: float64(a), Y: row.OpsPerSec})
				}
			}
			add := func() error { return f.addThin(log.Name, line) }
			if i == 0 {
				add = func() error { return f.add(log.Name, log.Name, line, log.Name == RawLogName) }
			}
			if err := add(); err != nil {
				return err
			}
		}
	}
	p.Legend.Top, p.Legend.Left = true, true
	f.frame()
	p.X.Tick.Marker = ticksAt(loads)
	return f.writeTo(w)
}

// systems lists what has lines, bare first.
func (r *Report) systems() []string { return append([]string{BareName}, r.Plan.Pipelines...) }

// figure is a plot under construction, with the box around all its points.
type figure struct {
	plot       *plot.Plot
	xmin, xmax float64
	ymin, ymax float64
	any        bool
}

func (f *figure) add(system, legend string, points plotter.XYs, dashed bool) error {
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = lineColors[system], lineColors[system]
	line.Width, dots.Radius = vg.Points(1.8), vg.Points(3)
	dots.Shape = draw.CircleGlyph{}
	if dashed {
		line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
	}
	f.plot.Add(line, dots)
	f.plot.Legend.Add(legend, line, dots)
	f.include(points)
	return nil
}

func (f *figure) addThin(system string, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = lineColors[system], vg.Points(0.8)
	line.Dashes = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
	f.plot.Add(line)
	f.include(points)
	return nil
}

func (f *figure) include(points plotter.XYs) {
	xmin, xmax, ymin, ymax := plotter.XYRange(points)
	if !f.any {
		f.xmin, f.xmax, f.ymin, f.ymax, f.any = xmin, xmax, ymin, ymax, true
		return
	}
	f.xmin, f.xmax = min(f.xmin, xmin), max(f.xmax, xmax)
	f.ymin, f.ymax = min(f.ymin, ymin), max(f.ymax, ymax)
}

// frame sets logarithmic axes with room around the points; gonum cannot do it for a single point.
func (f *figure) frame() {
	if !f.any {
		f.xmin, f.xmax, f.ymin, f.ymax = 1, 10, 1, 10
	}
	p := f.plot
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Min, p.X.Max = f.xmin/plotMargin, f.xmax*plotMargin
	p.Y.Min, p.Y.Max = f.ymin/plotMargin, f.ymax*plotMargin
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
}

func (f *figure) writeTo(w io.Writer) error {
	to, err := f.plot.WriterTo(plotWidth, plotHeight, "svg")
	if err != nil {
		return err
	}
	_, err = to.WriteTo(w)
	return err
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
	slices.Sort(values)
	var ticks plot.ConstantTicks
	for _, v := range slices.Compact(values) {
		ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v)})
	}
	return ticks
}

func tickLabel(x float64) string {
	if x >= 1 {
		return count(x)
	}
	return fmt.Sprintf("%g", math.Round(x*1e6)/1e6)
}
