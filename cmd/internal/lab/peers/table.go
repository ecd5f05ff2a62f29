package peers

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-peers/1"

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []Row // by clients, then in the order of the systems
	Counted []count
	Partial bool
	Missing []string
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeCounts, r.writeNotes)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: %s in one process, %d-byte values, closed loop; %v after %v of warm-up, %s\n",
		report.Title("millrace bench peers", r.Partial), report.Plural(p.Hosts, "host"), p.ValueBytes, p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

// column is one column of the table: a heading, and how a row fills it.
type column struct {
	heading string
	cell    func(Row) string
}

var columns = []column{
	{"ops/s", func(r Row) string { return report.Count(r.OpsPerSec) }},
	{"mean", func(r Row) string { return report.Latency(r.MeanUs) }},
	{"p50", func(r Row) string { return report.Latency(r.P50Us) }},
	{"p99", func(r Row) string { return report.Latency(r.P99Us) }},
	{"fsync/op", func(r Row) string { return report.Optional(r.FsyncsPerOp, 3) }},
	{"CPU µs/op", func(r Row) string { return report.Optional(r.CPUUsPerOp, 1) }},
	{"÷ bare", func(r Row) string { return report.Optional(r.ToBare, 2) }},
	{"÷ bare+crc+apply", func(r Row) string { return report.Optional(r.ToFull, 2) }},
	{"÷ bare+cohort", func(r Row) string { return report.Optional(r.ToCohort, 2) }},
	{"÷ best Go peer", func(r Row) string { return report.Optional(r.ToPeer, 2) }},
	{"CPU ÷ its", func(r Row) string { return report.Optional(r.CPUToPeer, 2) }},
}

// nameWidth is the width of the column of names.
const nameWidth = 24

func (r *Report) writeRows(tw *tabwriter.Writer) {
	var headings []string
	for _, c := range columns {
		headings = append(headings, c.heading)
	}
	group := 0
	for _, row := range r.Rows {
		if row.Clients != group {
			after := strings.Repeat("\t", len(columns)-1)
			if group == 0 {
				after = strings.Join(headings, "\t")
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", nameWidth, report.Plural(row.Clients, "client"), after)
			group = row.Clients
		}
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.cell(row))
		}
		fmt.Fprintf(tw, "%-*s\t%s\t  %s\n", nameWidth, "  "+row.Pipeline, strings.Join(cells, "\t"), strings.Join(row.notes(), ", "))
	}
}

// notes are those of report.Result, and what was found about durability.
func (r Row) notes() []string {
	notes := r.Notes()
	if !r.Durable {
		notes = append([]string{"NOT DURABLE"}, notes...)
	}
	return notes
}

func (r *Report) writeCounts(b *strings.Builder) {
	if len(r.Counted) == 0 {
		b.WriteString("\nfsync/op is what each system counts itself; strace, which counts from outside, was not asked or is not installed.\n")
		return
	}
	fmt.Fprintf(b, "\nfsyncs for each write of one client, counted by strace over a whole process (in brackets its own count; durable: %.0f or more):\n",
		r.Plan.fewestFsyncs(1))
	for i, c := range r.Counted {
		separator := "  "
		if i%4 == 3 || i == len(r.Counted)-1 {
			separator = "\n"
		}
		verdict := ""
		if c.perOp() < durableShare*r.Plan.fewestFsyncs(1) {
			verdict = " NOT DURABLE"
		}
		fmt.Fprintf(b, "  %s %.2f (%.2f)%s%s", c.System, c.perOp(), c.Own, verdict, separator)
	}
}

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString(`
Each row is a process of its own with all hosts, their disks and the clients in it, on loopback; CPU is of all of that. Ratios
are of two samples of one round, medians over the rounds; best Go peer: the one with the highest throughput under this load.
Checked after every point: all hosts hold the same, and each acknowledged write exactly once; what fails that has no figures.
NOT DURABLE: fewer fsyncs were counted than acknowledged writes on a majority of disks need.
tests/compare/README.md says how each library is used.
`)
	if slices.ContainsFunc(r.Plan.Systems, func(s System) bool { return s.MinWarmup > r.Plan.Warmup }) {
		for _, s := range r.Plan.Systems {
			if s.MinWarmup > r.Plan.Warmup {
				fmt.Fprintf(b, "%s is warmed up for %v: its virtual machine compiles what runs often.\n", s.Name, s.MinWarmup)
			}
		}
	}
	report.WriteWarnings(b, r.Env)
	for _, m := range r.Missing {
		fmt.Fprintf(b, "NOT MEASURED: %s\n", m)
	}
}
