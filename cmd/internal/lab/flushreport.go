package lab

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// FlushSchema names the layout of the results.json of the bench of flushes.
const FlushSchema = "millrace-bench-flush/1"

// FlushReport is the outcome of a FlushPlan.
type FlushReport struct {
	Plan    FlushPlan
	Env     Environment
	Rows    []FlushResult // by size, disk, mode
	Partial bool
}

func (r *FlushReport) outputs() []output { return []output{{"results.json", r.WriteJSON}} }

// WriteJSON writes all rows as one JSON array.
func (r *FlushReport) WriteJSON(w io.Writer) error { return writeJSON(w, r.Rows) }

// WriteTable writes what a person reads: the rows, and what they mean.
func (r *FlushReport) WriteTable(w io.Writer) error {
	return writeTable(w, r.writeConditions, r.writeRows, r.writeRatios, r.writeExplanation)
}

func (r *FlushReport) writeConditions(b *strings.Builder) {
	p := r.Plan
	title := "millrace bench flush"
	if r.Partial {
		title += " (PARTIAL: not every point was measured)"
	}
	fmt.Fprintf(b, "%s: %d nodes in one process, %s, closed loop; a slow disk adds %v to each fsync; %v after %v of warm-up, %s\n",
		title, p.Nodes, clientsName(p.Clients), p.Delay, p.Duration, p.Warmup, plural(p.Runs, "run"))
	writeMachine(b, r.Env)
}

func (r *FlushReport) writeExplanation(b *strings.Builder) {
	b.WriteString(flushExplanation)
	writeWarnings(b, r.Env)
}

func (r *FlushReport) writeRows(tw *tabwriter.Writer) {
	const wide = 36
	columns := []string{"clamp", "ops/s", "MB/s", "mean", "p50", "p99", "fsync/op", "ent/append", "CPU µs/op"}
	heading := ""
	for _, row := range r.Rows {
		if h := fmt.Sprintf("%s, %s", sizeName(row.ValueBytes), row.Disk); h != heading {
			names := strings.Repeat("\t", len(columns)-1)
			if heading == "" {
				names = strings.Join(columns, "\t")
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, h, names)
			heading = h
		}
		clamp, notes := "no", row.notes()
		if row.Clamp {
			clamp = "yes"
		}
		if row.Unsafe {
			notes = append([]string{"NOT durable"}, notes...)
		}
		fmt.Fprintf(tw, "%-*s\t%s\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", wide, "  "+row.Pipeline, clamp, count(row.OpsPerSec), row.MBPerSec,
			latency(row.MeanUs), latency(row.P50Us), latency(row.P99Us), optional(row.FsyncsPerOp, 3), optional(row.EntriesPerAppend, 1), optional(row.CPUUsPerOp, 0), strings.Join(notes, ", "))
	}
}

// flushRatio compares the throughput of two modes.
type flushRatio struct {
	what     string
	of, over int // indexes into flushModes
}

var flushRatios = []flushRatio{
	{"group ÷ sync, both clamped (RATIS-1545's question)", 3, 1},
	{"group ÷ sync in the consensus loop", 4, 0},
	{"group without ÷ with the clamp", 4, 3},
	{"group-delay ÷ group, no clamp", 6, 4},
	{"unsafe-interval ÷ group, no clamp", 8, 4},
}

// writeRatios puts the comparisons that matter side by side, a column for each disk and size.
func (r *FlushReport) writeRatios(b *strings.Builder) {
	b.WriteString("\nthroughput, within this run\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "%-52s\t", "")
	for _, n := range r.Plan.ValueBytes {
		for _, d := range flushDisks {
			fmt.Fprintf(tw, "%s %s\t", sizeName(n), strings.TrimSuffix(strings.TrimPrefix(d.name, "the "), " slow"))
		}
	}
	fmt.Fprintln(tw)
	for _, c := range flushRatios {
		fmt.Fprintf(tw, "%-52s\t", "  "+c.what)
		for _, n := range r.Plan.ValueBytes {
			for d := range flushDisks {
				of, over := r.rate(flushPoint{d, c.of, n}), r.rate(flushPoint{d, c.over, n})
				fmt.Fprintf(tw, "%s\t", optional(ratio(of, over), 2))
			}
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush() // into memory
}

func (r *FlushReport) rate(pt flushPoint) float64 {
	for _, row := range r.Rows {
		if row.point == pt {
			return row.OpsPerSec
		}
	}
	return 0
}

const flushExplanation = `
Why a safe asynchronous flush can seem useless, and when it is not. A write is answered when a majority has it on disk. With
the clamp (commit = the lesser of what a majority has and what the leader itself has flushed, as in Apache Ratis) that takes
the longer of the leader's flush and a round trip with a follower's flush, whether the leader's log thread waits for its flush or
not: so beside sync, which already flushes everything queued at once, group gains nothing, and only unsafe modes, which leave
the disk out, seem to. What a correct flush can gain lies elsewhere. Off the consensus loop, the loop goes on
while a disk works, so that batches grow. Without the clamp, the leader's own disk is one of three and not one that always counts: where
it is the slow one, writes take the pace of the followers. group-delay trades latency for fewer flushes, which pays where
flushes are what is scarce. Where moving the bytes takes longer than flushing them, as large values do, the modes come
together. unsafe-interval answers for what a power cut takes away: its figures are for other promises.
`
