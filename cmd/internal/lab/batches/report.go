package batches

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/sim"
)

// Row is the result of a rule under one load on one network and disk. Latencies are in microseconds of
// virtual time; in the open loop they count from the intended send time.
type Row struct {
	DelayUs, SyncUs float64 // the delay is one way
	Load
	Rule       string
	OpsPerSec  float64
	MeanUs     float64
	P50Us      float64
	P99Us      float64
	PerBatch   float64
	PerSync    float64 // of the leader's disk
	CPUUsPerOp float64
	Held       uint64  // batches that were held back while commands waited for them
	Ratio      float64 // of the p99 to the best of the cell
	MeanRatio  float64 // of the mean to the best of the cell
}

func newRow(at place, load Load, rule string, r sim.BatchResult) Row {
	return Row{
		DelayUs: report.Micros(at.delay), SyncUs: report.Micros(at.sync), Load: load, Rule: rule,
		OpsPerSec: r.OpsPerSec, MeanUs: report.Micros(r.Mean), P50Us: report.Micros(r.P50), P99Us: report.Micros(r.P99),
		PerBatch: r.PerBatch, PerSync: r.PerSync, CPUUsPerOp: report.Micros(r.CPU), Held: r.Held,
	}
}

// where names the cell of a row.
func (r Row) where() string {
	return fmt.Sprintf("%s, sync %s, %v", report.Latency(r.DelayUs), report.Latency(r.SyncUs), r.Load)
}

// median returns the run with the median p99; of an even number, the lower.
func median(runs []sim.BatchResult) sim.BatchResult {
	slices.SortStableFunc(runs, func(a, b sim.BatchResult) int { return cmp.Compare(a.P99, b.P99) })
	return runs[(len(runs)-1)/2]
}

// means collects factors.
type means struct {
	sum float64
	n   int
}

func (m *means) add(x float64) { m.sum, m.n = m.sum+math.Log(x), m.n+1 }

func (m means) geometric() float64 {
	if m.n == 0 {
		return 0
	}
	return math.Exp(m.sum / float64(m.n))
}

// Report is the outcome of a Plan.
type Report struct {
	Plan      Plan
	Rows      []Row      // in the order of the plan
	Standings []Standing // the winner first
	Partial   bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return append([]report.Output{{Name: "rules.txt", Write: r.WriteTable}, {Name: "cells.txt", Write: r.writeCells}}, r.plots()...)
}

// WriteTable writes the report for people: the standings, the p99 by network and load, and how to read them.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeStandings, r.writeBest, r.writeNetworks, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: 3 hosts in virtual time, %s each, costs × %g, %s values, %s of %s at each point\n\n",
		report.Title("millrace lab run batches", r.Partial), report.Plural(p.Processors, "processor"), float64(p.CostFactor)/100,
		report.Size(p.ValueBytes), report.Plural(p.Runs, "run"), report.Plural(p.Ops, "write"))
}

func (r *Report) writeStandings(tw *tabwriter.Writer) {
	fmt.Fprintln(tw, padded("rule")+"\tsum\tmean\tworst\ttime\tahead\tbehind\tops/s\tCPU\t")
	for _, s := range r.Standings {
		fmt.Fprintf(tw, "%s\t%.1f\t%.3f\t%.2f\t%.3f\t%d\t%d\t%.2f\t%.2f\t  worst at %s\n", padded(s.Rule), s.Sum, s.Mean(), s.Worst, s.Time, s.Ahead, s.Behind, s.Rate, s.CPU, s.WorstAt.where())
	}
}

// padded pads the name of a rule, to stand on the left.
func padded(name string) string { return fmt.Sprintf("%-11s", name) }

