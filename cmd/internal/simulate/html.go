package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/millrace/millrace/sim/coverage"
)

// The page of a result needs nothing besides itself: no script, no font, no style sheet of another file. A
// machine without a network shows it, and so does a colleague's mail program.

//go:embed result.html
var pageText string

var pageTemplate = template.Must(template.New("result").Parse(pageText))

// page is what the template shows.
type page struct {
	*Result
	Title, Rates, Coverage string
	Rows                   []levelRow
	Counts                 []count
	Phases                 []coverage.Phase
	Matrix                 []matrixRow
	Impossible             []impossible
	Verdict                []string
}

type matrixRow struct {
	Fault coverage.Fault
	Cells []matrixCell
	Sum   uint64
}

type matrixCell struct {
	Hits  uint64
	Class string // never, none, few, or h1 … h4 by the number of digits
	Title string
}

// WriteHTML writes a result as one page.
func (r *Result) WriteHTML(w io.Writer, hits int) error {
	p := page{
		Result: r, Title: fmt.Sprintf("millrace sim, profile %s, %s", r.Profile, r.seedsText()), Rates: r.rates(), Coverage: r.coverageLine(),
		Rows: r.levelRows(), Counts: r.counts(), Phases: coverage.Phases(), Impossible: impossibleCells(&r.Coverage), Verdict: r.Verdict(hits),
	}
	for _, f := range coverage.Faults() {
		row := matrixRow{Fault: f}
		for _, phase := range coverage.Phases() {
			cell := newMatrixCell(&r.Coverage, f, phase)
			row.Cells = append(row.Cells, cell)
			row.Sum += cell.Hits
		}
		p.Matrix = append(p.Matrix, row)
	}
	return pageTemplate.Execute(w, p)
}

// enough is how often a cell should be hit at least.
const enough = 10

func newMatrixCell(m *coverage.Matrix, f coverage.Fault, phase coverage.Phase) matrixCell {
	hits := m.At(f, phase)
	c := matrixCell{Hits: hits, Title: fmt.Sprintf("%v while %v: %d", f, phase, hits)}
	why, never := coverage.Impossible(f, phase)
	switch {
	case never:
		c.Class = "never"
		c.Title += ", impossible: " + why
	case hits == 0:
		c.Class = "none"
	case hits < enough:
		c.Class = "few"
	default:
		c.Class = fmt.Sprintf("h%d", min(4, int(math.Log10(float64(hits)))))
	}
	return c
}
