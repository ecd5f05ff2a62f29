package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of results.json. A field may be added under the same name; a change of meaning
// makes a new one.
const Schema = "millrace-bench/1"

// Report is the outcome of a plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []report.Result // limits; then by load: bare, then the pipelines
	Partial bool            // not all points were measured
	Skipped int             // points left out because the budget was used up

	profiles profiles
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{
		{Name: "results.json", Write: r.WriteJSON},
		{Name: "throughput.svg", Write: r.writeThroughputPlot},
		{Name: "latency.svg", Write: r.writeLatencyPlot},
	}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people: the conditions, the limits of the machine, a row for each target
// under each load, how they compare, and one sentence.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeRatios, r.writeBudgets, r.writeProfiles, r.writeNotes, r.writeClosing)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p, e := r.Plan, r.Env
	load := "closed loop"
	if len(p.Rates) > 0 {
		load = fmt.Sprintf("open loop (Poisson arrivals, seed %d, at most %s in flight)", p.Seed, report.Count(float64(p.MaxInFlight)))
	}
	fmt.Fprintf(b, "%s: %d hosts in one process, %d-byte values, %s\n",
		report.Title("millrace bench", r.Partial), p.Hosts, p.ValueBytes, load)
	fmt.Fprintf(b, "%s after %v of warm-up, %s; added to each fsync: %v; durability %v; %s\n",
		r.measuredFor(), p.Warmup, report.Plural(p.Runs, "run"), p.FsyncDelay, p.Durability, segmentsOf(p.Young))
	report.WriteMachine(b, e, fmt.Sprintf("GOMAXPROCS %d, ", e.GoMaxProcs))
}

// segmentsOf says which logs are measured.
func segmentsOf(young bool) string {
	if young {
		return "young logs, whose segments are not written before (bare: written)"
	}
	return "logs with written segments"
}

// measuredFor is the length of the windows. Under a budget they differ.
func (r *Report) measuredFor() string {
	shortest := r.Plan.Duration
	for _, row := range r.Rows {
		if !isLimit(row) {
			shortest = min(shortest, time.Duration(row.DurationSec*float64(time.Second)))
		}
	}
	if shortest < r.Plan.Duration {
		return fmt.Sprintf("%v to %v", shortest.Round(100*time.Millisecond), r.Plan.Duration)
	}
	return r.Plan.Duration.String()
}

// column is one column of the table: a heading, and how a row fills it. A new column needs a field in
// report.Result and a line here.
type column struct {
	heading string
	cell    func(report.Result) string
}

var columns = []column{
	{"ops/s", func(r report.Result) string { return report.Count(r.OpsPerSec) }},
	{"mean", func(r report.Result) string { return report.Latency(r.MeanUs) }},
	{"p50", func(r report.Result) string { return report.Latency(r.P50Us) }},
	{"p90", func(r report.Result) string { return report.Latency(r.P90Us) }},
	{"p99", func(r report.Result) string { return report.Latency(r.P99Us) }},
	{"p99.9", func(r report.Result) string { return report.Latency(r.P999Us) }},
	{"max", func(r report.Result) string { return report.Latency(r.MaxUs) }},
	{"fsync/op", func(r report.Result) string { return report.Optional(r.FsyncsPerOp, 3) }},
	{"KiB/fsync", func(r report.Result) string { return report.Optional(r.BytesPerFsync/1024, 1) }},
	{"ent/append", func(r report.Result) string { return report.Optional(r.EntriesPerAppend, 1) }},
	{"ent/apply", func(r report.Result) string { return report.Optional(r.EntriesPerApply, 1) }},
	{"CPU µs/op", func(r report.Result) string { return report.Optional(r.CPUUsPerOp, 1) }},
	{"allocs/op", func(r report.Result) string { return fmt.Sprintf("%.1f", r.AllocsPerOp) }},
}

func (r *Report) writeRows(tw *tabwriter.Writer) {
	wide := len("limits of this machine")
	for _, row := range r.Rows {
		wide = max(wide, len(rowName(row)))
	}
	name := func(s string) string { return s + strings.Repeat(" ", max(0, wide-len(s))) }

	var headings []string
	for _, c := range columns {
		headings = append(headings, c.heading)
	}
	heading := ""
	for _, row := range r.Rows {
		if h := groupName(row); h != heading {
			if heading == "" {
				fmt.Fprintf(tw, "%s\t%s\t\n", name(h), strings.Join(headings, "\t"))
			} else {
				fmt.Fprintf(tw, "%s\t%s\n", name(h), strings.Repeat("\t", len(columns)))
			}
			heading = h
		}
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		fmt.Fprintf(tw, "%s\t%s\t  %s\n", name(rowName(row)), strings.Join(cells, "\t"), strings.Join(row.Notes(), ", "))
	}
}

func groupName(r report.Result) string {
	switch {
	case isLimit(r):
		return "limits of this machine"
	case r.Rate > 0:
		return report.Count(r.Rate) + " ops/s offered"
	}
	return report.Plural(r.Clients, "client")
}

func rowName(r report.Result) string {
	if r.Pipeline == BareName {
		return "  bare (baseline)"
	}
	if r.Pipeline == BareCohortName {
		return "  bare + cohort"
	}
	if r.Pipeline == FullBareName {
		return "  bare + CRC + apply"
	}
	return "  " + strings.TrimPrefix(r.Pipeline, limitPrefix)
}

