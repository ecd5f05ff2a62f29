package recipe

import (
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// rowRepeat makes a row that another package has measured a repeat. It has no figure of what the row has not.
func rowRepeat(s *experiment.Session, row report.Result, began time.Time) archive.Repeat {
	f := map[string]float64{}
	if row.DurationSec > 0 {
		f[archive.OpsPerSec.Name], f[archive.Ops.Name], f[archive.Failed.Name], f[archive.DurationSec.Name] = row.OpsPerSec, float64(row.Ops), float64(row.Failed), row.DurationSec
	}
	for _, of := range []struct {
		m archive.Metric
		x float64
	}{
		{archive.MeanUs, row.MeanUs}, {archive.P50Us, row.P50Us}, {archive.P90Us, row.P90Us}, {archive.P99Us, row.P99Us}, {archive.P999Us, row.P999Us}, {archive.MaxUs, row.MaxUs},
		{archive.FsyncsPerOp, row.FsyncsPerOp}, {archive.BytesPerFsync, row.BytesPerFsync}, {archive.EntriesPerAppend, row.EntriesPerAppend}, {archive.EntriesPerApply, row.EntriesPerApply},
		{archive.CPUUsPerOp, row.CPUUsPerOp}, {archive.AllocsPerOp, row.AllocsPerOp},
	} {
		if of.x > 0 {
			f[of.m.Name] = of.x
		}
	}
	r := archive.Repeat{Seed: s.Seed, Began: began.UTC(), Errors: map[string]uint64{}, Figures: f}
	row.Runs = 1 // the spread of several is no remark
	notes := row.Notes()
	for i, w := range row.Warnings {
		r.Warnings = append(r.Warnings, archive.Warning{Code: rowWarnings[w], Text: notes[i] + "."})
	}
	return r
}

// rowWarnings are the codes of a row's warnings.
var rowWarnings = map[string]string{
	report.WarnSaturated: archive.WarnSaturated, report.WarnGeneratorBound: archive.WarnGeneratorBound, report.WarnFailures: archive.WarnFailures,
	report.WarnNoOps: archive.WarnFailures, report.WarnMoved: archive.WarnLeaderMoved,
}

// setRatio sets a figure to a by b, if there is such a ratio.
func setRatio(f map[string]float64, m archive.Metric, a, b float64) {
	if b > 0 {
		f[m.Name] = a / b
	}
}

// labelled are the labels of a setup, and pairs of a name and a value.
func labelled(setup rig.Setup, pipeline string, pairs ...string) map[string]string {
	l := experiment.Labels(setup, pipeline)
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = pairs[i+1]
	}
	return l
}

// repeatOf is a repeat that has figures only.
func repeatOf(s *experiment.Session, began time.Time, partial bool, f map[string]float64) archive.Repeat {
	return archive.Repeat{Seed: s.Seed, Began: began.UTC(), Partial: partial, Errors: map[string]uint64{}, Figures: f}
}
