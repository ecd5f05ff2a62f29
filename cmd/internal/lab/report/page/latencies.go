package page

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Operation is the latencies of one operation in one repeat.
type Operation struct {
	Tag       string
	Intervals []archive.Interval      // of the whole repeat
	Measured  *hdrhistogram.Histogram // those whose middle is in the phase measure, together
}

// Operations reads the histograms of a repeat. Those that are about a part of a latency (archive.TagService,
// archive.TagLag) are left out. A repeat without histograms has none.
func (v *View) Operations(r *archive.Repeat) ([]Operation, error) {
	if r.Histograms == "" {
		return nil, nil
	}
	from, to := measured(r)
	var all []Operation
	err := v.ReadHistograms(r.Histograms, func(i archive.Interval) error {
		if strings.HasSuffix(i.Tag, archive.TagService) || strings.HasSuffix(i.Tag, archive.TagLag) {
			return nil
		}
		at := slices.IndexFunc(all, func(o Operation) bool { return o.Tag == i.Tag })
		if at < 0 {
			at = len(all)
			all = append(all, Operation{Tag: i.Tag})
		}
		o := &all[at]
		o.Intervals = append(o.Intervals, i)
		if middle := i.Start.Add(i.End.Sub(i.Start) / 2); middle.Before(from) || !middle.Before(to) {
			return nil
		}
		if o.Measured == nil {
			o.Measured = i.Histogram.Clone()
			return nil
		}
		if dropped := o.Measured.Merge(i.Histogram); dropped > 0 {
			return fmt.Errorf("%w: %s: %d latencies are out of the range of its first histogram", archive.ErrDamaged, r.Histograms, dropped)
		}
		return nil
	})
	return all, err
}

// measured returns the bounds of the phase measure, or those of all time if a repeat does not say.
func measured(r *archive.Repeat) (from, to time.Time) {
	for _, p := range r.Phases {
		if p.Name == archive.PhaseMeasure {
			at := func(seconds float64) time.Time { return r.Began.Add(time.Duration(seconds * float64(time.Second))) }
			return at(p.FromSec), at(p.ToSec)
		}
	}
	return time.Time{}, time.Unix(math.MaxInt32*1000, 0)
}

// Quantile is one place of a percentile plot: a share of all operations took no longer than Us microseconds.
// ViewOf N operations one, on average, took longer; N is 1/(1 − share).
type Quantile struct{ N, Us float64 }

const (
	quantileStep = 1.12
	maxQuantileN = 1e7
)

// Quantiles returns the places of a percentile plot, evenly spaced on a logarithmic axis of N, up to the last
// single operation.
func Quantiles(h *hdrhistogram.Histogram) []Quantile {
	if h == nil || h.TotalCount() == 0 {
		return nil
	}
	var all []Quantile
	last := min(float64(h.TotalCount()), maxQuantileN)
	for n := 1.0; n < last; n *= quantileStep {
		all = append(all, Quantile{n, float64(h.ValueAtPercentile(100*(1-1/n))) / 1e3})
	}
	return append(all, Quantile{last, float64(h.ValueAtPercentile(100*(1-1/last))) / 1e3})
}

// MainOperation returns the operation with the most latencies; ok is false without any.
func MainOperation(operations []Operation) (main Operation, ok bool) {
	for _, o := range operations {
		if o.Measured != nil && (!ok || o.Measured.TotalCount() > main.Measured.TotalCount()) {
			main, ok = o, true
		}
	}
	return main, ok
}

// ErrNoRepeat is the error of a run of which nothing was finished.
var ErrNoRepeat = errors.New("no repeat was finished")

// Standing is a family with the repeat that stands for it, and its latencies.
type Standing struct {
	Family     Family
	Point      *archive.Point
	Repeat     *archive.Repeat
	Operations []Operation
}

// Standings returns at most n families that have a whole repeat. Those with the highest throughput of all
// come first into the choice; the order stays that of the run.
func (v *View) Standings(n int) ([]Standing, error) {
	var all []Standing
	for _, f := range v.Families {
		if p, r := f.Typical(); r != nil {
			all = append(all, Standing{Family: f, Point: p, Repeat: r})
		}
	}
	if len(all) == 0 {
		return nil, ErrNoRepeat
	}
	if len(all) > n {
		all = fastest(all, n)
	}
	for i := range all {
		var err error
		if all[i].Operations, err = v.Operations(all[i].Repeat); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func fastest(all []Standing, n int) []Standing {
	throughput := func(s Standing) float64 { return s.Repeat.Figures[archive.OpsPerSec.Name] }
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b Standing) int {
		switch {
		case throughput(a) > throughput(b):
			return -1
		case throughput(a) < throughput(b):
			return 1
		}
		return 0
	})
	least := throughput(order[n-1])
	all = slices.DeleteFunc(all, func(s Standing) bool { return throughput(s) < least })
	return all[:n]
}

// Name is the family's name with that of the point's load.
func (s Standing) Name() string {
	if len(s.Family.Points) < 2 {
		return s.Family.Name
	}
	label := loadLabel(s.Point)
	return s.Family.Name + ", " + labelled(label, s.Point.Labels[label])
}
