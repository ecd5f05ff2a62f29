package recipe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// logcabin is the benchmark of the dissertation's figures 10.3 and 10.4: writes of 1,024 bytes to clusters of
// one to five hosts, by 1 to 100 threads of one client that share a TCP connection to the leader and wait for
// the result of its state machine. The client has a session, as LogCabin's has: in the last point its
// connection breaks again and again, and each write must take effect once.
var logcabin = design[logcabinScale]{
	name:     "logcabin",
	question: "How many writes a second, and how soon, with one to five hosts and 1 to 100 threads of one client?",
	source:   "dissertation, section 10.3, a branch of LogCabin on the hardware of 2014",
	hosts:    5,
	plan:     scaleLogcabin,
	about: func(c logcabinScale) time.Duration {
		return times(c.steps(), (c.l.least+c.l.most)/2+c.l.length+aboutCluster)
	},
	needMiB: needMiB(8000, 3000),
	omits: omissions{
		full:   "3 and 30 threads, one second of each ten",
		short:  "clusters of two and four hosts, 3 and 30 threads, four of five runs, runs of ten seconds",
		always: []string{"a machine for each host and one for the client: the hosts share one process, and the client has another"},
	},
	metrics: []archive.Metric{connects, repeats},
	steps:   logcabinScale.steps,
	measure: measureLogcabin,
	judge:   func(s *experiment.Session, _ logcabinScale) { judgeLogcabin(s) },
}

// thesis has the figures that were read off the dissertation's charts, by hosts: operations a second with
// 100, 10 and 1 threads, and the mean latency of one thread in milliseconds.
var thesis = [...]struct{ of100, of10, of1, meanMs float64 }{
	1: {29464, 8332, 1498, 0.668},
	2: {20999, 4803, 1026, 0.975},
	3: {19633, 5158, 1063, 0.941},
	4: {16724, 4741, 1012, 0.988},
	5: {14635, 4821, 1016, 0.984},
}

const logcabinValue = 1024

// logcabinScale is how much of logcabin is made.
type logcabinScale struct {
	hosts, threads []int
	rounds         int
	l              lengths
}

func scaleLogcabin(size Size) logcabinScale {
	return logcabinScale{
		hosts:   pick(size, []int{1, 2, 3, 4, 5}, []int{1, 3, 5}, []int{1, 2}),
		threads: pick(size, orLong(size, []int{1, 10, 100}, []int{1, 3, 10, 30, 100}), []int{1, 10, 100}, []int{1, 10}),
		rounds:  pick(size, 5, 1, 1),
		l: pick(size, orLong(size, lengths{300 * time.Millisecond, 600 * time.Millisecond, 9 * time.Second}, lengths{2 * time.Second, 10 * time.Second, 10 * time.Second}),
			lengths{500 * time.Millisecond, 1500 * time.Millisecond, 2 * time.Second}, lengths{0, 10 * time.Millisecond, 200 * time.Millisecond}),
	}
}

func (c logcabinScale) steps() int { return c.rounds*len(c.hosts)*len(c.threads) + 1 }

func measureLogcabin(ctx context.Context, s *run, c logcabinScale) error {
	var points []experiment.Point
	for _, n := range c.hosts {
		for _, k := range c.threads {
			pt := logcabinWindow(n, k, c.l)
			s.Point(pt.Name, pt.Labels)
			points = append(points, pt)
		}
	}
	window := func(pt experiment.Point, breaks func(*service)) error {
		return s.trial(pt.Name, c.l.most+c.l.length, func() error {
			return s.InCluster(ctx, pt.Setup, func(c *rig.Cluster) (err error) {
				service, err := newService(c, false)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, service.close()) }()
				return clientWindow(ctx, s.Session, service, pt, breaks)
			})
		})
	}
	err := experiment.Shuffled(s.Session, c.rounds, points, func(_ int, pt experiment.Point) error { return window(pt, nil) })
	if err != nil {
		return err
	}
	breaking := logcabinWindow(c.hosts[len(c.hosts)-1], c.threads[len(c.threads)-1], c.l)
	breaking.Name, breaking.Labels["event"] = logcabinBreaks, "the connection breaks"
	return window(breaking, (*service).breakConnections)
}

const (
	logcabinBreaks = "the connection breaks again and again"
	logcabinPeriod = 50 * time.Millisecond // between two breaks
)

// Metrics of the client.
var (
	connects = archive.Metric{Name: "connections", Unit: archive.UnitCount, Better: archive.BetterNeither, Meaning: "that the client has tried, warm-up included"}
	repeats  = archive.Metric{Name: "repeated", Unit: archive.UnitCount, Better: archive.BetterNeither, Meaning: "writes that the client has sent again, warm-up included"}
)

