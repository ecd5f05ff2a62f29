package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// WriteMarkdown writes a run as a section of Markdown: what it asks, its warnings, and its tables.
func (v *View) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	r := v.Run
	fmt.Fprintf(&b, "## %s\n\n", v.Title())
	if r.Summary != "" {
		fmt.Fprintf(&b, "%s\n\n", oneLine(r.Summary))
	}
	for _, warning := range v.Warnings() {
		fmt.Fprintf(&b, "> **%s**: %s\n", warning.Code, oneLine(warning.Text))
	}
	for _, omitted := range r.Omitted {
		fmt.Fprintf(&b, "> left out: %s\n", oneLine(omitted))
	}
	if len(v.Warnings())+len(r.Omitted) > 0 {
		b.WriteString("\n")
	}
	if len(v.Common) > 0 {
		fmt.Fprintf(&b, "All points: %s.\n\n", v.commonText())
	}
	v.Points().markdown(&b)
	if len(r.Criteria) > 0 {
		b.WriteString("\n")
		v.Criteria().markdown(&b)
	}
	if len(r.References) > 0 {
		b.WriteString("\n")
		v.References().markdown(&b)
	}
	e := v.Envs.Load
	fmt.Fprintf(&b, "\n%d cores, %s, %s in %s, %s, revision %s. Again: `%s`\n", e.Cores, orText(e.CPU, "unknown processor"),
		orText(e.Filesystem, "unknown filesystem"), e.Dir, e.GoVersion, orText(e.Revision, "unknown"), strings.Join(r.Command, " "))
	_, err := io.WriteString(w, b.String())
	return err
}

// Title names the run, and says if it was cut short.
func (v *View) Title() string {
	title := fmt.Sprintf("%s, %s", v.Run.Recipe, v.Run.Began.UTC().Format("2006-01-02 15:04"))
	if v.Run.Partial {
		title += " (PARTIAL)"
	}
	return title
}

// Warnings are the warnings of the run, and the warnings of its points that belong beside each figure.
func (v *View) Warnings() []archive.Warning {
	all := append([]archive.Warning(nil), v.Run.Warnings...)
	seen := map[string]bool{}
	for _, w := range all {
		seen[w.Code] = true
	}
	if v.Run.Partial && !seen[archive.WarnPartial] {
		all = append(all, archive.Warning{Code: archive.WarnPartial, Text: "The run was cut short: points or repeats are missing."})
	}
	for _, code := range archive.Labelling() {
		for i := range v.Run.Points {
			for _, w := range v.Run.Points[i].AllWarnings() {
				if w.Code == code && !seen[code] {
					seen[code] = true
					all = append(all, w)
				}
			}
		}
	}
	return all
}

func (v *View) commonText() string {
	var all []string
	for _, row := range sortedPairs(v.Common) {
		all = append(all, LabelText(row[0])+" "+row[1])
	}
	return strings.Join(all, ", ")
}

// markdown writes a table whose columns are padded, so that it reads well as it is.
func (t Table) markdown(b *strings.Builder) {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cellText(cell))), 3)
		}
	}
	write := func(row []string) {
		for i, cell := range row {
			text := cellText(cell)
			padding := strings.Repeat(" ", widths[i]-len([]rune(text)))
			if t.Words(i) {
				b.WriteString("| " + text + padding + " ")
			} else {
				b.WriteString("| " + padding + text + " ")
			}
		}
		b.WriteString("|\n")
	}
	write(t.Head)
	for i, n := range widths {
		if t.Words(i) {
			b.WriteString("|" + strings.Repeat("-", n+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", n+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		write(row)
	}
}

// cellText keeps what a table's syntax needs out of a cell.
func cellText(s string) string { return strings.ReplaceAll(oneLine(s), "|", "\\|") }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
