package page

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// scale maps values to coordinates, [low, high] to [from, to].
type scale struct {
	log       bool
	low, high float64
	from, to  float64
}

func newScale(log bool, from, to float64) scale {
	return scale{log: log, low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
}

// include makes room for v, if the axis can show it.
func (s *scale) include(v float64) {
	if math.IsNaN(v) || (s.log && v <= 0) {
		return
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// Space between the outermost points and the frame: a factor, and a share of the range.
const (
	logMargin    = 1.15
	linearMargin = 0.06
)

// fit closes the range. A linear axis begins at zero, unless all values are below it: bars of a chart that
// begins elsewhere exaggerate. Without margin the range ends where the data do.
func (s *scale) fit(margin bool) {
	if s.low > s.high {
		s.low, s.high = 1, 10
	}
	switch {
	case s.log && margin:
		s.low, s.high = s.low/logMargin, s.high*logMargin
	case s.log:
	default:
		s.low = min(s.low, 0)
		if margin {
			s.high += linearMargin * (s.high - s.low)
		}
	}
	if s.high <= s.low {
		s.high = s.low + 1
		if s.log {
			s.high = s.low * 10
		}
	}
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(max(v, math.SmallestNonzeroFloat64)), math.Log(low), math.Log(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// minDecadeFactor is what the ends of a logarithmic axis differ by if 1, 2 and 5 make enough ticks.
const minDecadeFactor = 5

// ticks returns where to write numbers: round ones, five or so. minor are lines without a number.
func (s scale) ticks() (major, minor []float64) {
	if s.log && s.high > minDecadeFactor*s.low {
		return s.logTicks()
	}
	step := roundStep((s.high - s.low) / 5)
	for v := math.Ceil(s.low/step) * step; v <= s.high*(1+1e-9); v += step {
		major = append(major, v)
	}
	return major, nil
}

func (s scale) logTicks() (major, minor []float64) {
	decades := math.Log10(s.high / s.low)
	for exp := math.Floor(math.Log10(s.low)); math.Pow(10, exp) <= s.high; exp++ {
		for m := 1; m <= 9; m++ {
			v := float64(m) * math.Pow(10, exp)
			if v < s.low || v > s.high {
				continue
			}
			switch {
			case m == 1 || (decades < 3 && (m == 2 || m == 5)):
				major = append(major, v)
			default:
				minor = append(minor, v)
			}
		}
	}
	return major, minor
}

// roundStep returns the least of 1, 2 and 5 times a power of ten that is not below v.
func roundStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// label renders a value as the axis does.
func label(a Axis, v float64) string {
	for _, t := range a.Ticks {
		if t.At == v {
			return t.Label
		}
	}
	return report.Figure(a.Unit, v)
}

// Label renders a value as the ticks of an axis with that unit do: without zeros that only fill up.
func Label(unit archive.Unit, v float64) string {
	if unit == archive.UnitCores || unit == archive.UnitPerSecond {
		unit = archive.UnitCount // the axis is labelled
	}
	text := trailingZeros.ReplaceAllString(report.Figure(unit, v), "$1$2")
	return barePoint.ReplaceAllString(text, "$1")
}

var (
	trailingZeros = regexp.MustCompile(`(\.\d*?)0+(\D|$)`)
	barePoint     = regexp.MustCompile(`\.(\D|$)`)
)

func drawAxes(b *strings.Builder, xa, ya Axis, x, y scale) {
	b.WriteString(`<g class="axes">`)
	drawTicks(b, ya, y, func(at float64, class string) {
		fmt.Fprintf(b, `<path class="%s" d="M%.1f %.1fH%.1f"/>`, class, left, at, width-right)
	}, func(at float64, text string) {
		fmt.Fprintf(b, `<text class="y" x="%.1f" y="%.1f">%s</text>`, left-6, at+4, html.EscapeString(text))
	})
	drawTicks(b, xa, x, func(at float64, class string) {
		fmt.Fprintf(b, `<path class="%s" d="M%.1f %.1fV%.1f"/>`, class, at, top, height-bottom)
	}, func(at float64, text string) {
		fmt.Fprintf(b, `<text class="x" x="%.1f" y="%.1f">%s</text>`, at, height-bottom+15, html.EscapeString(text))
	})
	fmt.Fprintf(b, `<path class="frame" d="M%.1f %.1fV%.1fH%.1f"/>`, left, top, height-bottom, width-right)
	fmt.Fprintf(b, `<text class="x name" x="%.1f" y="%.1f">%s</text>`, (left+width-right)/2, height-8, html.EscapeString(xa.Label))
	fmt.Fprintf(b, `<text class="x name" transform="translate(12 %.1f) rotate(-90)">%s</text>`, (top+height-bottom)/2, html.EscapeString(ya.Label))
	b.WriteString("</g>")
}

// What keeps the numbers of an axis apart, in units of the drawing: a distance, and the width of a character
// where they are beside each other.
const (
	minTickDistance = 18.0
	tickCharacter   = 7.0
)

func drawTicks(b *strings.Builder, a Axis, s scale, line func(at float64, class string), text func(at float64, text string)) {
	ticks := slices.Clone(a.Ticks)
	if len(ticks) == 0 {
		major, minor := s.ticks()
		for _, v := range minor {
			line(s.at(v), "grid minor")
		}
		for _, v := range major {
			ticks = append(ticks, Tick{At: v, Label: Label(a.Unit, v)})
		}
	}
	slices.SortFunc(ticks, func(a, b Tick) int { return cmp.Compare(a.At, b.At) })
	last, across := math.Inf(-1), s.to > s.from
	for _, t := range ticks {
		if t.At < s.low || t.At > s.high {
			continue
		}
		at := s.at(t.At)
		line(at, "grid")
		need := minTickDistance
		if across {
			need = max(need, tickCharacter*float64(len([]rune(t.Label))))
		}
		if math.Abs(at-last) >= need {
			text(at, t.Label)
			last = at
		}
	}
}
