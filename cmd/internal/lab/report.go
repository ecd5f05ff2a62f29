package lab

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the outcome of a plan.
type Report struct {
	Plan    Plan
	Env     Environment
	Rows    []Result // limits; then by load: bare, then the pipelines
	Partial bool     // not all points were measured
	Skipped int      // points left out because the budget was used up
}

// WriteTable writes what a person reads: the conditions, the limits of the machine, a row for each target under each
// load, and how they compare.
func (r *Report) WriteTable(w io.Writer) error {
	return writeTable(w, r.writeConditions, r.writeRows, r.writeRatios, r.writeNotes)
}

// writeTable writes what comes before a table, the rows, and what comes after.
func writeTable(w io.Writer, before func(*strings.Builder), rows func(*tabwriter.Writer), after ...func(*strings.Builder)) error {
	var b strings.Builder
	before(&b)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, write := range after {
		write(&b)
	}
	_, err := io.WriteString(w, trailingSpace.ReplaceAllString(b.String(), ""))
	return err
}

var trailingSpace = regexp.MustCompile(`(?m) +$`)

func (r *Report) writeConditions(b *strings.Builder) {
	p, e := r.Plan, r.Env
	load := "closed loop"
	if len(p.Rates) > 0 {
		load = fmt.Sprintf("open loop (Poisson arrivals, seed %d, at most %s in flight)", p.Seed, count(float64(p.MaxInFlight)))
	}
	title := "millrace bench"
	if r.Partial {
		title += " (PARTIAL: not every point was measured)"
	}
	fmt.Fprintf(b, "%s: %d nodes in one process, %d-byte values, %s\n", title, p.Nodes, p.ValueBytes, load)
	fmt.Fprintf(b, "%s after %v of warm-up, %s; added to each fsync: %v; durability %v\n", r.measuredFor(), p.Warmup, plural(p.Runs, "run"), p.FsyncDelay, p.Durability)
	fmt.Fprintf(b, "%s, %s, kernel %s, %s in %s, %s, GOMAXPROCS %d, load average %.2f\n\n",
		plural(e.Cores, "core"), orUnknown(e.CPU), orUnknown(e.Kernel), orUnknown(e.Filesystem), e.Dir, e.GoVersion, e.GoMaxProcs, e.Load1)
}

// measuredFor is the length of the windows; under a budget they differ.
func (r *Report) measuredFor() string {
	shortest := r.Plan.Duration
	for _, row := range r.Rows {
		if !row.isLimit() {
			shortest = min(shortest, time.Duration(row.DurationSec*float64(time.Second)))
		}
	}
	if shortest < r.Plan.Duration {
		return fmt.Sprintf("%v to %v", shortest.Round(100*time.Millisecond), r.Plan.Duration)
	}
	return r.Plan.Duration.String()
}

var columns = []string{
	"ops/s", "mean", "p50", "p90", "p99", "p99.9", "max",
	"fsync/op", "KiB/fsync", "ent/append", "ent/apply", "CPU µs/op", "allocs/op",
}

func (r *Report) writeRows(tw *tabwriter.Writer) {
	// Aligning to the right is for numbers; names are padded by hand to stand on the left.
	wide := len("limits of this machine")
	for _, row := range r.Rows {
		wide = max(wide, len(rowName(row)))
	}
	name := func(s string) string { return s + strings.Repeat(" ", max(0, wide-len(s))) }

	heading := ""
	for _, row := range r.Rows {
		if h := groupName(row); h != heading {
			if heading == "" {
				fmt.Fprintf(tw, "%s\t%s\t\n", name(h), strings.Join(columns, "\t"))
			} else {
				fmt.Fprintf(tw, "%s\t%s\n", name(h), strings.Repeat("\t", len(columns)))
			}
			heading = h
		}
		fmt.Fprintf(tw, "%s\t%s\t  %s\n", name(rowName(row)), strings.Join(cells(row), "\t"), strings.Join(row.notes(), ", "))
	}
}

func groupName(r Result) string {
	switch {
	case r.isLimit():
		return "limits of this machine"
	case r.Rate > 0:
		return count(r.Rate) + " ops/s offered"
	}
	return clientsName(r.Clients)
}

func rowName(r Result) string {
	return "  " + strings.TrimPrefix(r.Pipeline, limitPrefix)
}

func cells(r Result) []string {
	return []string{
		count(r.OpsPerSec), latency(r.MeanUs), latency(r.P50Us), latency(r.P90Us), latency(r.P99Us), latency(r.P999Us), latency(r.MaxUs),
		optional(r.FsyncsPerOp, 3), optional(r.BytesPerFsync/1024, 1), optional(r.EntriesPerAppend, 1), optional(r.EntriesPerApply, 1),
		optional(r.CPUUsPerOp, 1), fmt.Sprintf("%.1f", r.AllocsPerOp),
	}
}

