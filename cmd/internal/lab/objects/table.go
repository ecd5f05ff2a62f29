package objects

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Schema names the layout of the results.json of this bench.
const Schema = "millrace-bench-objects/1"

// Result is one row. The embedded row is that of a window of small commands; raw and uploads have none.
// Figures are medians over the rounds, and a ratio is of two medians; heaps are the largest of all rounds.
type Result struct {
	report.Result
	Way Way `json:"way"`

	Uploads      int     `json:"uploads,omitempty"`           // at once, or one after another
	MiBPerSec    float64 `json:"mib_per_s,omitempty"`         // of content, until Upload has returned; raw: until all files were durable
	HeldPerSec   float64 `json:"held_mib_per_s,omitempty"`    // until every host held all objects
	Ratio        float64 `json:"ratio,omitempty"`             // MiBPerSec ÷ that of raw
	HeldRatio    float64 `json:"held_ratio,omitempty"`        // HeldPerSec ÷ MiBPerSec of raw
	MinHeldRatio float64 `json:"min_held_ratio,omitempty"`    // of the rounds, each with the raw of its round
	MaxHeldRatio float64 `json:"max_held_ratio,omitempty"`    //
	P50Ratio     float64 `json:"p50_ratio,omitempty"`         // ÷ that of the commands alone
	P99Ratio     float64 `json:"p99_ratio,omitempty"`         //
	HeapBytes    uint64  `json:"heap_bytes,omitempty"`        // in use at most, of the whole process
	HeapBefore   uint64  `json:"heap_before_bytes,omitempty"` // and before
	UploadBytes  float64 `json:"upload_bytes,omitempty"`      // of it, for each upload under way
}

// set takes how long bytes of content took.
func (r *Result) set(bytes int64, returned, held time.Duration) {
	r.MiBPerSec = report.Ratio(float64(bytes)/(1<<20), returned.Seconds())
	r.HeldPerSec = report.Ratio(float64(bytes)/(1<<20), held.Seconds())
}

// compare makes a row of each way from its rounds.
func compare(rounds [][]Result) (rows []Result) {
	raw, alone := rounds[slices.Index(AllWays, Raw)], slices.Index(AllWays, Alone)
	for _, of := range rounds {
		row := report.MedianOf(of, func(r *Result) *report.Result { return &r.Result })
		row.MiBPerSec = medianOf(of, func(r *Result) float64 { return r.MiBPerSec })
		row.HeldPerSec = medianOf(of, func(r *Result) float64 { return r.HeldPerSec })
		row.P50Us = medianOf(of, func(r *Result) float64 { return r.P50Us })
		row.P99Us = medianOf(of, func(r *Result) float64 { return r.P99Us })
		row.P999Us = medianOf(of, func(r *Result) float64 { return r.P999Us })
		row.MaxUs = medianOf(of, func(r *Result) float64 { return r.MaxUs })
		limit := medianOf(raw, func(r *Result) float64 { return r.MiBPerSec })
		row.Ratio, row.HeldRatio = report.Ratio(row.MiBPerSec, limit), report.Ratio(row.HeldPerSec, limit)
		for i := range of {
			ratio := report.Ratio(of[i].HeldPerSec, raw[i].MiBPerSec)
			if i == 0 {
				row.MinHeldRatio, row.MaxHeldRatio = ratio, ratio
			}
			row.MinHeldRatio, row.MaxHeldRatio = min(row.MinHeldRatio, ratio), max(row.MaxHeldRatio, ratio)
			if of[i].HeapBytes > row.HeapBytes {
				row.HeapBytes, row.HeapBefore = of[i].HeapBytes, of[i].HeapBefore
			}
		}
		if at := row.atOnce(); at > 0 {
			row.UploadBytes = float64(row.HeapBytes-row.HeapBefore) / float64(at)
		}
		rows = append(rows, row)
	}
	for i := alone; i < len(rows); i++ {
		rows[i].P50Ratio, rows[i].P99Ratio = report.Ratio(rows[i].P50Us, rows[alone].P50Us), report.Ratio(rows[i].P99Us, rows[alone].P99Us)
	}
	return rows
}

