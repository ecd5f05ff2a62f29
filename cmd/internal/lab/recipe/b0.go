package recipe

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// b0 is normal operation under varying load, the question that the dissertation asks before its six open
// ones: writes, and reads by each way, at shares of what a closed loop reaches. Beside it: what the leader's
// parallel disk write and the early commit are worth, and each mode of the log.
var b0 = design[b0Scale]{
	name:     "b0",
	question: "How do writes and reads of each kind behave under varying load?",
	source:   "dissertation, chapter 10: normal operation",
	hosts:    3,
	plan:     scaleB0,
	about: func(c b0Scale) time.Duration {
		return times(c.steps(), c.l.about()) + times(c.again*len(b0Ablated)+len(b0Modes), c.l.about()+aboutCluster)
	},
	needMiB: func(s Size) int { return pick(s, orLong(s, 6000, 250_000), 2000, 64) }, // one cluster keeps all that its clients write
	omits: omissions{
		full:  "the loads 10 and 100 % (of mixes also 25, 75 and 120 %), four of five rounds, windows of 10 s",
		short: "the loads 10, 50, 75, 100 and 120 %, four of five rounds, windows of 10 s",
		always: []string{
			"values of other sizes than 1 KiB; clusters of one and five hosts; injected loss of packets",
			"limits of a batch in bytes; the rules for the next batch (recipe batches)",
		},
	},
	steps:   func(c b0Scale) int { return c.steps() + c.again*len(b0Ablated) + len(b0Modes) },
	measure: measureB0,
	judge:   func(s *experiment.Session, _ b0Scale) { judgeB0(s) },
}

const (
	b0Value     = 1024
	b0Fsync     = 10 * time.Millisecond // of every disk in the ablations, so that chance is small beside it
	b0SlowFsync = 90 * time.Millisecond // what the leader's disk gets on top: ten times as slow
	b0MaxRate   = 200_000               // more is the generator's business
)

// b0Scale is how much of b0 is made.
type b0Scale struct {
	l      lengths
	alone  []int // percent of the peak that writes alone, and reads alone, are offered at
	mixed  []int // the same of mixes
	rounds int
	again  int // measurements of each ablation
}

// b0Writes are the percent of writes in the mixes, beside none and all.
var b0Writes = []int{50, 10}

func scaleB0(size Size) b0Scale {
	return b0Scale{
		l: pick(size, orLong(size, lengths{500 * time.Millisecond, 1200 * time.Millisecond, 1300 * time.Millisecond}, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}),
			lengths{300 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond}, lengths{0, 10 * time.Millisecond, 100 * time.Millisecond}),
		alone:  pick(size, orLong(size, []int{25, 50, 75, 90, 120}, []int{10, 25, 50, 75, 90, 100, 120}), []int{25, 90}, []int{50}),
		mixed:  pick(size, orLong(size, []int{50, 90}, []int{10, 25, 50, 75, 90, 100, 120}), []int{90}, []int{50}),
		rounds: pick(size, orLong(size, 1, 5), 1, 1),
		again:  pick(size, orLong(size, 3, 5), 1, 1),
	}
}

// operations are what the clients of b0 do, with the shares of the peak that are offered.
func (c b0Scale) operations() (all []b0Operation) {
	all = append(all, b0Operation{shares: c.alone})
	for _, by := range rig.AllReadings {
		all = append(all, b0Operation{by: by, shares: c.alone})
	}
	for _, writes := range b0Writes {
		for _, by := range rig.AllReadings[1:] { // a mix with reads by the log is writes alone
			all = append(all, b0Operation{by, writes, c.mixed})
		}
	}
	return all
}

// b0Operation is what clients do: reads by a way, writes if there is none, or both.
type b0Operation struct {
	by     rig.Reading
	writes int // percent, beside reads
	shares []int
}

// point is the operation without a load.
func (o b0Operation) point(setup rig.Setup, l lengths) experiment.Point {
	p := l.of(experiment.Point{Setup: setup, Reading: o.by, Writes: o.writes, ValueBytes: b0Value})
	if o.by != "" && o.writes == 0 {
		p.ValueBytes = 32
	}
	return p
}

// steps returns how many windows the loads have.
func (c b0Scale) steps() (n int) {
	for _, o := range c.operations() {
		n += c.rounds * (1 + len(o.shares))
	}
	return n
}

func measureB0(ctx context.Context, s *run, c b0Scale) error {
	if err := b0Loads(ctx, s, c); err != nil {
		return err
	}
	if err := b0Ablations(ctx, s, c); err != nil {
		return err
	}
	for _, mode := range b0Modes {
		setup := three()
		setup.Durability = mode
		pt := c.l.of(experiment.Point{Setup: setup, ValueBytes: b0Value, Clients: 100}).Named("async").With("part", "modes", fmt.Sprintf("log %v", mode))
		s.step(pt.Name, c.l.most+c.l.length)
		if _, err := s.Measure(ctx, pt); err != nil {
			return err
		}
	}
	return nil
}

var b0Modes = []wal.Mode{wal.ModeSync, wal.ModeGroup, wal.ModeGroupDelay(3*time.Millisecond, 0, 0), wal.ModeUnsafeInterval(3*time.Second, 0), wal.ModeUnsafeOS, wal.ModeMemory}

