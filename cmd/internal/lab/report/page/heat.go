package page

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Heat is a map of latencies over time. It has one column for each interval, and one row for each range of
// latencies on a logarithmic axis. The darker a cell, the more of the column's operations are in it.
type Heat struct {
	Title string
	X, Y  Axis
	Bands []Band
	// Columns are in order of time and do not overlap.
	Columns []HeatColumn
}

// HeatColumn is what was measured in [From, To) of the x axis.
type HeatColumn struct {
	From, To float64
	Cells    []HeatCell
}

// HeatCell is how many operations took [Low, High) of the y axis.
type HeatCell struct {
	Low, High float64
	Count     int64
}

// Bounds of a map, for the size of the page.
const (
	maxHeatColumns = 120
	heatRows       = 60
	rowHeight      = (height - top - bottom) / heatRows
)

// Empty reports whether there is nothing to draw.
func (h Heat) Empty() bool {
	for _, c := range h.Columns {
		if len(c.Cells) > 0 {
			return false
		}
	}
	return true
}

// SVG returns the drawing.
func (h Heat) SVG() string {
	columns := joinColumns(h.Columns, maxHeatColumns)
	x, y := newScale(h.X.Log, left, width-right), newScale(true, height-bottom, top)
	for _, c := range columns {
		x.include(c.From)
		x.include(c.To)
		for _, cell := range c.Cells {
			y.include(cell.Low)
			y.include(cell.High)
		}
	}
	x.fit(false)
	y.fit(true)
	h.Y.Log = true
	var b strings.Builder
	begin(&b, h.Title)
	h.draw(&b, columns, x, y)
	drawAxes(&b, h.X, h.Y, x, y)
	for i, band := range h.Bands {
		fmt.Fprintf(&b, `<path class="border" d="M%.1f %.1fV%.1f"/><text class="band" x="%.1f" y="%.1f">%s</text>`,
			x.at(band.From), top, height-bottom, x.at(band.From)+4, bandTop(i), html.EscapeString(band.Name))
	}
	b.WriteString("</svg>")
	return b.String()
}

// joinColumns joins neighbours until at most n are left.
func joinColumns(columns []HeatColumn, n int) []HeatColumn {
	each := (len(columns) + n - 1) / n
	if each <= 1 {
		return columns
	}
	var joined []HeatColumn
	for i := 0; i < len(columns); i += each {
		all := columns[i:min(i+each, len(columns))]
		c := HeatColumn{From: all[0].From, To: all[len(all)-1].To}
		for _, part := range all {
			c.Cells = append(c.Cells, part.Cells...)
		}
		joined = append(joined, c)
	}
	return joined
}

// rowsOf puts the cells of a column into rows, as shares of the column's operations.
func rowsOf(c HeatColumn, y scale) (shares [heatRows]float64) {
	total := int64(0)
	for _, cell := range c.Cells {
		total += cell.Count
	}
	for _, cell := range c.Cells {
		row := int((y.at(math.Sqrt(cell.Low*cell.High)) - top) / rowHeight)
		shares[min(max(row, 0), heatRows-1)] += float64(cell.Count) / float64(total)
	}
	return shares
}

// draw draws the columns. The share of a column is drawn by its square root, beside the greatest of all: a
// tail of one in a thousand can be seen beside the bulk.
func (h Heat) draw(b *strings.Builder, columns []HeatColumn, x, y scale) {
	rows, greatest := make([][heatRows]float64, len(columns)), 0.0
	for i, c := range columns {
		rows[i] = rowsOf(c, y)
		greatest = max(greatest, slices.Max(rows[i][:]))
	}
	for i, c := range columns {
		from, to := x.at(c.From), x.at(c.To)
		for row, share := range rows[i] {
			if share == 0 {
				continue
			}
			at := top + float64(row)*rowHeight
			tip := fmt.Sprintf("%.2g %% at %s", share*100, report.Figure(h.Y.Unit, y.inverse(at+rowHeight/2)))
			fmt.Fprintf(b, `<rect class="heat" x="%.1f" y="%.1f" width="%.2f" height="%.2f" fill-opacity="%.2f"><title>%s</title></rect>`,
				from, at, to-from, rowHeight+0.2, 0.06+0.94*math.Sqrt(share/greatest), html.EscapeString(tip))
		}
	}
}

// inverse returns the value at a coordinate of a logarithmic scale.
func (s scale) inverse(at float64) float64 {
	low, high := math.Log(s.low), math.Log(s.high)
	return math.Exp(low + (at-s.from)/(s.to-s.from)*(high-low))
}