// writeRatios compares rows of equal load with bare and with each other.
func (r *Report) writeRatios(b *strings.Builder) {
	var compared bool
	for _, bare := range r.Rows {
		if bare.Pipeline != BareName || bare.Ops == 0 {
			continue
		}
		group := map[string]report.Result{}
		for _, row := range r.Rows {
			if row.Clients == bare.Clients && row.Rate == bare.Rate && row.Ops > 0 {
				group[row.Pipeline] = row
			}
		}
		line := strings.TrimRight(ratioLine(bare, group)+meansLine(group), " ")
		if line == "" {
			continue
		}
		if !compared {
			b.WriteString("\nratios within this run\n")
			compared = true
		}
		fmt.Fprintf(b, "  %-22s %s\n", groupName(bare), line)
		if line := strings.TrimRight(cpuLine(bare, group), " "); line != "" {
			fmt.Fprintf(b, "  %-22s %s\n", "", line)
		}
		for _, name := range []string{BareCohortName, FullBareName} {
			base, ok := group[name]
			delete(group, name)
			if line := strings.TrimRight(ratioLine(base, group), " "); ok && line != "" {
				fmt.Fprintf(b, "  %-22s %s\n", "", line)
			}
		}
		if line := typedLine(group); line != "" {
			fmt.Fprintf(b, "  %-22s %s\n", "", line)
		}
	}
}

// typedLine compares the typed face with the bytes below it.
func typedLine(group map[string]report.Result) string {
	var parts []string
	for _, pair := range [][2]string{{TypedName, "async"}, {TypedBatchName, BatchName}} {
		face, haveFace := group[pair[0]]
		bytes, haveBytes := group[pair[1]]
		if haveFace && haveBytes {
			parts = append(parts, fmt.Sprintf("%s ÷ %s: throughput %.2f  CPU %.2f", pair[0], pair[1], report.Ratio(face.OpsPerSec, bytes.OpsPerSec), report.Ratio(face.CPUUsPerOp, bytes.CPUUsPerOp)))
		}
	}
	return strings.Join(parts, "   ")
}

// ratioLine compares the rows of a group with one of the baselines: latency where the load is fixed or a
// single client waits, and throughput elsewhere.
func ratioLine(base report.Result, group map[string]report.Result) string {
	what, of := "throughput", func(x report.Result) float64 { return report.Ratio(x.OpsPerSec, base.OpsPerSec) }
	if base.Clients == 1 || base.Rate > 0 {
		what, of = "mean", func(x report.Result) float64 { return report.Ratio(x.MeanUs, base.MeanUs) }
	}
	return quotients(what, base, group, of)
}

// cpuLine compares processor time, which is the steadiest of the figures.
func cpuLine(base report.Result, group map[string]report.Result) string {
	return quotients("CPU", base, group, func(x report.Result) float64 { return report.Ratio(x.CPUUsPerOp, base.CPUUsPerOp) })
}

// quotients tells a ratio of each row of a group to one of the baselines.
func quotients(what string, base report.Result, group map[string]report.Result, of func(report.Result) float64) string {
	var parts []string
	for _, name := range PipelineNames() {
		if row, ok := group[name]; ok {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, of(row)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%-28s %-62s", what+" ÷ "+base.Pipeline+":", strings.Join(parts, "  "))
}

// meansLine compares the means of the pipelines with each other.
func meansLine(group map[string]report.Result) string {
	var parts []string
	for _, pair := range [][2]string{{"parallel", "basic"}, {"async", "parallel"}, {"async", "basic"}} {
		a, haveA := group[pair[0]]
		c, haveC := group[pair[1]]
		if haveA && haveC {
			parts = append(parts, fmt.Sprintf("%s/%s %.2f", pair[0], pair[1], report.Ratio(a.MeanUs, c.MeanUs)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "  means: " + strings.Join(parts, "  ")
}

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString("\nfsync/op counts all hosts; CPU and allocs are of the whole process: all hosts and the load generator together.\n")
	b.WriteString("bare: the same clients over a majority-acknowledged group commit without Raft, the speed of light here.\n")
	b.WriteString("bare + cohort: bare with a leader that begins no batch while one is under way, and waits for the clients that\n")
	b.WriteString("it has just answered, at most 1 ms and half a round.\n")
	b.WriteString("bare + CRC + apply: bare with a checksum of each entry, made and compared, and with all hosts applying:\n")
	b.WriteString("the least that a correct replication costs.\n")
	if len(r.Plan.Rates) > 0 {
		b.WriteString("Latencies count from the time at which the schedule intended a write to be sent.\n")
	}
	b.WriteString("Checked after every point: all hosts hold the same, and each acknowledged write exactly once\n")
	b.WriteString("(bare, once it has overwritten its log: only that all hosts hold the same bytes).\n")
	if r.Skipped > 0 {
		fmt.Fprintf(b, "WARNING: not measured, to end within %v: the last %s.\n", r.Plan.Budget, report.Plural(r.Skipped, "point"))
	}
	report.WriteWarnings(b, r.Env)
}
