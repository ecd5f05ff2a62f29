package logs

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// MechanismReport is the outcome of a MechanismPlan.
type MechanismReport struct {
	Plan MechanismPlan
	Env  lab.Environment
	Rows []report.Result // by batch, mechanism; ValueBytes is the batch's size
}

// Outputs implements report.Files.
func (r *MechanismReport) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *MechanismReport) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people.
func (r *MechanismReport) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeRows, r.writeNotes)
}

func (r *MechanismReport) writeConditions(b *strings.Builder) {
	fmt.Fprintf(b, "millrace bench wal, ways of writing: one writer, no clients, each batch durable before the next; %v each, %s\n",
		r.Plan.Duration, report.Plural(r.Plan.Runs, "run"))
	report.WriteMachine(b, r.Env, "")
}

func (r *MechanismReport) writeRows(tw *tabwriter.Writer) {
	const wide = 36
	size := 0
	for i, row := range r.Rows {
		if row.ValueBytes != size {
			size = row.ValueBytes
			heading := strings.Repeat("\t", 5)
			if i == 0 {
				heading = "batches/s\tMB/s\tp50\tp99\tCPU µs\t÷ " + plainMechanism
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, fmt.Sprintf("batches of %d KiB", size>>10), heading)
		}
		fmt.Fprintf(tw, "%-*s\t%s\t%.1f\t%s\t%s\t%.0f\t%.2f\t  %s\n", wide, "  "+row.Pipeline, report.Count(row.OpsPerSec), row.OpsPerSec*float64(size)/1e6,
			report.Latency(row.P50Us), report.Latency(row.P99Us), row.CPUUsPerOp, report.Ratio(row.OpsPerSec, r.plainRate(size)), strings.Join(row.Notes(), ", "))
	}
}

func (r *MechanismReport) writeNotes(b *strings.Builder) {
	b.WriteString(`
Only writes and syncs are timed. A log that overlaps has two batches under way, so under the same clients each of them
has half the size: compare its row with others' of batches twice as large.
`)
	report.WriteWarnings(b, r.Env)
}

// plainRate is the rate of plainMechanism with batches of this size.
func (r *MechanismReport) plainRate(batchBytes int) float64 {
	for _, row := range r.Rows {
		if row.ValueBytes == batchBytes && row.Pipeline == plainMechanism {
			return row.OpsPerSec
		}
	}
	return 0
}
