package experiment

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// cell renders a figure.
func cell(m archive.Metric, x float64) string {
	switch m.Unit {
	case archive.UnitMicroseconds:
		return report.Latency(x)
	case archive.UnitPerSecond:
		if x < 100 {
			return fmt.Sprintf("%.1f", x)
		}
		return report.Count(x)
	case archive.UnitBytesPerSecond:
		return fmt.Sprintf("%.1f MB/s", x/1e6)
	case archive.UnitBytes:
		if x >= 1<<20 {
			return fmt.Sprintf("%.1f MiB", x/(1<<20))
		}
		return fmt.Sprintf("%.1f KiB", x/1024)
	case archive.UnitShare:
		return fmt.Sprintf("%.1f %%", 100*x)
	case archive.UnitSeconds:
		return fmt.Sprintf("%.3f s", x)
	case archive.UnitCores:
		return fmt.Sprintf("%.2f cores", x)
	}
	if x >= 100 {
		return report.Count(x)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", x), ".00")
}

// tableMetrics are the columns of the table, if some point has them. The recipe's own come after them.
var tableMetrics = []archive.Metric{
	archive.OpsPerSec, archive.MeanUs, archive.P50Us, archive.P99Us, archive.P999Us, archive.FsyncsPerOp, archive.EntriesPerAppend,
	archive.EntriesPerApply, archive.CPUUsPerOp, archive.LongestGapSec, archive.LostOps, archive.P99Ratio,
}

func (s *Session) columns() (all []archive.Metric) {
	columns := slices.Clone(tableMetrics)
	for _, m := range s.Archive.Metrics {
		if !slices.ContainsFunc(archive.StandardMetrics(), func(o archive.Metric) bool { return o.Name == m.Name }) {
			columns = append(columns, m)
		}
	}
	for _, m := range columns {
		if slices.ContainsFunc(s.Archive.Points, func(p archive.Point) bool { _, ok := p.Median(m.Name); return ok }) {
			all = append(all, m)
		}
	}
	return all
}

// WriteText writes the run for people: where and what, and a row for each point (medians over the repeats).
// Then come the source's figures beside ours, the criteria, and one sentence that says what the run came
// to.
func (s *Session) WriteText(w io.Writer) error {
	r := &s.Archive
	return report.WriteTable(w, s.writeHead, s.writeRows, s.writeReferences, s.writeCriteria, func(b *strings.Builder) {
		for _, text := range r.Omitted {
			fmt.Fprintf(b, "Left out: %s.\n", text)
		}
		for _, warning := range r.Warnings {
			fmt.Fprintf(b, "WARNING (%s): %s\n", warning.Code, warning.Text)
		}
		if s.Out != "" {
			fmt.Fprintf(b, "Written to %s. A page of it: millrace lab report %s\n", s.Out, s.Out)
			if r.Partial && !s.Afar {
				b.WriteString("The same command measures the rest, if it is told to resume.\n")
			}
		}
	}, s.writeClosing)
}

func (s *Session) writeHead(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", report.Title("millrace lab, "+s.Recipe, s.Archive.Partial), s.Summary)
	report.WriteMachine(b, s.Env.Load.Environment, "")
}

func (s *Session) writeRows(tw *tabwriter.Writer) {
	columns := s.columns()
	wide := len("point")
	for _, p := range s.Archive.Points {
		wide = max(wide, utf8.RuneCountInString(p.Name))
	}
	pad := func(name string) string { return name + strings.Repeat(" ", wide-utf8.RuneCountInString(name)) }
	heads := make([]string, len(columns))
	for i, m := range columns {
		heads[i] = heading(m.Name)
	}
	fmt.Fprintf(tw, "%s\t%s\t\n", pad("point"), strings.Join(heads, "\t"))
	for _, p := range s.Archive.Points {
		cells := make([]string, len(columns))
		for i, m := range columns {
			cells[i] = "-"
			if x, ok := p.Median(m.Name); ok {
				cells[i] = cell(m, x)
			}
		}
		var notes []string
		for _, w := range p.AllWarnings() {
			notes = append(notes, w.Code)
		}
		fmt.Fprintf(tw, "%s\t%s\t  %s\n", pad(p.Name), strings.Join(cells, "\t"), strings.Join(notes, ", "))
	}
}

// heading turns the name of a metric into the head of a column.
func heading(name string) string {
	for _, unit := range []string{"_us", "_s"} {
		name = strings.TrimSuffix(name, unit)
	}
	name = strings.ReplaceAll(name, "_per_sec", "/s")
	return strings.ReplaceAll(strings.ReplaceAll(name, "_per_", "/"), "_", " ")
}

func (s *Session) writeReferences(b *strings.Builder) {
	if len(s.Archive.References) == 0 {
		return
	}
	b.WriteString("\nthe source's figures, and ours\n")
	optional := func(unit archive.Unit, x *float64) string {
		if x == nil {
			return "-"
		}
		return cell(archive.Metric{Unit: unit}, *x)
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, r := range s.Archive.References {
		fmt.Fprintf(tw, "  %s\t%s\ttheirs %s\tours %s\t%s\n", r.Source, r.What, optional(r.Unit, r.Theirs), optional(r.Unit, r.Ours), r.Note)
	}
	_ = tw.Flush() // into memory
}

func (s *Session) writeCriteria(b *strings.Builder) {
	if len(s.Archive.Criteria) == 0 {
		return
	}
	b.WriteString("\ncriteria\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, c := range s.Archive.Criteria {
		value := "not measured"
		if c.Value != nil {
			value = cell(archive.Metric{Unit: c.Unit}, *c.Value)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", strings.ToUpper(string(c.Verdict)), c.Name, c.Limit, value, cmp.Or(c.Note, c.Point))
	}
	_ = tw.Flush() // into memory
}