// atOnce is how many uploads were under way at a time.
func (r *Result) atOnce() int {
	if r.Way == Beside {
		return min(r.Uploads, 1)
	}
	return r.Uploads
}

// medianOf returns the median; of an even number, the mean of the two in the middle.
func medianOf(of []Result, figure func(*Result) float64) float64 {
	var all []float64
	for i := range of {
		all = append(all, figure(&of[i]))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// Report is the outcome of a Plan.
type Report struct {
	Plan    Plan
	Env     lab.Environment
	Rows    []Result // one for each way, or none
	Partial bool
}

// Outputs implements report.Files.
func (r *Report) Outputs() []report.Output {
	return []report.Output{{Name: "results.json", Write: r.WriteJSON}}
}

// WriteJSON writes all rows as one JSON array.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r.Rows) }

// WriteTable writes the report for people: a table of objects, one of commands, and how to read them.
func (r *Report) WriteTable(w io.Writer) error {
	return report.WriteTable(w, r.writeConditions, r.writeObjects, r.writeCommands, r.writeExplanation)
}

func (r *Report) writeConditions(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "%s: objects of %s; %s in one process, TCP on 127.0.0.1, one disk; %s\n", report.Title("millrace bench objects", r.Partial),
		report.Size(int(p.ObjectBytes)), report.Plural(p.Hosts, "host"), report.Plural(p.Rounds, "round"))
	report.WriteMachine(b, r.Env, "")
}

func (r *Report) writeObjects(tw *tabwriter.Writer) {
	fmt.Fprintln(tw, "way\tuploads\tMiB/s\t÷ raw\theld MiB/s\t÷ raw\trounds\theap peak\tper upload\t")
	for _, row := range r.Rows {
		if row.MiBPerSec == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%.0f\t%.2f\t%.0f\t%.2f\t%.2f–%.2f\t%s MiB\t%s MiB\t\n", row.Way, report.Optional(float64(row.Uploads), 0), row.MiBPerSec, row.Ratio,
			row.HeldPerSec, row.HeldRatio, row.MinHeldRatio, row.MaxHeldRatio, mib(float64(row.HeapBytes)), mib(row.UploadBytes))
	}
}

func (r *Report) writeCommands(b *strings.Builder) {
	p := r.Plan
	fmt.Fprintf(b, "\nsmall commands of %s, open loop at %s ops/s, windows of %v and more after %v\n", report.Size(p.ValueBytes), report.Count(p.Rate), p.Duration, p.Warmup)
	tw := report.NewColumns(b)
	fmt.Fprintln(tw, "way\tops/s\tp50\t÷ alone\tp99\t÷ alone\tp99.9\tmax\t")
	for _, row := range r.Rows {
		if row.Rate == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.2f\t%s\t%.2f\t%s\t%s\t  %s\n", row.Way, report.Count(row.OpsPerSec), report.Latency(row.P50Us), row.P50Ratio,
			report.Latency(row.P99Us), row.P99Ratio, report.Latency(row.P999Us), report.Latency(row.MaxUs), strings.Join(row.Notes(), ", "))
	}
	_ = tw.Flush() // into memory
}

func (r *Report) writeExplanation(b *strings.Builder) {
	b.WriteString(explanation)
	report.WriteWarnings(b, r.Env)
}

func mib(bytes float64) string { return report.Optional(bytes/(1<<20), 1) }

const explanation = `
raw         a file for each host, all written at the same time, until all are durable: what the disk does with the bytes of
            an object that every host has. MiB/s: of one of them.
upload      one object: until Upload has returned, when a quorum holds it; held: until every host holds it. Aim: 0.7 × raw.
together    as many uploads at once, from all hosts. MiB/s: of all of them.
alone       small commands, and nothing else.
beside      the same, beside uploads, one after another. Aim: a p99 of 2 × alone.
rounds      the least and the greatest ratio of held MiB/s to raw of one round.
heap peak   in use at most, of all hosts, garbage included. per upload: what it grew by, for each upload under way.
`
