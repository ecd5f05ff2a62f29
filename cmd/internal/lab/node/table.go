package node

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
const Schema = "millrace-bench-node/1"

// Result is one row: a way under one number of clients. The embedded row is the window with the median
// throughput. Ratios are medians over the runs, each of windows of the same run.
type Result struct {
	report.Result
	Way         Way     `json:"way"`
	Ratio       float64 `json:"ratio"`        // throughput ÷ that of the first way
	CPURatio    float64 `json:"cpu_ratio"`    // processor time of an operation ÷ that of the first way
	AllocsRatio float64 `json:"allocs_ratio"` // allocations of an operation ÷ those of the first way
}

// compare makes a row of each way from its runs.
func compare(runs [][]Result) (rows []Result) {
	for _, of := range runs {
		var ops, cpu, allocs []float64
		for i := range of {
			first := runs[0][i]
			ops = append(ops, report.Ratio(of[i].OpsPerSec, first.OpsPerSec))
			cpu = append(cpu, report.Ratio(of[i].CPUUsPerOp, first.CPUUsPerOp))
			allocs = append(allocs, report.Ratio(of[i].AllocsPerOp, first.AllocsPerOp))
		}
		row := report.MedianOf(of, func(r *Result) *report.Result { return &r.Result })
		row.Ratio, row.CPURatio, row.AllocsRatio = median(ops), median(cpu), median(allocs)
		rows = append(rows, row)
	}
	return rows
}

// median returns the median; of an even number, the mean of the two in the middle.
func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []Result // by number of clients and way
	Partial bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: %s in one process, TCP on 127.0.0.1; writes of %s, closed loop; windows of %v after %v of warm-up, %s\n",
		report.Title("millrace bench node", r.Partial), report.Plural(p.Hosts, "host"), report.Size(p.ValueBytes), p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

func (r *Report) writeRows(tw *tabwriter.Writer) {
	first := ""
	if len(r.Plan.Ways) > 0 {
		first = "÷ " + r.Plan.Ways[0].String()
	}
	fmt.Fprintf(tw, "clients\tway\tops/s\t%s\tmean\tp50\tp99\tCPU µs/op\t%s\tallocs/op\t%s\t\n", first, first, first)
	for _, row := range r.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", report.Count(float64(row.Clients)), row.Way, report.Count(row.OpsPerSec),
			report.Optional(row.Ratio, 2), latency(row.MeanUs), latency(row.P50Us), latency(row.P99Us),
			report.Optional(row.CPUUsPerOp, 2), report.Optional(row.CPURatio, 2), report.Optional(row.AllocsPerOp, 2), report.Optional(row.AllocsRatio, 2),
			strings.Join(row.Notes(), ", "))
	}
}

// latency renders a latency that a row may not have.
func latency(us float64) string {
	if us == 0 {
		return "-"
	}
	return report.Latency(us)
}

func (r *Report) writeExplanation(b *strings.Builder) {
	b.WriteString(explanation)
	report.WriteWarnings(b, r.Env)
}

const explanation = `
bytes          host.Group.Propose on the leader: returns when a quorum holds the command durably.
committed      millrace.Node.Commit on the leader: the same, through the typed API.
propose        millrace.Node.Propose on the leader: returns the result of its state machine.
forwarded      the same on a follower: forwarded to the leader, and the result of the follower's state machine.
read           a linearizable View on the leader; follower-read: on a follower. Both ask a quorum.
lease          a View by lease on the leader: no message, no turn. local: a View without any promise.
empty          a call of the function that the views call: what the loop of the clients costs.

Columns: CPU and allocations are of the whole process, all hosts and clients together. Ratios are medians over the runs
of ratios within one run. Latencies of lease, local and empty are not measured: two readings of the clock cost as much
as such a read.
`