// b0Loads measures each operation at shares of its own peak, in rounds, on one cluster.
func b0Loads(ctx context.Context, s *run, c b0Scale) error {
	setup := three()
	setup.Leases = true
	operations := c.operations()
	for _, o := range operations { // the order of the report
		pt := o.point(setup, c.l)
		pt.Clients = b0PeakClients
		pt = pt.Named("async")
		s.Point(pt.Name, pt.Labels)
		for _, share := range o.shares {
			pt := o.at(setup, c.l, share, 0)
			s.Point(pt.Name, pt.Labels)
		}
	}
	if s.passed(c.steps(), c.steps()) {
		return nil
	}
	return s.InCluster(ctx, setup, func(cluster *rig.Cluster) error {
		peaks := map[string]float64{}
		return experiment.Shuffled(s.Session, c.rounds, operations, func(_ int, o b0Operation) error {
			of := o.point(setup, c.l)
			name := of.OperationName()
			s.step(name+", peak", c.l.most+c.l.length)
			if err := cluster.Settle(ctx); err != nil {
				return err
			}
			of.Clients = b0PeakClients
			peak, err := capacity(ctx, s, cluster, of.Named("async"))
			if err != nil {
				return err
			}
			if peaks[name] == 0 {
				peaks[name] = peak // of the first round, so that all rounds offer the same
			}
			for _, share := range o.shares {
				pt := o.at(setup, c.l, share, peaks[name])
				s.step(pt.Name, c.l.most+c.l.length)
				r, err := s.Window(ctx, cluster, pt, nil)
				if err != nil {
					return fmt.Errorf("%s: %w", pt.Name, err)
				}
				s.Progress.PointDone(experiment.Row(pt, r))
			}
			return nil
		})
	})
}

// b0PeakClients are the clients of the closed loop that finds a peak.
const b0PeakClients = 100

// at is the operation at a share of its peak.
func (o b0Operation) at(setup rig.Setup, l lengths, share int, peak float64) experiment.Point {
	pt := o.point(setup, l)
	pt.Rate = max(1, float64(int(min(peak*float64(share)/100, b0MaxRate))))
	pt = pt.Named("async").With("share", fmt.Sprintf("%d%%", share), "")
	delete(pt.Labels, archive.LabelRate) // the share identifies the point, also in a comparison
	pt.Name = fmt.Sprintf("%s, %d %% of its peak", pt.OperationName(), share)
	return pt
}

// ablation is a cluster of which one thing is different.
type ablation struct {
	name    string
	of      pipeline.Pipeline
	clients int
	slow    bool // the leader's disk is ten times as slow
}

var b0Ablated = []ablation{
	{"the leader writes, then sends", pipeline.Basic{}, 1, false},
	{"the leader sends, then writes", pipeline.Parallel{}, 1, false},
	{"equal disks", pipeline.Async{}, 10, false},
	{"the leader's disk ten times as slow", pipeline.Async{}, 10, true},
	{"equal disks, clamped", pipeline.Clamped{}, 10, false},
	{"the leader's disk ten times as slow, clamped", pipeline.Clamped{}, 10, true},
}

func (a ablation) point(l lengths) experiment.Point {
	setup := three()
	setup.Pipeline, setup.FsyncDelay, setup.Faults = a.of, b0Fsync, true
	p := l.of(experiment.Point{Setup: setup, ValueBytes: b0Value, Clients: a.clients}).Named(experiment.PipelineName(a.of))
	return p.With("part", a.name, a.name)
}

func b0Ablations(ctx context.Context, s *run, c b0Scale) error {
	for _, a := range b0Ablated { // the order of the report
		pt := a.point(c.l)
		s.Point(pt.Name, pt.Labels)
	}
	return experiment.Shuffled(s.Session, c.again, b0Ablated, func(_ int, a ablation) error {
		pt := a.point(c.l)
		return s.trial(pt.Name, c.l.most+c.l.length, func() error {
			return s.InCluster(ctx, pt.Setup, func(cluster *rig.Cluster) error {
				if a.slow {
					cluster.Member(cluster.Leader(0)).SlowDisk(b0SlowFsync)
				}
				_, err := s.Window(ctx, cluster, pt, nil)
				return err
			})
		})
	})
}

func judgeB0(s *experiment.Session) {
	name := func(i int) string { return b0Ablated[i].point(lengths{}).Name }
	basic, have1 := s.Median(name(0), archive.P50Us.Name)
	parallel, have2 := s.Median(name(1), archive.P50Us.Name)
	oneFsync := limit{text: "by ≥ 0.7 and ≤ 1.5 of 10 ms", holds: func(x float64) bool { return x >= 0.7 && x <= 1.5 }}
	judgeValue(s, "with the leader's disk in parallel, one client's latency falls by about one fsync", name(1), archive.UnitRatio, oneFsync,
		(basic-parallel)/float64(b0Fsync/time.Microsecond), have1 && have2, "one of the two points was not measured")
	judge(s,
		demand{"with early commit, a leader's disk ten times as slow raises p50", archive.P50Us, name(3), name(2), below(1.1, "").says("to < 1.1 ×")},
		demand{"the clamp makes the clients wait for the leader's slow disk", archive.P50Us, name(5), name(4), atLeast(2, "").says("to ≥ 2 ×")})
}