// notes are the marks with their numbers, and the spread of several runs.
func (r Result) notes() []string {
	var notes []string
	if r.Runs > 1 {
		notes = append(notes, fmt.Sprintf("%s to %s ops/s", count(r.MinOpsPerSec), count(r.MaxOpsPerSec)))
	}
	for _, m := range r.Marks {
		switch m {
		case MarkSaturated:
			if r.Dropped > 0 {
				m = fmt.Sprintf("saturated (%s of %s dropped)", count(float64(r.Dropped)), count(float64(r.Offered)))
			}
		case MarkGeneratorBound:
			m = fmt.Sprintf("generator-bound (lag p99 %s)", latency(r.LagP99Us))
		case MarkFailures:
			m = fmt.Sprintf("%s writes failed", count(float64(r.Failed)))
		}
		notes = append(notes, m)
	}
	return notes
}

// writeRatios compares rows of equal load with bare and with each other.
func (r *Report) writeRatios(b *strings.Builder) {
	var compared bool
	for _, bare := range r.Rows {
		if bare.Pipeline != BareName || bare.Ops == 0 {
			continue
		}
		group := map[string]Result{}
		for _, row := range r.Rows {
			if row.Clients == bare.Clients && row.Rate == bare.Rate && row.Ops > 0 {
				group[row.Pipeline] = row
			}
		}
		line := ratioLine(bare, group)
		if line == "" {
			continue
		}
		if !compared {
			b.WriteString("\nratios within this run\n")
			compared = true
		}
		fmt.Fprintf(b, "  %-22s %s\n", groupName(bare), line)
	}
}

// ratioLine puts latency beside bare's where the load is fixed or a single client waits, throughput elsewhere.
func ratioLine(bare Result, group map[string]Result) string {
	what, of := "throughput ÷ bare:", func(x Result) float64 { return ratio(x.OpsPerSec, bare.OpsPerSec) }
	if bare.Clients == 1 || bare.Rate > 0 {
		what, of = "mean ÷ bare:", func(x Result) float64 { return ratio(x.MeanUs, bare.MeanUs) }
	}
	var parts []string
	for _, name := range PipelineNames() {
		if row, ok := group[name]; ok {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, of(row)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	line := fmt.Sprintf("%-18s %-42s", what, strings.Join(parts, "  "))
	parts = nil
	for _, pair := range [][2]string{{"parallel", "basic"}, {"async", "parallel"}, {"async", "basic"}} {
		a, haveA := group[pair[0]]
		c, haveC := group[pair[1]]
		if haveA && haveC {
			parts = append(parts, fmt.Sprintf("%s/%s %.2f", pair[0], pair[1], ratio(a.MeanUs, c.MeanUs)))
		}
	}
	if len(parts) > 0 {
		line += "  means: " + strings.Join(parts, "  ")
	}
	return strings.TrimRight(line, " ")
}

func (r *Report) writeNotes(b *strings.Builder) {
	b.WriteString("\nfsync/op counts all nodes; CPU and allocs are of the whole process: all nodes and the load generator together.\n")
	b.WriteString("bare: the same clients over a majority-acknowledged group commit without Raft, the speed of light here.\n")
	if len(r.Plan.Rates) > 0 {
		b.WriteString("Latencies count from the time at which the schedule meant a write to be sent.\n")
	}
	b.WriteString("Checked after every point: all nodes hold the same, and each acknowledged write exactly once\n")
	b.WriteString("(bare, once it has overwritten its log: only that all nodes hold the same bytes).\n")
	if r.Skipped > 0 {
		fmt.Fprintf(b, "WARNING: not measured, to end within %v: the last %s.\n", r.Plan.Budget, plural(r.Skipped, "point"))
	}
	writeWarnings(b, r.Env)
}

func clientsName(n int) string { return plural(n, "client") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(float64(n)) + " " + noun + "s"
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// count renders 110205.4 as "110,205".
func count(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// latency renders microseconds with three digits and a unit.
func latency(us float64) string {
	switch {
	case us == 0:
		return "-"
	case us < 9.995:
		return fmt.Sprintf("%.2f µs", us)
	case us < 99.95:
		return fmt.Sprintf("%.1f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 9_995:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case us < 99_950:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 999_500:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", us/1e6)
}

// optional renders what a target may not have as "-".
func optional(x float64, digits int) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, x)
}
