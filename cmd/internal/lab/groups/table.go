package groups

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-groups/1"

// Result is one row. The embedded row is the window on all groups of the pair with the median ratio; its
// spread is that of all windows on all groups.
type Result struct {
	report.Result
	Groups int `json:"groups"`

	FoundSec  float64 `json:"found_s"`  // new hosts and groups, until every host knows every leader
	CloseSec  float64 `json:"close_s"`  // all hosts at once
	ReopenSec float64 `json:"reopen_s"` // hosts and groups, with logs that hold the founding only
	ReplaySec float64 `json:"replay_s"` // the same after the load, until the state machines are as before
	LogMiB    float64 `json:"log_mib"`  // written to the log of one host before that

	MemoryBytes    float64 `json:"memory_bytes"`     // of one group on one host, beside its log; 0: not measured
	LogMemoryBytes float64 `json:"log_memory_bytes"` // of its log: index and recent entries
	IdlePercent    float64 `json:"idle_percent"`     // of one core, all hosts together
	Restless       bool    `json:"restless"`         // the logs still wrote when that was measured

	OneOpsPerSec  float64 `json:"one_ops_per_sec"` // of the same clients on one group, in the same pair
	OneCPUUsPerOp float64 `json:"one_cpu_us_per_op"`
	Ratio         float64 `json:"ratio"`     // all groups ÷ one group: the median of the pairs
	MinRatio      float64 `json:"min_ratio"` // over all pairs
	MaxRatio      float64 `json:"max_ratio"`
}

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []Result // in the order of the plan
	Partial bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people: two tables, and how to read them.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeCosts, r.writeThroughput, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: %s in one process, TCP on 127.0.0.1; heartbeats each %v; idle for %v; %s of %s, closed loop; windows of %v after %v of warm-up, %s\n",
		report.Title("millrace bench groups", r.Partial), report.Plural(p.Hosts, "host"), p.Heartbeat, p.Idle, report.Plural(p.Clients, "client"),
		report.Size(p.ValueBytes), p.Duration, p.Warmup, report.Plural(p.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

func (r *Report) writeCosts(tw *tabwriter.Writer) {
	fmt.Fprintln(tw, "groups\tfound\treopen\treplay\tof log\tclose\tmemory\tin its log\tidle CPU\t")
	for _, row := range r.Rows {
		idle := fmt.Sprintf("%.2f %%", row.IdlePercent)
		if row.Restless {
			idle += " !"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%.0f MiB\t%s\t%s\t%s\t%s\t\n", report.Count(float64(row.Groups)), report.Latency(1e6*row.FoundSec),
			report.Latency(1e6*row.ReopenSec), report.Latency(1e6*row.ReplaySec), row.LogMiB, report.Latency(1e6*row.CloseSec),
			memory(row.MemoryBytes), memory(row.LogMemoryBytes), idle)
	}
}

// memory renders the bytes of one group.
func memory(bytes float64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f KiB", bytes/1024)
}

func (r *Report) writeThroughput(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", report.Plural(r.Plan.Clients, "client"))
	tw := report.NewColumns(b)
	fmt.Fprintln(tw, "groups\tops/s\tone group\tratio\tleast\tmost\tmean\tp99\tfsync/op\tent/append\tCPU µs/op\tone group\t")
	for _, row := range r.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", report.Count(float64(row.Groups)), report.Count(row.OpsPerSec),
			rate(row.OneOpsPerSec), report.Optional(row.Ratio, 2), report.Optional(row.MinRatio, 2), report.Optional(row.MaxRatio, 2),
			report.Latency(row.MeanUs), report.Latency(row.P99Us), report.Optional(row.FsyncsPerOp, 3), report.Optional(row.EntriesPerAppend, 1),
			report.Optional(row.CPUUsPerOp, 1), report.Optional(row.OneCPUUsPerOp, 1), strings.Join(row.Notes(), ", "))
	}
	_ = tw.Flush() // into memory
}

// rate renders a throughput that a row may not have.
func rate(x float64) string {
	if x == 0 {
		return "-"
	}
	return report.Count(x)
}

func (r *Report) writeExplanation(b *strings.Builder) {
	b.WriteString(explanation)
	for _, row := range r.Rows {
		if row.Restless {
			fmt.Fprintf(b, "WARNING: with %s the logs still wrote after %v without clients; idle CPU (!) includes that.\n", report.Plural(row.Groups, "group"), restTimeout)
		}
	}
	report.WriteWarnings(b, r.Env)
}

const explanation = `
found    hosts on new directories and their groups, until every host knows every leader.
reopen   the same hosts once more, with logs that hold the founding only. replay: once more after the load, with
         everything that the clients wrote ("of log", for each host), until each state machine is as it was.
memory   of one idle group on one host beside its log: heap and stacks after garbage collections, all groups less one
         group, divided by members. In its log: the log's index and its recent entries.
idle     processor time of all hosts together, in percent of one core.
ratio    ops/s on all groups ÷ ops/s of the same clients on one group, in windows that take turns on the same hosts. The
         row is the pair of windows with the median ratio; least and most are over all pairs.
`
