package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b3 is the effect of follower failures: one follower of three dies, is stopped, cut off, slow on its disk or
// on its network, at half and at nine tenths of the capacity; and two of three die, which must stall the
// cluster and lose nothing.
//
// All hosts have the same disk here, and with one of three gone every write waits for the slower of two
// fsyncs, where it had waited for the second of three. Where single fsyncs are now and then ten times as long
// as usual, that alone makes p99 several times as high: of independent fsyncs it is then the 99.5th
// percentile of one, and was the 94th. So every fsync is made longer by b3Fsync, beside which the disk's
// chance is small, and p99 shows what the protocol adds. The event is also made on the disk as it is
// (b3Real), as a figure without a demand.
var b3 = design[b3Scale]{
	name:     "b3",
	question: "What do clients feel when followers fail, and when they come back?",
	source:   "dissertation, chapter 10, open question: follower failures",
	hosts:    3,
	plan:     scaleB3,
	about: func(c b3Scale) time.Duration {
		event := (c.l.least+c.l.most)/2 + c.t.before + c.t.during + c.t.after + time.Second // to be level
		return times(c.rounds*len(c.shares)*(len(b3Faults(nil))+1), event) + times(2, c.l.about()+aboutCluster)
	},
	needMiB: func(s Size) int { return pick(s, orLong(s, 6000, 90_000), 2500, 64) }, // one cluster keeps all that its clients write
	omits: omissions{
		full:   "four of five rounds, events of 10 s",
		short:  "the load of 90 %, four of five rounds, events of 10 s",
		always: []string{"five hosts with two failed ones; stolen processor time; the queues of the leader, beside the heap in the series"},
	},
	metrics: append(slices.Clone(eventMetrics), stalledOps),
	steps:   func(c b3Scale) int { return c.steps(false) + c.steps(true) },
	measure: func(ctx context.Context, s *run, c b3Scale) error {
		for _, real := range []bool{false, true} {
			setup := three()
			setup.Faults, setup.FsyncDelay = true, b3Fsync
			if real {
				setup.FsyncDelay = 0
			}
			if n := c.steps(real); s.passed(n, n) {
				continue
			}
			if err := s.InCluster(ctx, setup, func(cluster *rig.Cluster) error { return c.faults(ctx, s, cluster, setup, real) }); err != nil {
				return err
			}
		}
		return nil
	},
	judge: judgeB3,
}

const (
	b3Fsync    = 10 * time.Millisecond  // of every disk, on top
	b3Clients  = 200                    // of the closed loop that finds the capacity
	b3SlowDisk = 990 * time.Millisecond // a hundred times as long
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
			func(ctx context.Context) error { return c.Member(f[0]).Again(ctx) }, nil},
		{"one deaf and mute", on(func(i int) { c.Hold(i, true) }), off(func(i int) { c.Hold(i, false) }), nil},
		{"one refused", on(func(i int) { c.Refuse(i, true) }), off(func(i int) { c.Refuse(i, false) }), nil},
		{"one with a slow disk", on(func(i int) { c.Member(i).SlowDisk(b3SlowDisk) }), off(func(i int) { c.Member(i).SlowDisk(0) }), nil},
		{"one on a slow link", on(func(i int) { c.SetRate(i, b3SlowLink) }), off(func(i int) { c.SetRate(i, 0) }), nil},
		{b3Majority, func(context.Context) error {
			all := followers()
			return errors.Join(c.Member(all[0]).Kill(), c.Member(all[1]).Kill())
		}, func(ctx context.Context) error {
			return errors.Join(c.Member(f[0]).Again(ctx), c.Member(f[1]).Again(ctx))
		}, countStalled},
	}
}

// stalledOps is what must not be.
var stalledOps = archive.Metric{Name: "stalled_ops", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "writes acknowledged while two of three were dead, without those that were under way"}

