package page

import (
	"errors"
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// builder draws the charts of one run.
type builder struct {
	view   *View
	groups []group
	data   []chartData
}

// maxHeats is how many heat maps a run gets; a map shows one measurement.
const maxHeats = 6

func (b *builder) build() error {
	b.kneeCharts()
	b.labelCharts()
	standings, err := b.view.Standings(MaxLines)
	if errors.Is(err, ErrNoRepeat) {
		return nil // nothing was finished, so there is nothing to draw
	}
	if err != nil {
		return err
	}
	b.percentileCharts(standings)
	b.heatMaps(standings)
	b.timelines(standings)
	return nil
}

// add appends a chart to the last group, in parts of as many lines as can be told apart.
func (b *builder) add(c Chart) {
	if c.Empty() {
		return
	}
	b.data = append(b.data, toData(c))
	g := &b.groups[len(b.groups)-1]
	lines, title := c.Lines, c.Title
	parts := (len(lines) + MaxLines - 1) / MaxLines
	for part := range parts {
		c.Lines = lines[part*MaxLines : min((part+1)*MaxLines, len(lines))]
		if parts > 1 {
			c.Title = fmt.Sprintf("%s (%d of %d)", title, part+1, parts)
		}
		f := figure{Title: c.Title, SVG: template.HTML(c.SVG())}
		for _, l := range c.Lines {
			f.Legend = append(f.Legend, l.Name)
		}
		g.Figures = append(g.Figures, f)
	}
}

func (b *builder) begin(heading, text string) {
	b.groups = append(b.groups, group{Heading: heading, Text: text})
}

func (b *builder) end() {
	if last := len(b.groups) - 1; len(b.groups[last].Figures) == 0 {
		b.groups = b.groups[:last]
	}
}

// kneeCharts are latency against throughput, one chart for each percentile.
func (b *builder) kneeCharts() {
	loads := b.view.LoadLabels()
	if len(loads) == 0 {
		return
	}
	b.begin("Latency against throughput", "Each dot is one load, with the median of its repeats and a bar between the extremes. Where a line turns up, the target is saturated.")
	for _, m := range []archive.Metric{archive.P50Us, archive.P99Us, archive.P999Us} {
		b.add(Chart{
			Title: MetricText(m) + " against throughput",
			X:     axis(archive.OpsPerSec, false), Y: axis(m, true), Lines: lines(b.view.Knee(m), true),
		})
	}
	b.end()
}

// labelCharts are the figures against each label that is a number: the load, nodes, sizes, delays.
func (b *builder) labelCharts() {
	for _, label := range b.view.NumericLabels() {
		b.begin("By "+LabelText(label), "")
		metrics := []archive.Metric{archive.OpsPerSec, archive.P99Us}
		for _, m := range b.view.HeadlineMetrics() {
			if !isStandard(m) || m == archive.LongestGapSec || m == archive.LostOps {
				metrics = append(metrics, m)
			}
		}
		for _, m := range metrics {
			curves := b.view.By(label, m)
			ticks, log := labelTicks(curves, LabelUnit(label))
			b.add(Chart{
				Title: MetricText(m) + " by " + LabelText(label),
				X:     Axis{Label: LabelText(label), Unit: LabelUnit(label), Log: log, Ticks: ticks},
				Y:     axis(m, m.Unit == archive.UnitMicroseconds), Lines: lines(curves, true),
			})
		}
		b.end()
	}
}

func isStandard(m archive.Metric) bool {
	for _, s := range archive.StandardMetrics() {
		if s == m {
			return true
		}
	}
	return false
}

func (b *builder) percentileCharts(standings []Standing) {
	b.begin("Percentiles", "The whole distribution of each line's best load that was not saturated (the repeat with the median throughput).")
	x := Axis{Label: "share of operations that took no longer", Log: true}
	for _, t := range PercentileTicks() {
		x.Ticks = append(x.Ticks, Tick{At: t.N, Label: t.Label})
	}
	b.add(Chart{
		Title: "Latency by percentile", X: x,
		Y: Axis{Label: "latency", Unit: archive.UnitMicroseconds, Log: true}, Lines: lines(Percentiles(standings), false),
	})
	b.end()
}

func (b *builder) heatMaps(standings []Standing) {
	b.begin("Latency over time", "A column is one interval of the log of histograms; the darker a cell, the more of the interval's operations took that long.")
	for _, s := range standings[:min(len(standings), maxHeats)] {
		main, ok := MainOperation(s.Operations)
		if !ok {
			continue
		}
		h := heat(s, main)
		if h.Empty() {
			continue
		}
		g := &b.groups[len(b.groups)-1]
		g.Figures = append(g.Figures, figure{Title: h.Title, SVG: template.HTML(h.SVG())})
		b.data = append(b.data, heatData(h))
	}
	b.end()
}

func heat(s Standing, o Operation) Heat {
	h := Heat{
		Title: s.Name() + ", " + o.Tag,
		X:     Axis{Label: "time since the repeat began", Unit: archive.UnitSeconds},
		Y:     Axis{Label: "latency", Unit: archive.UnitMicroseconds},
		Bands: bands(s.Repeat.Phases),
	}
	for _, i := range o.Intervals {
		c := HeatColumn{From: i.Start.Sub(s.Repeat.Began).Seconds(), To: i.End.Sub(s.Repeat.Began).Seconds()}
		for _, bar := range i.Histogram.Distribution() {
			if bar.Count > 0 && bar.To > 0 {
				c.Cells = append(c.Cells, HeatCell{Low: math.Max(float64(bar.From), 1) / 1e3, High: float64(bar.To) / 1e3, Count: bar.Count})
			}
		}
		h.Columns = append(h.Columns, c)
	}
	return h
}

// heatData says of a map how many operations each interval had: the distributions are in the .hlog files.
func heatData(h Heat) chartData {
	line := lineData{Name: "operations in the interval"}
	for _, c := range h.Columns {
		count := int64(0)
		for _, cell := range c.Cells {
			count += cell.Count
		}
		line.X, line.Y = append(line.X, c.From), append(line.Y, float64(count))
	}
	return chartData{Title: h.Title, X: h.X.Label, Y: h.Y.Label, Lines: []lineData{line}}
}

func (b *builder) timelines(standings []Standing) {
	b.begin("Over time", "The same repeats as above, sampled at a fixed interval.")
	phases := bands(Phases(standings))
	if phases == nil {
		b.phaseCharts(standings)
	}
	for _, t := range b.view.Timelines(standings) {
		b.add(Chart{
			Title: MetricText(t.Metric) + " over time",
			X:     Axis{Label: "time since the repeat began", Unit: archive.UnitSeconds},
			Y:     axis(t.Metric, t.Metric.Unit == archive.UnitMicroseconds), Lines: lines(t.Curves, false), Bands: phases,
		})
	}
	b.end()
}

// phaseCharts are the throughput of each standing over time, with the phases of its own: what an event has
// cost can be seen only beside the event.
func (b *builder) phaseCharts(standings []Standing) {
	for _, s := range standings {
		for _, t := range b.view.Timelines([]Standing{s}) {
			if t.Metric != archive.OpsPerSec {
				continue
			}
			b.add(Chart{
				Title: s.Name() + ": " + MetricText(t.Metric) + " over time",
				X:     Axis{Label: "time since the repeat began", Unit: archive.UnitSeconds},
				Y:     axis(t.Metric, false), Lines: lines(t.Curves, false), Bands: bands(s.Repeat.Phases),
			})
		}
	}
}

func bands(phases []archive.Phase) []Band {
	var all []Band
	for _, p := range phases {
		all = append(all, Band{From: p.FromSec, To: p.ToSec, Name: p.Name})
	}
	return all
}

// axis labels an axis by what the metric means.
func axis(m archive.Metric, log bool) Axis {
	text := m.Meaning
	if text == "" || len(text) > 46 {
		text = strings.TrimSpace(MetricText(m))
	}
	return Axis{Label: text, Unit: m.Unit, Log: log}
}

func lines(curves []Curve, dots bool) []Line {
	var all []Line
	for _, c := range curves {
		l := Line{Name: c.Name, Dots: dots}
		for _, p := range c.Places {
			l.Points = append(l.Points, ChartPoint{X: p.X, Y: p.Y, Low: p.Low, High: p.Top})
		}
		all = append(all, l)
	}
	return all
}

// labelTicks are the values of a label that occur, if they are few. The axis is logarithmic if they span more
// than a decade and none is zero.
func labelTicks(curves []Curve, unit archive.Unit) (ticks []Tick, log bool) {
	const maxTicks = 12
	seen := map[float64]bool{}
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		for _, p := range c.Places {
			low, high = min(low, p.X), max(high, p.X)
			if !seen[p.X] {
				seen[p.X] = true
				ticks = append(ticks, Tick{At: p.X, Label: Label(unit, p.X)})
			}
		}
	}
	if len(ticks) > maxTicks {
		ticks = nil
	}
	return ticks, low > 0 && high > 10*low
}
