package page

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// wellFormed fails if a drawing is no XML, or if a coordinate is no number or outside the drawing.
func wellFormed(t interface{ Fatalf(string, ...any) }, svg string) {
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		start, _ := token.(xml.StartElement)
		for _, a := range start.Attr {
			switch a.Name.Local {
			case "x", "cx", "width":
				checkCoordinate(t, a, width)
			case "y", "cy", "height":
				checkCoordinate(t, a, height)
			case "d":
				if strings.Contains(a.Value, "N") || strings.Contains(a.Value, "I") {
					t.Fatalf("path %s", a.Value)
				}
			}
		}
	}
}

func checkCoordinate(t interface{ Fatalf(string, ...any) }, a xml.Attr, most float64) {
	if v, err := strconv.ParseFloat(a.Value, 64); err != nil || !(v >= 0 && v <= most+0.1) {
		t.Fatalf("%s is %s, want 0 to %v", a.Name.Local, a.Value, most)
	}
}

// Whatever the figures are, the drawing is well-formed and inside its frame.
func TestAnyFigureCanBeDrawn(t *testing.T) {
	value := rapid.OneOf(
		rapid.Float64Range(-1e12, 1e12), rapid.Float64Range(0, 1e-9), rapid.Just(0.0), rapid.Just(math.NaN()), rapid.Float64Range(1, 2),
	)
	finite := rapid.OneOf(rapid.Float64Range(0, 1e12), rapid.Just(0.0), rapid.Float64Range(0, 1e-9))
	rapid.Check(t, func(t *rapid.T) {
		c := Chart{Title: rapid.StringMatching(`[ -~µé×]*`).Draw(t, "title"), X: Axis{Log: rapid.Bool().Draw(t, "log x")}, Y: Axis{Unit: archive.UnitMicroseconds, Log: rapid.Bool().Draw(t, "log y")}}
		for i := range rapid.IntRange(0, 9).Draw(t, "lines") {
			l := Line{Name: fmt.Sprint(`<"&`, i), Dots: true}
			for range rapid.IntRange(0, 5).Draw(t, "points") {
				y := value.Draw(t, "y")
				l.Points = append(l.Points, ChartPoint{X: finite.Draw(t, "x"), Y: y, Low: y - 1, High: y + finite.Draw(t, "bar")})
			}
			c.Lines = append(c.Lines, l)
		}
		wellFormed(t, c.SVG())
	})
}

// A greater value is drawn higher, and further to the right, on axes of both kinds.
func TestPlaces(t *testing.T) {
	for _, log := range []bool{false, true} {
		c := Chart{X: Axis{Log: log}, Y: Axis{Log: log}, Lines: []Line{{Name: "l", Points: []ChartPoint{{X: 1, Y: 10}, {X: 10, Y: 100}}}}}
		x, y := c.scales()
		if !(x.at(1) < x.at(10) && y.at(10) > y.at(100)) {
			t.Errorf("log %v: x %v and %v, y %v and %v", log, x.at(1), x.at(10), y.at(10), y.at(100))
		}
		if have := y.at(0); !log && have != height-bottom {
			t.Errorf("a linear axis begins at %v, want zero there (%v)", have, height-bottom)
		}
	}
	if s := (scale{log: true, low: 1, high: 1000, from: 300, to: 0}); math.Abs(s.inverse(s.at(20))-20) > 1e-6 {
		t.Errorf("inverse of the place of 20 is %v", s.inverse(s.at(20)))
	}
}

// Ticks are round, inside the range, in order, and few.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		s    scale
		want string
	}{
		{scale{low: 0, high: 16_500}, "[0 5000 10000 15000]"},
		{scale{low: 0, high: 1}, "[0 0.2 0.4 0.6000000000000001 0.8 1]"},
		{scale{log: true, low: 80, high: 1200}, "[100 200 500 1000]"},
		{scale{log: true, low: 0.5, high: 90_000}, "[1 10 100 1000 10000]"},
		{scale{log: true, low: 11, high: 29}, "[15 20 25]"},
		{scale{log: true, low: 60, high: 250}, "[100 150 200 250]"},
	} {
		if major, _ := tc.s.ticks(); tc.want != fmt.Sprint(major) {
			t.Errorf("%v to %v: %v, want %s", tc.s.low, tc.s.high, major, tc.want)
		}
	}
	for unit, want := range map[archive.Unit]string{
		archive.UnitMicroseconds: "2 ms", archive.UnitPerSecond: "2,000", archive.UnitBytes: "2 kB", archive.UnitCount: "2,000", archive.UnitSeconds: "2000 s",
	} {
		if have := Label(unit, 2000); have != want {
			t.Errorf("2000 %s is labelled %q, want %q", unit, have, want)
		}
	}
}

// A line is cut where it has a gap, and a stretch of one point is a dot.
func TestStretches(t *testing.T) {
	nan := math.NaN()
	c := Chart{Lines: []Line{{Name: "l", Points: []ChartPoint{{X: 1, Y: 1}, {X: 2, Y: 2}, {X: 3, Y: nan}, {X: 4, Y: 4}, {X: 5, Y: nan}, {X: 6, Y: 6}, {X: 7, Y: 7}}}}}
	svg := c.SVG()
	line := svg[strings.Index(svg, `<path class="line"`):]
	line = line[:strings.Index(line, "/>")]
	if strings.Count(line, "M") != 3 || strings.Count(line, "L") != 2 || strings.Count(svg, "<circle") != 1 {
		t.Errorf("%s in\n%s", line, svg)
	}
}

// A map keeps every operation when its columns are joined, and its darkest cell is black.
func TestHeat(t *testing.T) {
	h := Heat{X: Axis{Unit: archive.UnitSeconds}, Y: Axis{Unit: archive.UnitMicroseconds}}
	for i := range 1000 {
		h.Columns = append(h.Columns, HeatColumn{From: float64(i), To: float64(i + 1), Cells: []HeatCell{{Low: 100, High: 110, Count: 9}, {Low: 5000, High: 5100, Count: 1}}})
	}
	joined, count := joinColumns(h.Columns, maxHeatColumns), int64(0)
	for i, c := range joined {
		if i > 0 && c.From != joined[i-1].To {
			t.Errorf("column %d begins at %v, the one before ends at %v", i, c.From, joined[i-1].To)
		}
		for _, cell := range c.Cells {
			count += cell.Count
		}
	}
	if len(joined) > maxHeatColumns || count != 10_000 || joined[len(joined)-1].To != 1000 {
		t.Errorf("%d columns with %d operations through %v", len(joined), count, joined[len(joined)-1].To)
	}
	svg := h.SVG()
	wellFormed(t, svg)
	if n := strings.Count(svg, `fill-opacity="1.00"`); n != len(joined) {
		t.Errorf("%d cells are as dark as can be, want one in each of %d columns", n, len(joined))
	}
	if !(Heat{Columns: []HeatColumn{{To: 1}}}).Empty() || h.Empty() {
		t.Error("Empty")
	}
	wellFormed(t, Heat{}.SVG())
}
