package simulate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/sim/coverage"
)

// cellsHit returns how many cells of a matrix were hit.
func cellsHit(m *coverage.Matrix) (n int) {
	for _, f := range coverage.Faults() {
		for _, p := range coverage.Phases() {
			if m.At(f, p) > 0 {
				n++
			}
		}
	}
	return n
}

// impossible is a cell that cannot be hit, and why. If it was hit all the same, the reason is wrong.
type impossible struct {
	Cell   coverage.Cell
	Reason string
	Hits   uint64
}

// impossibleCells returns the cells that cannot be hit.
func impossibleCells(m *coverage.Matrix) (cells []impossible) {
	for _, f := range coverage.Faults() {
		for _, p := range coverage.Phases() {
			if reason, never := coverage.Impossible(f, p); never {
				cells = append(cells, impossible{coverage.Cell{Fault: f, Phase: p}, reason, m.At(f, p)})
			}
		}
	}
	return cells
}

// Verdict returns what a result does not show and should: failed seeds, cells that were hit less often than
// demanded, cells that were hit although they cannot be. It is empty if all is well.
func (r *Result) Verdict(hits int) (lines []string) {
	if r.Failed > 0 {
		lines = append(lines, report.Plural(int(r.Failed), "seed")+" failed")
	}
	if missing := r.Coverage.Missing(uint64(hits)); hits > 0 && len(missing) > 0 {
		lines = append(lines, fmt.Sprintf("%s of the matrix were hit less often than %s: %s", report.Plural(len(missing), "cell"), report.Plural(hits, "time"), some(missing, 8)))
	}
	for _, c := range impossibleCells(&r.Coverage) {
		if c.Hits > 0 {
			lines = append(lines, fmt.Sprintf("%v was hit %d times, and is listed as impossible: %s", c.Cell, c.Hits, c.Reason))
		}
	}
	return lines
}

// some renders the first of a list.
func some[T fmt.Stringer](list []T, n int) string {
	var parts []string
	for _, item := range list[:min(n, len(list))] {
		parts = append(parts, item.String())
	}
	if len(list) > n {
		parts = append(parts, fmt.Sprintf("and %d others", len(list)-n))
	}
	return strings.Join(parts, ", ")
}

