package flush

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-flush/1"

// Result is one row. In the embedded row, Pipeline is the mode.
type Result struct {
	report.Result
	Disk     string  `json:"disk"`
	Clamp    bool    `json:"leader_clamp"`
	Unsafe   bool    `json:"unsafe"`
	MBPerSec float64 `json:"mb_per_sec"`
	point    point
}

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []Result // by size, disk, mode
	Partial bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people: the rows, and what they mean.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeRatios, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: %d hosts in one process, %s, closed loop; a slow disk adds %v to each fsync; %v after %v of warm-up, %s\n",
		report.Title("millrace bench flush", r.Partial), p.Hosts, report.Plural(p.Clients, "client"), p.FsyncDelay, p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

func (r *Report) writeExplanation(b *strings.Builder) {
	b.WriteString(explanation)
	report.WriteWarnings(b, r.Env)
}

func (r *Report) writeRows(tw *tabwriter.Writer) {
	const wide = 36
	columns := []string{"clamp", "ops/s", "MB/s", "mean", "p50", "p99", "fsync/op", "ent/append", "CPU µs/op"}
	heading := ""
	for _, row := range r.Rows {
		if h := fmt.Sprintf("%s, %s", report.Size(row.ValueBytes), row.Disk); h != heading {
			headings := strings.Repeat("\t", len(columns)-1)
			if heading == "" {
				headings = strings.Join(columns, "\t")
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, h, headings)
			heading = h
		}
		clamp, notes := "no", row.Notes()
		if row.Clamp {
			clamp = "yes"
		}
		if row.Unsafe {
			notes = append([]string{"NOT durable"}, notes...)
		}
		fmt.Fprintf(tw, "%-*s\t%s\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", wide, "  "+row.Pipeline, clamp, report.Count(row.OpsPerSec), row.MBPerSec,
			report.Latency(row.MeanUs), report.Latency(row.P50Us), report.Latency(row.P99Us),
			report.Optional(row.FsyncsPerOp, 3), report.Optional(row.EntriesPerAppend, 1), report.Optional(row.CPUUsPerOp, 0), strings.Join(notes, ", "))
	}
}

// comparison divides the throughput of one mode by that of another.
type comparison struct {
	what     string
	of, over int // indexes into modes
}

var comparisons = []comparison{
	{"group ÷ sync, both clamped (RATIS-1545's question)", 3, 1},
	{"group ÷ sync in the consensus loop", 4, 0},
	{"group without ÷ with the clamp", 4, 3},
	{"group-delay ÷ group, no clamp", 6, 4},
	{"unsafe-interval ÷ group, no clamp", 8, 4},
}

// writeRatios puts the comparisons that matter side by side, a column for each disk and size.
func (r *Report) writeRatios(b *strings.Builder) {
	b.WriteString("\nthroughput, within this run\n")
	tw := report.NewColumns(b)
	fmt.Fprintf(tw, "%-52s\t", "")
	for _, n := range r.Plan.ValueBytes {
		for _, d := range disks {
			fmt.Fprintf(tw, "%s %s\t", report.Size(n), strings.TrimSuffix(strings.TrimPrefix(d.name, "the "), " slow"))
		}
	}
	fmt.Fprintln(tw)
	for _, c := range comparisons {
		fmt.Fprintf(tw, "%-52s\t", "  "+c.what)
		for _, n := range r.Plan.ValueBytes {
			for d := range disks {
				of, over := r.rate(point{d, c.of, n}), r.rate(point{d, c.over, n})
				fmt.Fprintf(tw, "%s\t", report.Optional(report.Ratio(of, over), 2))
			}
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush() // into memory
}

func (r *Report) rate(pt point) float64 {
	for _, row := range r.Rows {
		if row.point == pt {
			return row.OpsPerSec
		}
	}
	return 0
}

const explanation = `
Why a safe asynchronous flush can seem useless, and when it is not. A write is answered when a majority has it on disk. The
clamp (as in Apache Ratis) makes the commit index the lesser of what a majority has flushed and what the leader has
flushed. A write then takes the longer of two times: the leader's flush, and a round trip with a follower's flush. It makes
no difference whether the leader's append worker waits for its flush. So group gains nothing beside sync, which already flushes
everything queued at once, and only unsafe modes, which leave the disk out, seem to help.
What a correct flush can gain lies elsewhere. Off the consensus loop, the loop continues while a disk works, so batches grow.
Without the clamp, the leader's disk is one of three and not one that always counts: where it is the slow one, writes take
the pace of the followers. group-delay trades latency for fewer flushes, which pays where flushes are scarce. Where it takes
longer to move the bytes than to flush them, as with large values, the modes come together. unsafe-interval acknowledges
writes that a power cut removes: its figures are for other promises.
`