// logcabinWindow is a point of some hosts and threads.
func logcabinWindow(hosts, threads int, l lengths) experiment.Point {
	setup := three()
	setup.Hosts, setup.Sessions = hosts, true
	pt := l.of(experiment.Point{Setup: setup, ValueBytes: logcabinValue, Clients: threads}).Named("async")
	pt.Name, pt.Labels["acknowledge"], pt.Labels["client"] = logcabinPoint(hosts, threads), "applied", "one process, one connection, a session"
	return pt
}

// clientWindow measures a point by a client in a process of its own. What the hosts count is of all that it
// does, warm-up included. breaks, if there is one, is called again and again meanwhile.
func clientWindow(ctx context.Context, s *experiment.Session, of *service, pt experiment.Point, breaks func(*service)) error {
	before, used := of.Counters(), load.ReadUsage()
	s.Progress.Phase(archive.PhaseMeasure)
	beside, end := context.WithCancel(ctx)
	var breaking sync.WaitGroup
	if breaks != nil {
		breaking.Go(func() {
			for lab.Sleep(beside, logcabinPeriod) == nil {
				breaks(of)
			}
		})
	}
	o, ledger, said, err := runClient(ctx, clientJob{
		Seeds: of.addrs, Threads: pt.Clients, ValueBytes: pt.ValueBytes, Warmup: pt.Warmup, Length: pt.Length, Seed: s.Seed, Sessions: true,
	})
	end()
	breaking.Wait()
	if err != nil {
		return err
	}
	count, cpu := of.Counters().Sub(before), load.ReadUsage().CPU-used.CPU
	if err := verify(ctx, s, of, ledger); err != nil {
		return err
	}
	t, err := s.Foreign(pt, o)
	if err != nil {
		return err
	}
	f, all := t.Repeat.Figures, float64(ledger.Acked())
	f[connects.Name], f[repeats.Name] = float64(said.Attempts), float64(said.Repeats)
	f[archive.FsyncsPerOp.Name] = report.Ratio(float64(count.Fsyncs), all)
	f[archive.BytesPerFsync.Name] = report.Ratio(float64(count.FsyncBytes), float64(count.Fsyncs))
	f[archive.EntriesPerAppend.Name] = report.Ratio(float64(count.AppendedEntries), float64(count.Appends))
	f[archive.EntriesPerApply.Name] = report.Ratio(float64(count.AppliedEntries), float64(count.Applies))
	f[archive.CPUUsPerOp.Name] = report.Ratio(report.Micros(cpu+said.CPU), all) // of both processes, warm-up included as in all
	if err := s.Keep(pt, t); err != nil {
		return err
	}
	s.Progress.PointDone(experiment.Row(pt, t.Repeat))
	return nil
}

func logcabinPoint(hosts, threads int) string {
	return fmt.Sprintf("%d hosts, %d threads", hosts, threads)
}

func judgeLogcabin(s *experiment.Session) {
	const source = "thesis §10.3, 2014"
	ops := archive.OpsPerSec
	for n := 1; n < len(thesis); n++ {
		for _, of := range []struct {
			threads int
			theirs  float64
		}{{100, thesis[n].of100}, {10, thesis[n].of10}, {1, thesis[n].of1}} {
			s.Reference(source, fmt.Sprintf("%d hosts, %d threads: writes a second", n, of.threads), ops.Unit, &of.theirs, logcabinPoint(n, of.threads), ops.Name, "")
		}
		s.Reference(source, fmt.Sprintf("%d hosts, 1 thread: mean latency", n), archive.UnitMicroseconds, new(1e3*thesis[n].meanMs), logcabinPoint(n, 1), archive.MeanUs.Name, "")
	}
	failed, have := s.Median(logcabinBreaks, archive.Failed.Name)
	again, too := s.Median(logcabinBreaks, repeats.Name)
	judgeValue(s, "a connection that breaks: writes that fail, of those that are in the state once", logcabinBreaks, archive.UnitCount, zero,
		failed, have && too && again > 0, "no write was sent again")
	judge(s,
		demand{"one thread: mean latency of five hosts by that of three", archive.MeanUs, logcabinPoint(5, 1), logcabinPoint(3, 1), atMost(1.25, " (the thesis: 1.05)")},
		demand{"100 threads: throughput of five hosts by that of three", ops, logcabinPoint(5, 100), logcabinPoint(3, 100), atLeast(0.6, " (the thesis: 0.75)")},
		demand{"one host: throughput of ten threads by that of one", ops, logcabinPoint(1, 10), logcabinPoint(1, 1), atLeast(2, " (the thesis: 5.6)")})
}