// countStalled counts what was acknowledged without a majority, unless the event was shorter than what was
// under way may take.
func countStalled(o observed, f map[string]float64) error {
	if began := o.begun.Add(stallGrace); began.Before(o.to) {
		n, _ := o.Timeline.Counts(o.Timeline.At(began), o.Timeline.At(o.to))
		f[stalledOps.Name] = float64(n)
	}
	return nil
}

const (
	b3Majority = "two of three killed"
	b3Real     = "one killed, disks as they are"
)

// b3Scale is how much of b3 is made.
type b3Scale struct {
	l      lengths
	t      spans
	shares []int
	rounds int
}

func scaleB3(size Size) b3Scale {
	return b3Scale{
		l: pick(size, orLong(size, lengths{time.Second, 3 * time.Second, 3 * time.Second}, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}),
			lengths{500 * time.Millisecond, time.Second, 2 * time.Second}, lengths{0, 10 * time.Millisecond, 200 * time.Millisecond}),
		t: pick(size, orLong(size, spans{4 * time.Second, 4 * time.Second, 2 * time.Second}, spans{10 * time.Second, 10 * time.Second, 10 * time.Second}),
			spans{3 * time.Second, 3 * time.Second, 1500 * time.Millisecond}, spans{200 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond}),
		shares: pick(size, []int{50, 90}, []int{50}, []int{50}),
		rounds: pick(size, orLong(size, 1, 5), 1, 1),
	}
}

// steps are the peak of a cluster and its events: all of them, or with the disks as they are only the first.
func (c b3Scale) steps(real bool) int {
	events := len(b3Faults(nil))
	if real {
		events = 1
	}
	return 1 + c.rounds*events*len(c.shares)
}

// faults makes the events of a cluster.
func (c b3Scale) faults(ctx context.Context, s *run, cluster *rig.Cluster, setup rig.Setup, real bool) error {
	of := c.l.of(experiment.Point{Setup: setup, ValueBytes: b0Value})
	faults, kind := b3Faults(cluster), "async, slow disks"
	if real {
		faults, kind = faults[:1], "async, disks as they are"
		faults[0].name = b3Real
	}
	s.step("peak", c.l.most+c.l.length)
	peak, err := b3Peak(ctx, s, cluster, of, kind)
	if err != nil {
		return err
	}
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
		for _, share := range c.shares {
			pt := point(i, share)
			s.Point(pt.Name, pt.Labels)
		}
	}
	return experiment.Shuffled(s.Session, c.rounds, faults, func(_ int, i incident) error {
		for _, share := range c.shares {
			pt := point(i, share)
			err := s.trial(pt.Name, c.t.before+c.t.during+c.t.after, func() error { return happen(ctx, s.Session, cluster, pt, i, c.t) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// b3Peak measures the capacity, under a name of its own.
func b3Peak(ctx context.Context, s *run, c *rig.Cluster, p experiment.Point, name string) (float64, error) {
	p.Clients = b3Clients
	p = p.Named("async")
	p.Name = fmt.Sprintf("%s, %d clients", name, b3Clients)
	return capacity(ctx, s, c, p)
}

func b3Point(event string, share int) string { return fmt.Sprintf("%s, at %d %%", event, share) }

func judgeB3(s *experiment.Session, c b3Scale) {
	for _, share := range c.shares {
		name, majority := b3Point("one killed", share), b3Point(b3Majority, share)
		judge(s,
			demand{"one of three killed: throughput by that before", experiment.RateRatio, name, "", atLeast(0.95, "")},
			demand{"one of three killed, fsyncs of 10 ms: p99 by that before", archive.P99Ratio, name, "", below(2, "")})
		for _, i := range b3Faults(nil) {
			if i.name != b3Majority {
				judge(s, demand{i.name + ": elections", elections, b3Point(i.name, share), "", zero})
			}
		}
		acknowledged, long := sumOf(s, majority, stalledOps, c.rounds)
		judgeValue(s, "two of three killed: the cluster stalls and acknowledges nothing", majority, archive.UnitCount, zero.says("0 acknowledged without a majority"),
			acknowledged, long, "the event was not longer than what was under way may take")
	}
}