// WriteText writes a result for people.
func (r *Result) WriteText(w io.Writer, hits int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "millrace sim, profile %s, %s\n\n", r.Profile, r.seedsText())
	r.writeLevels(&b)
	b.WriteString("\ninjections and their effects\n")
	writeColumns(&b, r.counts())
	r.writeCoverage(&b)
	b.WriteString("\nmachines\n")
	for _, m := range r.Machines {
		fmt.Fprintf(&b, "  %s\n", m)
	}
	for i := range r.Failures {
		b.WriteString("\n")
		r.Failures[i].write(&b)
	}
	if more := r.Failed - uint64(len(r.Failures)); more > 0 {
		fmt.Fprintf(&b, "\nand %d other seeds that failed, of which nothing else is kept\n", more)
	}
	b.WriteString("\n")
	lines := r.Verdict(hits)
	if len(lines) == 0 {
		lines = []string{"nothing was found"}
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// levelRow is a row of the table of levels.
type levelRow struct{ Name, Seeds, Each, Slowest, Events, EventsPerSecond, Injections, Virtual string }

func (r *Result) levelRows() (rows []levelRow) {
	for _, name := range r.levelNames() {
		t := r.Levels[name]
		row := levelRow{
			Name: name, Seeds: report.Count(float64(t.Seeds)), Each: roundDuration(t.Busy / time.Duration(max(t.Seeds, 1))),
			Slowest:    fmt.Sprintf("%s (seed %d)", roundDuration(t.Slowest), t.SlowSeed),
			Injections: report.Count(float64(t.Injected)),
			Events:     report.Count(float64(t.Events)), EventsPerSecond: report.Count(float64(t.Events) / max(t.Busy.Seconds(), 1e-9)),
		}
		if row.Virtual = roundDuration(t.Virtual); t.Virtual == 0 {
			row.Virtual = report.Count(float64(t.Ticks)) + " ticks"
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *Result) writeLevels(b *strings.Builder) {
	tw := report.NewColumns(b)
	fmt.Fprintln(tw, "level\tseeds\ta seed takes\tthe longest\tevents\tevents/s of a core\tinjections\tvirtual time\t")
	for _, row := range r.levelRows() {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.Name, row.Seeds, row.Each, row.Slowest, row.Events, row.EventsPerSecond, row.Injections, row.Virtual)
	}
	_ = tw.Flush() // a strings.Builder takes everything
	b.WriteString("\n" + r.rates() + "\n")
}

// rates says how fast all machines were together.
func (r *Result) rates() string {
	seconds := max(r.Took().Seconds(), 1e-9)
	return fmt.Sprintf("%s seeds, %s events and %s injections in %s: %.1f seeds/s, %s events/s",
		report.Count(float64(r.Seeds())), report.Count(float64(r.Events())), report.Count(float64(r.Injections())), roundDuration(r.Took()), float64(r.Seeds())/seconds, report.Count(float64(r.Events())/seconds))
}

// writeColumns writes counts in three columns.
func writeColumns(b *strings.Builder, counts []count) {
	const columns = 3
	rows := (len(counts) + columns - 1) / columns
	for i := range rows {
		for j := i; j < len(counts); j += rows {
			fmt.Fprintf(b, "%14s %-36s", report.Count(float64(counts[j].N)), counts[j].Name)
		}
		fmt.Fprintln(b)
	}
}

// coverageLine says in one line how much of the matrix was hit.
func (r *Result) coverageLine() string {
	cells := len(coverage.Faults()) * len(coverage.Phases())
	never := impossibleCells(&r.Coverage)
	possible := cells - len(never)
	return fmt.Sprintf("%d of %d possible cells were hit, %d of them 10 times or more; %d of %d cells (%.1f %%) are impossible",
		possible-len(r.Coverage.Missing(1)), possible, possible-len(r.Coverage.Missing(10)), len(never), cells, 100*float64(len(never))/float64(cells))
}

func (r *Result) writeCoverage(b *strings.Builder) {
	b.WriteString("\ninjections of each fault while a group was in each phase (an injection counts in each phase that held)\n")
	writeMatrix(b, &r.Coverage)
	fmt.Fprintf(b, "%s\n", r.coverageLine())
	if missing := r.Coverage.Missing(1); len(missing) > 0 {
		fmt.Fprintf(b, "not hit: %s\n", some(missing, 12))
	}
	if len(impossibleCells(&r.Coverage)) > 0 {
		b.WriteString("\nimpossible cells\n")
	}
	for _, g := range reasons(impossibleCells(&r.Coverage)) {
		fmt.Fprintf(b, "  %s\n    because %s\n", strings.Join(g.cells, ", "), g.reason)
	}
}

// writeMatrix writes a row for each fault and a column for each phase. Large counts are rounded, as HTML and
// JSON have them exactly.
func writeMatrix(b *strings.Builder, m *coverage.Matrix) {
	fmt.Fprintf(b, "%-20s", "")
	for _, p := range coverage.Phases() {
		fmt.Fprintf(b, " %*s", columnWidth, column(p.String()))
	}
	for _, f := range coverage.Faults() {
		fmt.Fprintf(b, "\n%-20s", f)
		for _, p := range coverage.Phases() {
			text := short(float64(m.At(f, p)))
			if _, never := coverage.Impossible(f, p); never && m.At(f, p) == 0 {
				text = "-"
			}
			fmt.Fprintf(b, " %*s", columnWidth, text)
		}
	}
	b.WriteString("\n")
}

const columnWidth = 8

// column shortens the name of a phase to the width of a column, by its first word rather than by its second.
func column(name string) string {
	first, second, two := strings.Cut(name, "-")
	if two && len(name) > columnWidth {
		name = first[:max(2, min(len(first), columnWidth-1-len(second)))] + "-" + second
	}
	return name[:min(len(name), columnWidth)]
}

type reason struct {
	reason string
	cells  []string
}

// reasons groups cells by why they are impossible, in the order of the cells.
func reasons(cells []impossible) (groups []reason) {
	for _, c := range cells {
		i := slices.IndexFunc(groups, func(g reason) bool { return g.reason == c.Reason })
		if i < 0 {
			i = len(groups)
			groups = append(groups, reason{reason: c.Reason})
		}
		groups[i].cells = append(groups[i].cells, c.Cell.String())
	}
	return groups
}

// String describes a machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("commit %s, %s, %s, kernel %s, %s of %s, %s in %s of %s, first at %s", report.OrUnknown(m.Revision), m.GoVersion, m.OS, report.OrUnknown(m.Kernel),
		report.Plural(m.Workers, "worker")+" on "+report.Plural(m.Cores, "core"), report.OrUnknown(m.CPU), report.Plural(int(m.Seeds), "seed"), roundDuration(m.Took), report.Plural(m.Runs, "run"), m.First.Format(time.RFC3339))
}

// write writes a failure, with the commands that replay it.
func (f *Failure) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\nreplay, with the program of commit %s:\n  %s\n", f.title(), f.What, report.OrUnknown(f.Revision), f.Replay)
	s := f.Smallest
	if s == nil {
		return
	}
	end := ", which is the smallest that was found when its time was over"
	if s.Complete {
		end = ""
	}
	fmt.Fprintf(b, "%s%s: %s\nreplay:\n  %s\n", s.Summary(), end, cmp.Or(strings.TrimPrefix(atText(s.At), ", "), "then")+": "+firstLine(s.What), s.Replay)
}

// Summary says how much smaller the schedule has become.
func (s *Smallest) Summary() string {
	text := fmt.Sprintf("made smaller in %s (%s)", report.Plural(s.Runs, "run"), roundDuration(s.Took))
	if s.Before > 0 {
		text += fmt.Sprintf(", from %s to %s", report.Plural(s.Before, "injection"), report.Count(float64(s.Injections)))
	}
	return text
}

// title names a failure in a few words.
func (f *Failure) title() string {
	title := fmt.Sprintf("FAILED: seed %d of %s%s", f.Seed, f.Level, atText(f.At))
	if f.Property != "" {
		title += ": " + f.Property
	}
	return title
}

func atText(at string) string {
	if at == "" {
		return ""
	}
	return ", at " + at
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// roundDuration leaves three digits or so.
func roundDuration(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