func (r *Report) writeBest(b *strings.Builder) {
	b.WriteString("\nthe best cell of each rule that loses: its p99 ÷ that of the winner\n")
	for i, s := range r.Standings {
		if i > 0 {
			fmt.Fprintf(b, "  %s  %.2f  %s: p99 %s, %s ops/s\n", padded(s.Rule), s.Best, s.BestAt.where(), report.Latency(s.BestAt.P99Us), report.Count(s.BestAt.OpsPerSec))
		}
	}
}

// writeNetworks writes the mean ratio of each rule, by network and load.
func (r *Report) writeNetworks(b *strings.Builder) {
	var loads []Load
	for _, n := range r.Plan.Clients {
		loads = append(loads, Load{Clients: n})
	}
	for _, n := range r.Plan.Shares {
		loads = append(loads, Load{Share: n})
	}
	for _, delay := range r.Plan.Delays {
		fmt.Fprintf(b, "\n%s one way: the mean of p99 ÷ the best p99, over the disks\n", report.Latency(report.Micros(delay)))
		tw := report.NewColumns(b)
		fmt.Fprint(tw, padded("rule")+"\t")
		for _, l := range loads {
			if l.Clients > 0 {
				fmt.Fprintf(tw, "%s\t", report.Count(float64(l.Clients)))
			} else {
				fmt.Fprintf(tw, "%d %%\t", l.Share)
			}
		}
		fmt.Fprintln(tw)
		for _, s := range r.Standings {
			fmt.Fprintf(tw, "%s\t", padded(s.Rule))
			for _, l := range loads {
				fmt.Fprintf(tw, "%s\t", report.Optional(r.meanRatio(delay, l, s.Rule), 2))
			}
			fmt.Fprintln(tw)
		}
		_ = tw.Flush() // into memory
	}
}

func (r *Report) meanRatio(delay time.Duration, l Load, rule string) float64 {
	sum, n := 0.0, 0
	for _, row := range r.Rows {
		if row.DelayUs == report.Micros(delay) && row.Clients == l.Clients && row.Share == l.Share && row.Rule == rule {
			sum, n = sum+row.Ratio, n+1
		}
	}
	return report.Ratio(sum, float64(n))
}

func (r *Report) writeExplanation(b *strings.Builder) { b.WriteString(explanation) }

const explanation = `
sum      of the ratios: p99 ÷ the best p99 of the cell (one network, disk and load). The least sum wins.
time     the mean latency ÷ the best one of the cell: the geometric mean over the cells.
ahead    cells in which the rule's p99 is less than the winner's by 5 % or more; behind: more by as much.
ops/s    throughput ÷ the winner's, and CPU: processor time for each write ÷ the winner's; both are the
         geometric mean over the closed loops.
by trial is what a host does. two stages is modelled: see sim/batches/README.md.
Columns of the last tables: closed loops by clients, open loops by the share of the best rate of the network and disk.
`

// writeCells writes one table for each network and disk.
func (r *Report) writeCells(w io.Writer) error {
	var b strings.Builder
	var tw *tabwriter.Writer
	last := place{-1, -1}
	for _, row := range r.Rows {
		if at := (place{time.Duration(row.DelayUs * 1e3), time.Duration(row.SyncUs * 1e3)}); at != last {
			if tw != nil {
				_ = tw.Flush() // into memory
				b.WriteString("\n")
			}
			last = at
			fmt.Fprintf(&b, "%v\n", at)
			tw = report.NewColumns(&b)
			fmt.Fprintln(tw, "load\trule\tops/s\tmean\tp50\tp99\tratio\tops/batch\tops/sync\tCPU µs/op\theld\t")
		}
		fmt.Fprintf(tw, "%v\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.1f\t%.1f\t%.1f\t%d\t\n", row.Load, row.Rule, report.Count(row.OpsPerSec), report.Latency(row.MeanUs),
			report.Latency(row.P50Us), report.Latency(row.P99Us), row.Ratio, row.PerBatch, row.PerSync, row.CPUUsPerOp, row.Held)
	}
	if tw != nil {
		_ = tw.Flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}
