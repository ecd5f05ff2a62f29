package batches

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// The plots: for each network, the p99 against the time of a sync, one line for each of the rules that differ
// most.

// lineOf says how the line of a rule looks. Rules that are not here have none.
var lineOf = []struct {
	rule   string
	color  color.RGBA
	dashed bool
}{
	{"depth 1", page.Grey, false},
	{"depth 2", page.Vermillion, false},
	{"depth 8", page.Vermillion, true},
	{"depth 32", page.Grey, true},
	{"halfway", page.Purple, false},
	{twoStages, page.Blue, false},
	{"stages", page.Blue, true},
	{today, page.Green, false},
}

// plottedClients is the load of the plots: the closed loop whose number of clients is nearest to this.
const plottedClients = 100

func (r *Report) plots() (outputs []report.Output) {
	if r == nil || len(r.Plan.Clients) == 0 {
		return nil
	}
	clients := r.Plan.plotted()
	for _, delay := range r.Plan.Delays {
		outputs = append(outputs, report.Output{Name: "p99-" + strings.ReplaceAll(delay.String(), "µ", "u") + ".svg", Write: func(w io.Writer) error { return r.writePlot(w, delay, clients) }})
	}
	return outputs
}

// plotted is the number of clients of the curves.
func (p Plan) plotted() int {
	return slices.MinFunc(p.Clients, func(a, b int) int { return distance(a) - distance(b) })
}

// Curves returns the rows that are curves: by network, and in each by rule, the p99 over the time of a sync.
func (r *Report) Curves() (rows []Row) {
	for _, delay := range r.Plan.Delays {
		for _, line := range lineOf {
			rows = append(rows, r.curve(delay, r.Plan.plotted(), line.rule)...)
		}
	}
	return rows
}

func (r *Report) curve(delay time.Duration, clients int, rule string) (rows []Row) {
	for _, row := range r.Rows {
		if row.DelayUs == report.Micros(delay) && row.Clients == clients && row.Rule == rule {
			rows = append(rows, row)
		}
	}
	return rows
}

func distance(clients int) int { return max(clients, plottedClients) - min(clients, plottedClients) }

func (r *Report) writePlot(w io.Writer, delay time.Duration, clients int) error {
	f := page.NewFigure(fmt.Sprintf("When the next batch begins: %v one way, %s", delay, report.Plural(clients, "client")),
		"time of a sync in ms", "p99 of the latency in ms")
	for _, line := range lineOf {
		var points page.Points
		for _, row := range r.curve(delay, clients, line.rule) {
			points = append(points, page.Point{X: row.SyncUs / 1e3, Y: row.P99Us / 1e3})
		}
		if err := f.Add(line.rule, line.color, points, line.dashed); err != nil {
			return err
		}
	}
	return f.Write(w)
}
