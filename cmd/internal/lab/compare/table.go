package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// WriteTable writes the comparison as text: the headline figures of each point, or every figure.
func (c *Comparison) WriteTable(w io.Writer, every bool, findings []Finding) error {
	return report.WriteTable(w, c.above, func(tw *tabwriter.Writer) { c.rows(tw, every) }, func(b *strings.Builder) { c.below(b, findings) })
}

func (c *Comparison) above(b *strings.Builder) {
	for i, a := range []*archive.Archive{c.A, c.B} {
		fmt.Fprintf(b, "%c  %s: %s, revision %s\n", 'A'+i, a.Dir, page.ViewOf(a).Title(), report.OrUnknown(a.Envs.Load.Revision))
	}
	for _, d := range c.Differences {
		fmt.Fprintf(b, "WARNING: another environment: %s\n", d)
	}
	for _, w := range c.warnings() {
		fmt.Fprintf(b, "WARNING: %s\n", w)
	}
	b.WriteString("\n")
}

// warnings are those of both sides about figures that are not of a durable system, and that a run was cut
// short.
func (c *Comparison) warnings() []string {
	var all []string
	for i, a := range []*archive.Archive{c.A, c.B} {
		for _, w := range page.ViewOf(a).Warnings() {
			all = append(all, fmt.Sprintf("%c is %s: %s", 'A'+i, w.Code, w.Text))
		}
	}
	return all
}

func (c *Comparison) rows(tw *tabwriter.Writer, every bool) {
	shown := map[string]bool{}
	for _, m := range page.ViewOf(c.A).HeadlineMetrics() {
		shown[m.Name] = true
	}
	width := 0
	for _, p := range c.Points {
		for _, r := range p.Rows {
			if every || shown[r.Metric.Name] {
				width = max(width, len(page.MetricText(r.Metric)))
			}
		}
	}
	for i, p := range c.Points {
		if i > 0 {
			fmt.Fprint(tw, "\n")
		}
		fmt.Fprintf(tw, "%s\n", p.Name)
		fmt.Fprintf(tw, "  %-*s\tA\t95 %% interval\tB\t95 %% interval\tchange\tp\t\t\n", width, "")
		for _, r := range p.Rows {
			if every || shown[r.Metric.Name] {
				fmt.Fprintf(tw, "  %-*s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", width, page.MetricText(r.Metric),
					report.Figure(r.Metric.Unit, r.A.Median), r.A.interval(r.Metric.Unit),
					report.Figure(r.Metric.Unit, r.B.Median), r.B.interval(r.Metric.Unit), r.changeText(), r.pText(), r.Verdict())
			}
		}
	}
}

func (s Sample) interval(unit archive.Unit) string {
	if math.IsInf(s.Low, 0) || math.IsInf(s.High, 0) {
		return fmt.Sprintf("? (n=%d)", s.N)
	}
	return report.Figure(unit, s.Low) + " – " + report.Figure(unit, s.High)
}

func (r Row) changeText() string {
	if r.enough() && !r.Significant() {
		return "~"
	}
	return percent(r.Delta)
}

func (r Row) pText() string {
	if !r.enough() {
		return "?"
	}
	return fmt.Sprintf("%.3f", r.P)
}

func (c *Comparison) below(b *strings.Builder, findings []Finding) {
	b.WriteString("\n~ means: chance makes such a change more than once in twenty times.\n")
	if c.Few {
		fmt.Fprintf(b, "A point has fewer than %d repeats: there is no interval and no probability for it, and its change may be chance.\n", MinRepeats)
	}
	if len(c.OnlyA)+len(c.OnlyB) > 0 {
		fmt.Fprintf(b, "Not compared, because only one run has them: %s\n", strings.Join(append(append([]string(nil), c.OnlyA...), c.OnlyB...), "; "))
	}
	for _, f := range findings {
		fmt.Fprintf(b, "%s  %s: %s, p=%s  %s\n", f.word(), f.Condition, percent(f.Row.Delta), f.Row.pText(), f.Point)
	}
}

func (f Finding) word() string {
	switch {
	case f.Broken:
		return "BROKEN   "
	case f.Undecided:
		return "undecided"
	}
	return "holds    "
}

type jsonRow struct {
	Point   string   `json:"point"`
	Metric  string   `json:"metric"`
	Unit    string   `json:"unit"`
	A       jsonSide `json:"a"`
	B       jsonSide `json:"b"`
	Delta   *float64 `json:"delta"` // null if A is 0 and B is not
	P       *float64 `json:"p"`     // null without enough repeats
	Verdict string   `json:"verdict"`
}

type jsonSide struct {
	Median float64  `json:"median"`
	Low    *float64 `json:"low"` // null without enough repeats
	High   *float64 `json:"high"`
	N      int      `json:"n"`
}

type jsonFinding struct {
	Condition string `json:"condition"`
	Point     string `json:"point"`
	Broken    bool   `json:"broken"`
	Undecided bool   `json:"undecided"`
}

// WriteJSON writes every figure of the comparison, and the findings.
func (c *Comparison) WriteJSON(w io.Writer, findings []Finding) error {
	out := struct {
		A           string        `json:"a"`
		B           string        `json:"b"`
		Differences []string      `json:"environment_differences"`
		Rows        []jsonRow     `json:"rows"`
		OnlyA       []string      `json:"only_a"`
		OnlyB       []string      `json:"only_b"`
		Findings    []jsonFinding `json:"findings"`
	}{A: c.A.Dir, B: c.B.Dir, Differences: c.Differences, OnlyA: c.OnlyA, OnlyB: c.OnlyB}
	for _, p := range c.Points {
		for _, r := range p.Rows {
			row := jsonRow{Point: p.Name, Metric: r.Metric.Name, Unit: string(r.Metric.Unit), A: r.A.json(), B: r.B.json(), Delta: finite(r.Delta), Verdict: r.Verdict()}
			if r.enough() {
				row.P = &r.P
			}
			out.Rows = append(out.Rows, row)
		}
	}
	for _, f := range findings {
		out.Findings = append(out.Findings, jsonFinding{f.Condition.String(), f.Point, f.Broken, f.Undecided})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func (s Sample) json() jsonSide {
	return jsonSide{Median: s.Median, Low: finite(s.Low), High: finite(s.High), N: s.N}
}

func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}
