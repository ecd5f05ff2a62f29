package recipe

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
)

// rafttoy is the experiment behind etcd-io/raft's AsyncStorageWrites: latency against throughput for three
// pipelines, and how large the batches are at saturation. The source used three machines with network volumes
// of 16,000 operations a second, whose fsync takes a millisecond or two; fsyncDelay stands for them.
var rafttoy = design[rafttoyScale]{
	name:     "rafttoy",
	question: "Which pipeline gives the lowest latency at each throughput, and how large are its batches at saturation?",
	source:   "rafttoy, pull request 3: asynchronous storage writes",
	hosts:    3,
	plan:     scaleRafttoy,
	about: func(c rafttoyScale) time.Duration {
		return times(c.rounds*len(rafttoyPipelines)*(len(c.megabytes)+len(c.clients)), c.l.about()+aboutCluster)
	},
	needMiB: needMiB(6000, 2000),
	omits: omissions{
		full:   "the rates 2, 8 and 32 MB/s, 16 clients, two of five rounds, and windows of 10 s",
		short:  "the rates 1, 4, 8, 32 and 64 MB/s, 16 and 256 clients, four of five rounds, and windows of 10 s",
		always: []string{"three machines: all hosts share the processors and the disk of this one"},
	},
	measure: func(ctx context.Context, s *run, c rafttoyScale) error {
		return s.MeasureAll(ctx, c.points(), c.rounds)
	},
	judge: judgeRafttoy,
}

const (
	rafttoyValue = 4096
	rafttoyMB    = 16 // the source's point, megabytes a second
	rafttoyFsync = 1500 * time.Microsecond
)

var rafttoyPipelines = []struct {
	name string
	of   pipeline.Pipeline
	// meanMs and batch are the source's figures: at 16 MB/s, and at saturation (0: not given).
	meanMs, batch float64
	sources       string
}{
	{"basic", pipeline.Basic{}, 13.2, 0, "P1"},
	{"parallel", pipeline.Parallel{}, 7.3, 928, "P2"},
	{"async", pipeline.Async{}, 5.24, 1542, "P3"},
}

// rafttoyScale is how much of rafttoy is made.
type rafttoyScale struct {
	megabytes []float64 // a second
	clients   []int
	rounds    int
	l         lengths
	judged    float64 // of the megabytes: the source's point, if it is made
}

func scaleRafttoy(size Size) rafttoyScale {
	return rafttoyScale{
		megabytes: pick(size, orLong(size, []float64{1, 4, 16, 64}, []float64{1, 2, 4, 8, 16, 32, 64}), []float64{2, 16}, []float64{1}),
		clients:   pick(size, orLong(size, []int{1, 256, 2048}, []int{1, 16, 256, 2048}), []int{1, 1024}, []int{8}),
		rounds:    pick(size, orLong(size, 3, 5), 1, 1),
		l: pick(size, orLong(size, lengths{500 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second}, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}),
			lengths{time.Second, 2 * time.Second, 3 * time.Second}, lengths{0, 20 * time.Millisecond, 50 * time.Millisecond}),
		judged: pick(size, rafttoyMB, rafttoyMB, 1.0),
	}
}

// points are in the order of the report.
func (c rafttoyScale) points() (all []experiment.Point) {
	for _, p := range rafttoyPipelines {
		setup := three()
		setup.Pipeline, setup.FsyncDelay = p.of, rafttoyFsync
		of := c.l.of(experiment.Point{Setup: setup, ValueBytes: rafttoyValue})
		for _, mb := range c.megabytes {
			pt := of
			pt.Rate = rateOf(mb)
			all = append(all, pt.Named(p.name))
		}
		for _, n := range c.clients {
			pt := of
			pt.Clients = n
			all = append(all, pt.Named(p.name))
		}
	}
	return all
}

// rateOf returns the rate of megabytes a second.
func rateOf(mb float64) float64 { return mb * 1e6 / rafttoyValue }

// pointNamed returns the name of a point of writes.
func pointNamed(name string, rate float64, clients int) string {
	return experiment.Point{Setup: rig.Setup{Pipeline: pipeline.Async{}}, Rate: rate, Clients: clients}.Named(name).Name
}

func judgeRafttoy(s *experiment.Session, c rafttoyScale) {
	open := func(name string) string { return pointNamed(name, rateOf(c.judged), 0) }
	full := func(name string) string { return pointNamed(name, 0, c.clients[len(c.clients)-1]) }
	for _, p := range rafttoyPipelines {
		s.Reference("rafttoy, three cloud machines", fmt.Sprintf("%s at %d MB/s: mean latency", p.sources, rafttoyMB), archive.UnitMicroseconds, new(1e3*p.meanMs), open(p.name), archive.MeanUs.Name, "")
	}
	for _, p := range rafttoyPipelines[1:] {
		s.Reference("rafttoy, three cloud machines", p.sources+" at saturation: entries in an append", archive.UnitCount, new(p.batch), full(p.name), archive.EntriesPerAppend.Name, "")
	}
	judge(s,
		demand{"async by parallel at the source's rate: mean latency", archive.MeanUs, open("async"), open("parallel"), atMost(0.8, " (the source: 0.72)")},
		demand{"parallel by basic at the source's rate: mean latency", archive.MeanUs, open("parallel"), open("basic"), atMost(0.75, " (the source: 0.55)")},
		demand{"async by parallel at saturation: entries in an append", archive.EntriesPerAppend, full("async"), full("parallel"), atLeast(1.2, " (the source: 1.66)")},
		demand{"async by parallel at saturation: throughput", archive.OpsPerSec, full("async"), full("parallel"), atLeast(1.2, " (the source: \"a similar gain\")")})
}
