package page

import (
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Table is a table of texts.
type Table struct {
	Head []string
	Rows [][]string
	Left int // columns that are words and stand on the left; the others are numbers
	// Notes means that the last column is words, too.
	Notes bool
}

// Words reports whether column i is words.
func (t Table) Words(i int) bool { return i < t.Left || (t.Notes && i == len(t.Head)-1) }

// headline are the metrics of the main table, as far as the run has them. Those of the recipe follow.
var headline = []archive.Metric{
	archive.OpsPerSec, archive.MeanUs, archive.P50Us, archive.P99Us, archive.P999Us,
	archive.LongestGapSec, archive.LostOps, archive.P99Ratio,
	archive.FsyncsPerOp, archive.CPUUsPerOp, archive.AllocsPerOp,
}

// short are the heads of columns whose names say too much.
var short = map[string]string{
	archive.OpsPerSec.Name: "ops/s", archive.MeanUs.Name: "mean", archive.P50Us.Name: "p50", archive.P99Us.Name: "p99", archive.P999Us.Name: "p99.9", archive.MaxUs.Name: "max",
	archive.FsyncsPerOp.Name: "fsyncs/op", archive.CPUUsPerOp.Name: "CPU/op", archive.AllocsPerOp.Name: "allocs/op",
	archive.CPUCores.Name: "processors in use", archive.RSSBytes.Name: "resident memory", archive.HeapBytes.Name: "live heap",
	archive.FsyncsPerSec.Name: "fsyncs/s", archive.DiskBytesPerSec.Name: "written to disks", archive.GCPauseUs.Name: "longest GC pause",
	archive.SwitchesPerSec.Name: "context switches/s", archive.FailedPerSec.Name: "failed/s", archive.FsyncP99Us.Name: "fsync p99",
	archive.LongestGapSec.Name: "longest gap", archive.LostOps.Name: "lost ops", archive.P99Ratio.Name: "p99 ratio",
}

// MetricText renders the name of a metric.
func MetricText(m archive.Metric) string {
	if s, ok := short[m.Name]; ok {
		return s
	}
	return LabelText(m.Name)
}

// HeadlineMetrics returns the metrics of the main table.
func (v *View) HeadlineMetrics() []archive.Metric {
	standard := map[string]bool{}
	for _, m := range archive.StandardMetrics() {
		standard[m.Name] = true
	}
	present := v.figureNames()
	var metrics []archive.Metric
	for _, m := range headline {
		if present[m.Name] {
			metrics = append(metrics, m)
		}
	}
	for _, m := range v.Run.Metrics {
		if !standard[m.Name] && present[m.Name] {
			metrics = append(metrics, m)
		}
	}
	return metrics
}

// figureNames are the names of figures, without those that only series have.
func (v *View) figureNames() map[string]bool {
	present := map[string]bool{}
	for i := range v.Run.Points {
		for _, r := range v.Run.Points[i].Repeats {
			for name := range r.Figures {
				present[name] = true
			}
		}
	}
	return present
}

// Points is the main table, with a row for each point. A row has the median of each figure, the range of
// the throughput over the repeats, and the codes of warnings.
func (v *View) Points() Table {
	metrics := v.HeadlineMetrics()
	t := Table{Notes: true}
	for _, label := range v.Varying {
		t.Head = append(t.Head, LabelText(label))
	}
	if len(t.Head) == 0 {
		t.Head = []string{"point"}
	}
	t.Left = len(t.Head)
	for _, m := range metrics {
		t.Head = append(t.Head, MetricText(m))
		if m == archive.OpsPerSec {
			t.Head = append(t.Head, "min–max")
		}
	}
	t.Head = append(t.Head, "repeats", "warnings")
	for i := range v.Run.Points {
		t.Rows = append(t.Rows, v.pointRow(&v.Run.Points[i], metrics))
	}
	return t
}

const absent = "–"

func (v *View) pointRow(p *archive.Point, metrics []archive.Metric) []string {
	var row []string
	for _, label := range v.Varying {
		value, ok := p.Labels[label]
		if !ok {
			value = absent
		}
		row = append(row, ValueText(label, value))
	}
	if len(row) == 0 {
		row = []string{p.Name}
	}
	whole := 0
	for _, r := range p.Repeats {
		if !r.Partial {
			whole++
		}
	}
	for _, m := range metrics {
		median, ok := p.Median(m.Name)
		row = append(row, figureOr(ok, m.Unit, median))
		if m == archive.OpsPerSec {
			low, high, _ := p.Range(m.Name)
			text := absent
			if whole > 1 && ok {
				text = report.Count(low) + "–" + report.Count(high)
			}
			row = append(row, text)
		}
	}
	return append(row, report.Count(float64(whole)), codes(p.AllWarnings()))
}

func figureOr(ok bool, unit archive.Unit, value float64) string {
	if !ok {
		return absent
	}
	return report.Figure(unit, value)
}

func codes(warnings []archive.Warning) string {
	text := ""
	for _, w := range warnings {
		if text != "" {
			text += ", "
		}
		text += w.Code
	}
	return text
}

// Criteria is the table of what the recipe demands.
func (v *View) Criteria() Table {
	t := Table{Head: []string{"criterion", "where", "verdict", "limit", "value", "note"}, Left: 3, Notes: true}
	for _, c := range v.Run.Criteria {
		value := absent
		if c.Value != nil {
			value = report.Figure(c.Unit, *c.Value)
		}
		t.Rows = append(t.Rows, []string{c.Name, c.Point, string(c.Verdict), c.Limit, value, c.Note})
	}
	return t
}

// References is the table of the source's figures beside ours.
func (v *View) References() Table {
	t := Table{Head: []string{"source", "what", "theirs", "ours", "ours / theirs", "note"}, Left: 2, Notes: true}
	for _, f := range v.Run.References {
		row := []string{f.Source, f.What, absent, absent, absent, f.Note}
		if f.Theirs != nil {
			row[2] = report.Figure(f.Unit, *f.Theirs)
		}
		if f.Ours != nil {
			row[3] = report.Figure(f.Unit, *f.Ours)
		}
		if f.Theirs != nil && f.Ours != nil && *f.Theirs != 0 {
			row[4] = report.Figure(archive.UnitRatio, *f.Ours / *f.Theirs)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Errors is the table of operations that failed: how many of each kind, at each point, over all repeats.
func (v *View) Errors() Table {
	t := Table{Head: []string{"point", "kind", "operations"}, Left: 2}
	for i := range v.Run.Points {
		p, sum := &v.Run.Points[i], map[string]uint64{}
		var kinds []string
		for _, r := range p.Repeats {
			for kind, n := range r.Errors {
				if _, ok := sum[kind]; !ok {
					kinds = append(kinds, kind)
				}
				sum[kind] += n
			}
		}
		slices.Sort(kinds)
		for _, kind := range kinds {
			if sum[kind] > 0 {
				t.Rows = append(t.Rows, []string{p.Name, kind, report.Count(float64(sum[kind]))})
			}
		}
	}
	return t
}

// AllFigures is the table of every figure: median, extremes and number over the whole repeats.
func (v *View) AllFigures() Table {
	t := Table{Head: []string{"point", "figure", "meaning", "median", "min", "max", "repeats"}, Left: 3}
	for i := range v.Run.Points {
		p := &v.Run.Points[i]
		for _, m := range v.Run.Metrics {
			median, ok := p.Median(m.Name)
			if !ok {
				continue
			}
			low, high, _ := p.Range(m.Name)
			t.Rows = append(t.Rows, []string{
				p.Name, m.Name, m.Meaning, report.Figure(m.Unit, median), report.Figure(m.Unit, low), report.Figure(m.Unit, high),
				report.Count(float64(len(p.Values(m.Name)))),
			})
		}
	}
	return t
}
