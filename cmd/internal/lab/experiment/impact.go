package experiment

import (
	"math"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Metrics of an event, besides archive.LongestGapSec, archive.LostOps and archive.P99Ratio.
var (
	EventSec      = archive.Metric{Name: "event_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "duration of the event"}
	EventFailures = archive.Metric{Name: "event_failed", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "operations that failed during the event"}
	RateRatio     = archive.Metric{Name: "rate_ratio", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "throughput during the event by throughput before"}
)

// Span is a part of a timeline, on its clock.
type Span struct{ From, To time.Duration }

// Length returns how long it is.
func (s Span) Length() time.Duration { return s.To - s.From }

// Impact is what an event did to the clients.
type Impact struct {
	Duration   time.Duration
	LongestGap time.Duration // without an operation that ended well
	LostOps    float64       // operations missing at the rate before the event; 0 if there were more
	RateRatio  float64       // throughput during by throughput before; 0 without a rate before
	P99Ratio   float64       // p99 during by p99 before, of whole seconds; 0 if there is none
	Failed     uint64        // operations that failed during the event
}

// ImpactOf compares an event with the time before it. Latencies are of the seconds that the spans touch. A
// second that both touch counts as the event's only.
func ImpactOf(t *load.Timeline, before, event Span) Impact {
	i := Impact{Duration: event.Length()}
	i.LongestGap, _ = t.LongestGap(event.From, event.To)
	completed, failed := t.Counts(event.From, event.To)
	i.Failed = failed
	rate := t.Rate(before.From, before.To)
	i.LostOps = max(0, rate*event.Length().Seconds()-float64(completed))
	i.RateRatio = report.Ratio(t.Rate(event.From, event.To), rate)
	quiet := min(before.To, event.From.Truncate(time.Second))
	was, is := t.Latencies(before.From, quiet), t.Latencies(event.From, event.To)
	if was.Count() > 0 && is.Count() > 0 {
		i.P99Ratio = report.Ratio(float64(is.Quantile(0.99)), float64(was.Quantile(0.99)))
	}
	return i
}

// AddTo adds the figures of an impact to those of a repeat.
func (i Impact) AddTo(f map[string]float64) {
	f[EventSec.Name], f[archive.LongestGapSec.Name] = i.Duration.Seconds(), i.LongestGap.Seconds()
	f[archive.LostOps.Name], f[EventFailures.Name] = math.Round(i.LostOps), float64(i.Failed)
	if i.RateRatio > 0 {
		f[RateRatio.Name] = i.RateRatio
	}
	if i.P99Ratio > 0 {
		f[archive.P99Ratio.Name] = i.P99Ratio
	}
}

// ImpactMetrics are those of an impact that are not standard.
var ImpactMetrics = []archive.Metric{EventSec, EventFailures, RateRatio}
