package bench

import (
	"fmt"
	"image/color"
	"io"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// The plots: throughput against the load, and latency against throughput, one line for each pipeline and
// dashed ones for bare, grey, bare with a cohort, light blue, and bare with checksums and machines, purple.

var lineColors = map[string]color.RGBA{
	BareName: page.Grey, BareCohortName: page.SkyBlue, FullBareName: page.Purple, "basic": page.Vermillion, "parallel": page.Blue, "async": page.Green, InlineName: page.Orange, BatchName: page.Yellow, GroupsName: page.Grey,
	TypedName: page.Green, TypedBatchName: page.Yellow,
}

// IsBaseline reports whether a pipeline is a form of bare.
func IsBaseline(name string) bool {
	return name == BareName || name == BareCohortName || name == FullBareName
}

// lineOf collects the points of one pipeline.
func (r *Report) lineOf(pipeline string, at func(report.Result) (x, y float64)) page.Points {
	var line page.Points
	for _, row := range r.Rows {
		if row.Pipeline == pipeline {
			x, y := at(row)
			line = append(line, page.Point{X: x, Y: y})
		}
	}
	return line
}

func (r *Report) openLoop() bool { return len(r.Plan.Rates) > 0 }

func (r *Report) conditions() string {
	return fmt.Sprintf("%d hosts, %d-byte values, fsync + %v", r.Plan.Hosts, r.Plan.ValueBytes, r.Plan.FsyncDelay)
}

func (r *Report) writeThroughputPlot(w io.Writer) error {
	load, label := func(row report.Result) float64 { return float64(row.Clients) }, "clients (one write outstanding each)"
	if r.openLoop() {
		load, label = func(row report.Result) float64 { return row.Rate }, "writes per second offered"
	}
	var loads []float64
	for _, row := range r.Rows {
		if !isLimit(row) {
			loads = append(loads, load(row))
		}
	}
	f := page.NewFigure("Throughput by load: "+r.conditions(), label, "acknowledged writes per second")
	for _, name := range r.Plan.systems() {
		line := r.lineOf(name, func(row report.Result) (x, y float64) { return load(row), row.OpsPerSec })
		if err := f.Add(name, lineColors[name], line, IsBaseline(name)); err != nil {
			return err
		}
	}
	return f.Write(w, loads...)
}

func (r *Report) writeLatencyPlot(w io.Writer) error {
	label := "latency in ms: mean (line), p99 (thin, dotted)"
	if r.openLoop() {
		label += ", from the intended send time"
	}
	f := page.NewFigure("Latency by throughput: "+r.conditions(), "acknowledged writes per second", label)
	for _, name := range r.Plan.systems() {
		mean := r.lineOf(name, func(row report.Result) (x, y float64) { return row.OpsPerSec, row.MeanUs / 1e3 })
		if err := f.Add(name, lineColors[name], mean, IsBaseline(name)); err != nil {
			return err
		}
		p99 := r.lineOf(name, func(row report.Result) (x, y float64) { return row.OpsPerSec, row.P99Us / 1e3 })
		if err := f.AddThin(lineColors[name], p99); err != nil {
			return err
		}
	}
	return f.Write(w)
}
