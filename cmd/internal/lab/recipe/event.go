package recipe

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// incident is something that happens to a cluster under load: first nothing, for a while, then the event,
// then its end, and a while until all is as before.
type incident struct {
	name  string
	begin func(context.Context) error // the event
	end   func(context.Context) error // undoes it; nil: there is nothing to undo
	// also adds figures of this event alone; nil: there are none.
	also func(observed, map[string]float64) error
}

// spans are the lengths of the parts of an incident.
type spans struct{ before, during, after time.Duration }

// observed is an incident as the clients saw it.
type observed struct {
	experiment.Timed
	from, to time.Time // of the event
	begun    time.Time // it had its effect: killing a host may take a while
	level    time.Time // all members were level again
	impact   experiment.Impact
	terms    uint64 // elections that were won meanwhile
}

// recovery is how long the members took to become level, after the end of the event.
var recovery = archive.Metric{Name: "level_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "from the end of the event until all members were level"}

// elections is how many were won.
var elections = archive.Metric{Name: "elections", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "elections won during the event and after it"}

// happen puts a cluster under the load of a point, lets the incident happen, and keeps the repeat with the
// figures of its impact. The caller has asked whether an earlier part of the run has finished it.
func happen(ctx context.Context, s *experiment.Session, c *rig.Cluster, p experiment.Point, i incident, t spans) (err error) {
	if err := c.Settle(ctx); err != nil {
		return err
	}
	term := c.Term()
	p.Length = 0
	var o observed
	o.Timed, err = s.Observe(ctx, c, p, func(ctx context.Context) error {
		if err := lab.Sleep(ctx, t.before); err != nil {
			return err
		}
		o.from = time.Now()
		s.Progress.Phase(i.name)
		if err := i.begin(ctx); err != nil {
			return err
		}
		o.begun = time.Now()
		if err := lab.Sleep(ctx, t.during-time.Since(o.from)); err != nil {
			return err
		}
		o.to = time.Now()
		s.Progress.Phase("recovery")
		if i.end != nil {
			if err := i.end(ctx); err != nil {
				return err
			}
		}
		if err := c.Level(ctx); err != nil {
			return err
		}
		o.level = time.Now()
		return lab.Sleep(ctx, t.after-time.Since(o.to))
	})
	if err != nil {
		return err
	}
	tl := o.Timeline
	before := experiment.Span{From: o.Warmup, To: tl.At(o.from)}
	o.impact = experiment.ImpactOf(tl, before, experiment.Span{From: tl.At(o.from), To: tl.At(o.to)})
	o.terms = c.Term() - term
	o.impact.AddTo(o.Repeat.Figures)
	o.Repeat.Figures[recovery.Name] = o.level.Sub(o.to).Seconds()
	o.Repeat.Figures[elections.Name] = float64(o.terms)
	o.Repeat.HasDrift = false // it is the event
	o.Repeat.Warnings = slices.DeleteFunc(o.Repeat.Warnings, func(w archive.Warning) bool { return w.Code == archive.WarnDrift })
	o.Repeat.Phases = append(o.Repeat.Phases,
		archive.Phase{Name: i.name, FromSec: tl.At(o.from).Seconds(), ToSec: tl.At(o.to).Seconds()},
		archive.Phase{Name: "recovery", FromSec: tl.At(o.to).Seconds(), ToSec: tl.At(o.level).Seconds()})
	if i.also != nil {
		if err := i.also(o, o.Repeat.Figures); err != nil {
			return err
		}
	}
	return s.Keep(p, o.Timed)
}

// eventMetrics are what happen measures.
var eventMetrics = append(slices.Clone(experiment.ImpactMetrics), recovery, elections)
