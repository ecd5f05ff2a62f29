package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b3 is the effect of follower failures: one follower of three dies, is stopped, cut off, slow on its disk or
// on its network, at half and at nine tenths of the capacity; and two of three die, which must stall the
// cluster and lose nothing.
var b3 = Recipe{
	Name:     "b3",
	Question: "What do clients feel when followers fail, and when they come back?",
	Source:   "dissertation, chapter 10, open question: follower failures",
	Hosts:    3,
	NeedMiB:  needMiB(8000, 2500),
	Run:      runB3,
}

const (
	b3SlowDisk = 50 * time.Millisecond  // some hundred times an fsync of a good disk
	b3SlowLink = 10e6 / 8               // 10 Mbit/s
	stallGrace = 300 * time.Millisecond // for what was under way when the majority went
)

// b3Faults are what happens, to the followers of a cluster.
func b3Faults(c *rig.Cluster) []incident {
	var f []int // the followers, from the beginning of the incident to its end
	followers := func() []int {
		f = nil
		for i := range c.Members() {
			if i != c.Leader(0) {
				f = append(f, i)
			}
		}
		return f
	}
	on := func(do func(i int)) func(context.Context) error {
		return func(context.Context) error { do(followers()[0]); return nil }
	}
	off := func(do func(i int)) func(context.Context) error {
		return func(context.Context) error { do(f[0]); return nil }
	}
	return []incident{
		{"one killed", func(context.Context) error { return c.Member(followers()[0]).Kill() },
			func(ctx context.Context) error { return c.Member(f[0]).Again(ctx) }},
		{"one deaf and mute", on(func(i int) { c.Hold(i, true) }), off(func(i int) { c.Hold(i, false) })},
		{"one refused", on(func(i int) { c.Refuse(i, true) }), off(func(i int) { c.Refuse(i, false) })},
		{"one with a slow disk", on(func(i int) { c.Member(i).SlowDisk(b3SlowDisk) }), off(func(i int) { c.Member(i).SlowDisk(0) })},
		{"one on a slow link", on(func(i int) { c.SetRate(i, b3SlowLink) }), off(func(i int) { c.SetRate(i, 0) })},
		{b3Majority, func(context.Context) error {
			all := followers()
			return errors.Join(c.Member(all[0]).Kill(), c.Member(all[1]).Kill())
		}, func(ctx context.Context) error {
			return errors.Join(c.Member(f[0]).Again(ctx), c.Member(f[1]).Again(ctx))
		}},
	}
}

const b3Majority = "two of three killed"

func runB3(ctx context.Context, s *experiment.Session, size Size) error {
	l := pick(size, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}, lengths{500 * time.Millisecond, time.Second, 2 * time.Second},
		lengths{0, 10 * time.Millisecond, 200 * time.Millisecond})
	t := pick(size, spans{10 * time.Second, 10 * time.Second, 10 * time.Second}, spans{2 * time.Second, 2 * time.Second, 1500 * time.Millisecond},
		spans{200 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond})
	shares := pick(size, []int{50, 90}, []int{50}, []int{50})
	rounds := pick(size, 5, 1, 1)
	if size != Full {
		s.Omit("the load of 90 %%, four of five rounds, events of 10 s")
	}
	s.Omit("five hosts with two failed ones; stolen processor time; the queues of the leader, beside the heap in the series")
	declareEvents(s)
	setup := three()
	setup.Faults = true
	var acknowledged uint64 // without a majority
	long := true            // the events lasted longer than what was under way may take
	n := len(b3Faults(nil))
	p := begin(s, 1+rounds*n*len(shares))
	defer p.end()
	err := s.InCluster(ctx, setup, func(c *rig.Cluster) error {
		of := l.of(experiment.Point{Setup: setup, ValueBytes: b0Value})
		p.step("peak", l.most+l.length)
		peak, err := capacity(ctx, s, c, of, 100)
		if err != nil {
			return err
		}
		faults := b3Faults(c)
		point := func(i incident, share int) experiment.Point {
			pt := of
			pt.Rate = float64(max(int(peak*float64(share)/100), 1))
			pt = pt.Named("async").With("event", i.name, i.name)
			pt.Name = b3Point(i.name, share)
			delete(pt.Labels, archive.LabelRate)
			pt.Labels["share"] = fmt.Sprintf("%d%%", share)
			return pt
		}
		for _, i := range faults { // the order of the report
			for _, share := range shares {
				pt := point(i, share)
				s.Point(pt.Name, pt.Labels)
			}
		}
		return experiment.Shuffled(s, rounds, faults, func(_ int, i incident) error {
			for _, share := range shares {
				pt := point(i, share)
				p.step(pt.Name, t.before+t.during+t.after)
				o, err := happen(ctx, s, c, pt, i, t)
				if err != nil {
					return err
				}
				if i.name == b3Majority {
					began := o.begun.Add(stallGrace)
					n, _ := o.Timeline.Counts(o.Timeline.At(began), o.Timeline.At(o.to))
					acknowledged, long = acknowledged+n, long && began.Before(o.to)
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	judgeB3(s, shares, acknowledged, long)
	return nil
}

func b3Point(event string, share int) string { return fmt.Sprintf("%s, at %d %%", event, share) }

func judgeB3(s *experiment.Session, shares []int, acknowledged uint64, long bool) {
	for _, share := range shares {
		name := b3Point("one killed", share)
		judgeFigure(s, name, "one of three killed: throughput by that before", experiment.RateRatio, "≥ 0.95", experiment.AtLeast(0.95))
		judgeFigure(s, name, "one of three killed: p99 by that before", archive.P99Ratio, "< 2", func(x float64) bool { return x < 2 })
		for _, i := range b3Faults(nil) {
			if i.name != b3Majority {
				judgeFigure(s, b3Point(i.name, share), i.name+": elections", elections, "0", experiment.AtMost(0))
			}
		}
		s.Judge(experiment.Criterion{Name: "two of three killed: the cluster stalls and acknowledges nothing", Point: b3Point(b3Majority, share), Limit: "0 acknowledged without a majority", Unit: archive.UnitCount, Holds: experiment.AtMost(0)}, float64(acknowledged), long, "the event was not longer than what was under way may take")
	}
}
