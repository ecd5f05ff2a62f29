package recipe

import (
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
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

// inFreshDir calls f with a new directory, as the session does, and says in which point it failed.
func inFreshDir[T any](s *experiment.Session, f func(dir string) (T, error)) (result T, err error) {
	err = s.InFreshDir(func(dir string) error {
		var failed error
		result, failed = f(dir)
		return failed
	})
	return result, err
}
