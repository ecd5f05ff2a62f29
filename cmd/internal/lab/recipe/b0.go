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
var b0 = Recipe{
	Name:     "b0",
	Question: "How do writes and reads of each kind behave under varying load?",
	Source:   "dissertation, chapter 10: normal operation",
	Hosts:    3,
	NeedMiB:  needMiB(6000, 2000),
	Run:      runB0,
}

const (
	b0Value     = 1024
	b0Fsync     = 2 * time.Millisecond  // of every disk in the ablations, so that chance is small beside it
	b0SlowFsync = 18 * time.Millisecond // what the leader's disk gets on top: ten times as slow
	b0MaxRate   = 200_000               // more is the generator's business
)

func runB0(ctx context.Context, s *experiment.Session, size Size) error {
	l := pick(size, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}, lengths{300 * time.Millisecond, 800 * time.Millisecond, 1200 * time.Millisecond},
		lengths{0, 10 * time.Millisecond, 100 * time.Millisecond})
	shares := pick(size, []int{10, 25, 50, 75, 90, 100, 120}, []int{25, 90}, []int{50})
	rounds := pick(size, 5, 1, 1)
	if size != Full {
		s.Omit("the loads 10, 50, 75, 100 and 120 %%, four of five rounds, windows of 10 s")
	}
	s.Omit("mixes of reads and writes: each load is of one kind")
	s.Omit("values of other sizes than 1 KiB; clusters of one and five hosts; injected loss of packets")
	s.Omit("fixed depths of the pipeline to a follower: the runtime has no such setting")
	steps := rounds*(len(rig.AllReadings)+1)*(len(shares)+1) + 3*2 + len(b0Modes)
	p := begin(s, steps)
	defer p.end()
	if err := b0Loads(ctx, s, p, l, shares, rounds); err != nil {
		return err
	}
	if err := b0Ablations(ctx, s, p, l); err != nil {
		return err
	}
	for _, mode := range b0Modes {
		setup := three()
		setup.Durability = mode
		pt := l.of(experiment.Point{Setup: setup, ValueBytes: b0Value, Clients: 100}).Named("async").With("part", "modes", fmt.Sprintf("log %v", mode))
		p.step(pt.Name, l.most+l.length)
		if _, err := s.Measure(ctx, pt); err != nil {
			return err
		}
	}
	judgeB0(s)
	return nil
}

var b0Modes = []wal.Mode{wal.ModeSync, wal.ModeGroup, wal.ModeGroupDelay(3*time.Millisecond, 0, 0), wal.ModeUnsafeInterval(3*time.Second, 0), wal.ModeUnsafeOS, wal.ModeMemory}

// b0Loads measures each operation at shares of its own peak, in rounds, on one cluster.
func b0Loads(ctx context.Context, s *experiment.Session, p *progress, l lengths, shares []int, rounds int) error {
	setup := three()
	setup.Leases = true
	operations := append([]rig.Reading{""}, rig.AllReadings...)
	return s.InCluster(ctx, setup, func(c *rig.Cluster) error {
		peaks := map[rig.Reading]float64{}
		return experiment.Shuffled(s, rounds, operations, func(_ int, by rig.Reading) error {
			of := l.of(experiment.Point{Setup: setup, Reading: by, ValueBytes: b0Value})
			if by != "" {
				of.ValueBytes = 32
			}
			p.step(fmt.Sprintf("%s, peak", operationName(by)), l.most+l.length)
			if err := c.Settle(ctx); err != nil {
				return err
			}
			peak, err := capacity(ctx, s, c, of, 100)
			if err != nil {
				return err
			}
			if peaks[by] == 0 {
				peaks[by] = peak // of the first round, so that all rounds offer the same
			}
			for _, share := range shares {
				pt := of
				pt.Rate = float64(int(min(peaks[by]*float64(share)/100, b0MaxRate)))
				pt.Labels = nil
				pt = pt.Named("async").With("share", fmt.Sprintf("%d%%", share), fmt.Sprintf("%d %%", share))
				delete(pt.Labels, archive.LabelRate) // the share identifies the point, also in a comparison
				pt.Name = fmt.Sprintf("%s, %d %% of its peak", operationName(by), share)
				p.step(pt.Name, l.most+l.length)
				r, err := s.Window(ctx, c, pt, nil)
				if err != nil {
					return fmt.Errorf("%s: %w", pt.Name, err)
				}
				s.Progress.PointDone(experiment.Row(pt, r))
			}
			return nil
		})
	})
}

func operationName(by rig.Reading) string {
	if by == "" {
		return "write"
	}
	return "read by " + string(by)
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

func b0Ablations(ctx context.Context, s *experiment.Session, p *progress, l lengths) error {
	for _, a := range b0Ablated {
		pt := a.point(l)
		p.step(pt.Name, l.most+l.length)
		err := s.InCluster(ctx, pt.Setup, func(c *rig.Cluster) error {
			if a.slow {
				c.Member(c.Leader(0)).SlowDisk(b0SlowFsync)
			}
			_, err := s.Window(ctx, c, pt, nil)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", pt.Name, err)
		}
	}
	return nil
}

func judgeB0(s *experiment.Session) {
	name := func(i int) string { return b0Ablated[i].point(lengths{}).Name }
	p50 := archive.P50Us.Name
	basic, have1 := s.Median(name(0), p50)
	parallel, have2 := s.Median(name(1), p50)
	s.Judge(experiment.Criterion{
		Name: "with the leader's disk in parallel, one client's latency falls by about one fsync", Point: name(1), Limit: "by ≥ 0.7 and ≤ 1.5 of 2 ms", Unit: archive.UnitRatio,
		Holds: func(x float64) bool { return x >= 0.7 && x <= 1.5 },
	}, (basic-parallel)/float64(b0Fsync/time.Microsecond), have1 && have2, "one of the two points was not measured")
	early, ok := s.Ratio(p50, name(3), name(2))
	s.Judge(experiment.Criterion{Name: "with early commit, a leader's disk ten times as slow raises p50", Point: name(3), Limit: "to < 1.1 ×", Unit: archive.UnitRatio,
		Holds: func(x float64) bool { return x < 1.1 }}, early, ok, "one of the two points was not measured")
	clamped, ok := s.Ratio(p50, name(5), name(4))
	s.Judge(experiment.Criterion{Name: "the clamp makes the clients wait for the leader's slow disk", Point: name(5), Limit: "to ≥ 2 ×", Unit: archive.UnitRatio, Holds: experiment.AtLeast(2)},
		clamped, ok, "one of the two points was not measured")
	s.Judge(experiment.Criterion{Name: "at depth 1 and 100 clients, entries for each fsync", Limit: "> 10", Unit: archive.UnitCount}, 0, false,
		"the runtime has no setting for the depth; entries per append of 100 clients are in the rows")
}
