package experiment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Sweep looks for the highest rate that a target bears.
type Sweep struct {
	Point  Point         `json:"-"` // at no rate
	Start  float64       // the first rate
	Factor float64       // between two rates before saturation; 2 in the lab
	Steps  int           // bisections after it
	Limit  time.Duration // on p99; 0: there is none
	Max    float64       // no rate above it is tried; 0: no bound
}

// Knee is the answer.
type Knee struct {
	Rate    float64 // the highest rate at which the target was not saturated; 0: there was none
	Limited float64 // the highest of these at which p99 was below the limit; 0: there was none, or no limit
	Points  []string
}

// Metrics of a sweep.
var (
	KneeRate    = archive.Metric{Name: "knee_rate_per_sec", Unit: archive.UnitPerSecond, Better: archive.BetterHigher, Meaning: "highest rate without saturation"}
	LimitedRate = archive.Metric{Name: "limited_rate_per_sec", Unit: archive.UnitPerSecond, Better: archive.BetterHigher, Meaning: "highest rate with p99 below the limit"}
)

// tried is what one rate has shown.
type tried struct {
	saturated bool
	p99       time.Duration
}

// Sweep doubles the rate until the target is saturated, then halves the interval between the highest rate
// without and the lowest rate with saturation. Then it does the same for the limit on p99, up to the knee. on
// hears each point. A rate at which a member goes ends the sweep with an error: what the others bear without
// it is no answer.
func (s *Session) Sweep(ctx context.Context, w Sweep, pipeline string, on func(n int, p Point)) (Knee, error) {
	var names []string
	k, err := w.search(func(rate float64) (tried, error) {
		p := w.Point
		p.Rate, p.Clients = rate, 0
		p = p.Named(pipeline)
		on(len(names), p)
		names = append(names, p.Name)
		r, err := s.Measure(ctx, p)
		if err != nil {
			return tried{}, err
		}
		s.Progress.PointDone(Row(p, r))
		t := tried{p99: time.Duration(r.Figures[archive.P99Us.Name] * float64(time.Microsecond))}
		for _, warning := range r.Warnings {
			switch warning.Code {
			case archive.WarnSaturated:
				t.saturated = true
			case archive.WarnMemberGone:
				return tried{}, fmt.Errorf("%s: the sweep ends here, because the next rates would be those of another cluster: %s", p.Name, strings.TrimSuffix(warning.Text, "."))
			}
		}
		return t, nil
	})
	k.Points = names
	return k, err
}

// search asks try for one rate after the other.
func (w Sweep) search(try func(rate float64) (tried, error)) (k Knee, err error) {
	seen := map[float64]tried{}
	ask := func(rate float64) (tried, error) {
		t, err := try(rate)
		if err == nil {
			seen[rate] = t
		}
		return t, err
	}
	good, bad := 0.0, 0.0
	for rate := max(w.Start, 1); bad == 0 && (w.Max <= 0 || rate <= w.Max); rate *= w.Factor {
		t, err := ask(rate)
		if err != nil {
			return k, err
		}
		if t.saturated {
			bad = rate
		} else {
			good = rate
		}
	}
	k.Rate, err = bisect(w.Steps, good, bad, func(rate float64) (bool, error) {
		t, err := ask(rate)
		return !t.saturated, err
	})
	if err != nil || w.Limit <= 0 {
		return k, err
	}
	// The knee bounds what the limit allows: the rates above it have had their steps.
	within := func(t tried) bool { return !t.saturated && t.p99 < w.Limit }
	good, bad = 0, 0
	for rate, t := range seen {
		if within(t) {
			good = max(good, rate)
		}
	}
	for rate, t := range seen {
		if !within(t) && rate > good && good < k.Rate && (bad == 0 || rate < bad) {
			bad = rate
		}
	}
	k.Limited, err = bisect(w.Steps, good, bad, func(rate float64) (bool, error) {
		t, err := ask(rate)
		return within(t), err
	})
	return k, err
}

// bisect halves the interval between a good and a bad rate, and returns the highest good one. bad is 0 if
// there is none.
func bisect(steps int, good, bad float64, isGood func(float64) (bool, error)) (float64, error) {
	for range steps {
		middle := float64(int64((good + bad) / 2))
		if bad == 0 || middle <= good || middle >= bad {
			break
		}
		ok, err := isGood(middle)
		if err != nil {
			return good, err
		}
		if ok {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, nil
}

// String says the answer in a sentence.
func (k Knee) String() string {
	if k.Rate == 0 {
		return "the target was saturated at every rate"
	}
	text := fmt.Sprintf("the highest rate without saturation is %s/s", report.Count(k.Rate))
	if k.Limited > 0 {
		text += fmt.Sprintf("; with p99 below the limit it is %s/s", report.Count(k.Limited))
	}
	return text
}
