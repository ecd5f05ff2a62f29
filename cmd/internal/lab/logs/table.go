package logs

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-wal/1"

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []child.Result // by groups, appenders, log; then recoveries
	Partial bool
	Missing []string
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}, {Name: "throughput.svg", Write: r.writeThroughputPlot}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// find returns the row of a log under a load. 0 appenders mean its recovery.
func (r *Report) find(name string, appenders, groups int) (child.Result, bool) {
	i := slices.IndexFunc(r.Rows, func(row child.Result) bool {
		return row.Pipeline == name && row.Clients == appenders && row.Groups == groups && row.Ops > 0
	})
	if i < 0 {
		return child.Result{}, false
	}
	return r.Rows[i], true
}

// bestOther returns the fastest of the other projects' logs under a load.
func (r *Report) bestOther(appenders, groups int) (best child.Result, ok bool) {
	for _, row := range r.Rows {
		if row.Pipeline == child.RawLogName || row.Pipeline == child.OwnLogName || row.Clients != appenders || row.Groups != groups {
			continue
		}
		if row.OpsPerSec > best.OpsPerSec {
			best, ok = row, true
		}
	}
	return best, ok
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeNotes)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: one log, one process, %d-byte values, closed loop; %v after %v of warm-up, %s\n",
		report.Title("millrace bench wal", r.Partial), p.ValueBytes, p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

var columns = []string{"ops/s", "MB/s", "p50", "p99", "fsync/op", "ent/fsync", "CPU µs/op", "÷ raw", "÷ best other"}

// nameWidth is the width of the column of names.
const nameWidth = 26

func (r *Report) writeRows(tw *tabwriter.Writer) {
	heading := ""
	for _, row := range r.Rows {
		if row.IsRecovery() {
			continue
		}
		if h := fmt.Sprintf("%s, %s", report.Plural(row.Clients, "appender"), report.Plural(row.Groups, "group")); h != heading {
			headings := strings.Repeat("\t", len(columns)-1)
			if heading == "" {
				headings = strings.Join(columns, "\t")
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", nameWidth, h, headings)
			heading = h
		}
		fmt.Fprintf(tw, "%-*s\t%s\t  %s\n", nameWidth, "  "+row.Pipeline, strings.Join(r.cells(row), "\t"), strings.Join(row.Notes(), ", "))
	}
	r.writeRecoveries(tw)
}

func (r *Report) cells(row child.Result) []string {
	toRaw, toBest := "-", "-"
	if raw, ok := r.find(child.RawLogName, row.Clients, row.Groups); ok {
		toRaw = fmt.Sprintf("%.2f", report.Ratio(row.OpsPerSec, raw.OpsPerSec))
	}
	if best, ok := r.bestOther(row.Clients, row.Groups); ok && row.Pipeline != child.RawLogName {
		toBest = fmt.Sprintf("%.2f", report.Ratio(row.OpsPerSec, best.OpsPerSec))
	}
	return []string{
		report.Count(row.OpsPerSec), fmt.Sprintf("%.1f", row.MBPerSec), report.Latency(row.P50Us), report.Latency(row.P99Us),
		report.Optional(row.FsyncsPerOp, 3), report.Optional(row.EntriesPerFsync, 1), report.Optional(row.CPUUsPerOp, 1), toRaw, toBest,
	}
}

func (r *Report) writeRecoveries(tw *tabwriter.Writer) {
	heading := false
	read, _ := r.find(child.RawLogName, 0, 1)
	for _, row := range r.Rows {
		if !row.IsRecovery() {
			continue
		}
		if !heading {
			fmt.Fprintf(tw, "%-*s\t%s\t\n", nameWidth, fmt.Sprintf("open a log of %d MiB", r.Plan.RecoverBytes>>20), strings.Repeat("\t", len(columns)-1))
			heading = true
		}
		cells := make([]string, len(columns))
		cells[1], cells[2], cells[6] = fmt.Sprintf("%.0f", row.MBPerSec), report.Latency(row.MeanUs), report.Optional(row.CPUUsPerOp, 2)
		var notes []string
		switch {
		case row.Pipeline == child.RawLogName:
			notes = append(notes, "read + CRC32C")
		case read.MBPerSec > 0 && row.MBPerSec > read.MBPerSec:
			notes = append(notes, "does not read it all")
		}
		if row.PeakBytes > 0 {
			notes = append(notes, fmt.Sprintf("%d MiB at most, %d open files", row.PeakBytes>>20, row.Descriptors))
		}
		fmt.Fprintf(tw, "%-*s\t%s\t  %s\n", nameWidth, "  "+row.Pipeline, strings.Join(cells, "\t"), strings.Join(notes, ", "))
	}
}

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString(`
Every append is acknowledged after an fsync that covers it, in every row. What was acknowledged and not compacted was read
back from the log after it was opened again. One loop makes the batches for all logs; with many groups, raft-wal, etcd-wal
and bbolt have a log and a loop for each. raw file: preallocated, zeroed, overwritten without end, one direct write and one
fdatasync a batch. Appenders, loop and log share the CPU: each row is a process of its own, and its CPU includes all three.
`)
	fmt.Fprintf(b, "Each log was filled before, and is compacted to about %d MiB while it runs. fsync/op counts files and directories.\n", r.Plan.KeepBytes>>20)
	report.WriteWarnings(b, r.Env)
	for _, m := range r.Missing {
		fmt.Fprintf(b, "NOT MEASURED: %s\n", m)
	}
}

var lineColors = map[string]color.RGBA{
	child.RawLogName: page.Grey, child.OwnLogName: page.Green, "etcd-wal": page.Blue, "raft-wal": page.Vermillion, "bbolt": page.Purple,
}

// writeThroughputPlot draws a line for each log with the first number of groups, and a thin one for each
// other number.
func (r *Report) writeThroughputPlot(w io.Writer) error {
	p := r.Plan
	f := page.NewFigure(fmt.Sprintf("Appends by load: one process, %d-byte values; thin: more groups than %d", p.ValueBytes, p.Groups[0]),
		"appenders (one value outstanding each)", "durable appends per second")
	var loads []float64
	for _, a := range p.Appenders {
		loads = append(loads, float64(a))
	}
	for _, log := range p.Logs {
		for i, groups := range p.Groups {
			var line page.Points
			for _, a := range p.Appenders {
				if row, ok := r.find(log.Name, a, groups); ok {
					line = append(line, page.Point{X: float64(a), Y: row.OpsPerSec})
				}
			}
			add := func() error { return f.AddThin(lineColors[log.Name], line) }
			if i == 0 {
				add = func() error { return f.Add(log.Name, lineColors[log.Name], line, log.Name == child.RawLogName) }
			}
			if err := add(); err != nil {
				return err
			}
		}
	}
	return f.Write(w, loads...)
}
