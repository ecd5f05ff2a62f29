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
var logcabin = Recipe{
	Name:     "logcabin",
	Question: "How many writes a second, and how soon, with one to five hosts and 1 to 100 threads of one client?",
	Source:   "dissertation, section 10.3, a branch of LogCabin on the hardware of 2014",
	Hosts:    5,
	NeedMiB:  needMiB(8000, 3000),
	About:    aboutLogcabin,
	Run:      runLogcabin,
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

func aboutLogcabin(size Size) time.Duration {
	c := scaleLogcabin(size)
	return times(c.rounds*len(c.hosts)*len(c.threads)+1, (c.l.least+c.l.most)/2+c.l.length+aboutCluster)
}

func runLogcabin(ctx context.Context, s *experiment.Session, size Size) error {
	c := scaleLogcabin(size)
	l, rounds := c.l, c.rounds
	switch size {
	case Full:
		s.Omit("3 and 30 threads, one second of each ten")
	case Quick, Glance:
		s.Omit("clusters of two and four hosts, 3 and 30 threads, four of five runs, runs of ten seconds")
	}
	s.Omit("a machine for each host and one for the client: the hosts share one process, and the client has another")
	s.Declare(connects, repeats)
	p := begin(s, rounds*len(c.hosts)*len(c.threads)+1)
	defer p.end()
	var points []experiment.Point
	for _, n := range c.hosts {
		for _, k := range c.threads {
			pt := logcabinWindow(n, k, l)
			s.Point(pt.Name, pt.Labels)
			points = append(points, pt)
		}
	}
	breaking := logcabinWindow(c.hosts[len(c.hosts)-1], c.threads[len(c.threads)-1], l)
	breaking.Name, breaking.Labels["event"] = logcabinBreaks, "the connection breaks"
	err := experiment.Shuffled(s, rounds, points, func(_ int, pt experiment.Point) error {
		p.step(pt.Name, l.most+l.length)
		if _, done, err := s.Finished(pt.Name); done || err != nil {
			return err
		}
		err := s.InCluster(ctx, pt.Setup, func(c *rig.Cluster) (err error) {
			service, err := newService(c, false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.close()) }()
			r, err := clientWindow(ctx, s, service, pt, nil)
			if err == nil {
				s.Progress.PointDone(experiment.Row(pt, r))
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", pt.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.step(breaking.Name, l.most+l.length)
	_, done, err := s.Finished(breaking.Name)
	if !done && err == nil {
		err = s.InCluster(ctx, breaking.Setup, func(c *rig.Cluster) (err error) {
			service, err := newService(c, false)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, service.close()) }()
			_, err = clientWindow(ctx, s, service, breaking, service.breakConnections)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", breaking.Name, err)
	}
	judgeLogcabin(s)
	return nil
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
func clientWindow(ctx context.Context, s *experiment.Session, of *service, pt experiment.Point, breaks func()) (r archive.Repeat, err error) {
	before, used := of.Counters(), load.ReadUsage()
	s.Progress.Phase(archive.PhaseMeasure)
	beside, end := context.WithCancel(ctx)
	var breaking sync.WaitGroup
	if breaks != nil {
		breaking.Go(func() {
			for lab.Sleep(beside, logcabinPeriod) == nil {
				breaks()
			}
		})
	}
	o, ledger, said, err := runClient(ctx, clientJob{
		Seeds: of.addrs, Threads: pt.Clients, ValueBytes: pt.ValueBytes, Warmup: pt.Warmup, Length: pt.Length, Seed: s.Seed, Sessions: true,
	})
	end()
	breaking.Wait()
	if err != nil {
		return r, err
	}
	count, cpu := of.Counters().Sub(before), load.ReadUsage().CPU-used.CPU
	s.Progress.Phase("verify")
	verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
	defer cancel()
	if err := of.Verify(verifying, ledger); err != nil {
		return r, err
	}
	t, err := s.Foreign(pt, o)
	if err != nil {
		return r, err
	}
	f, all := t.Repeat.Figures, float64(ledger.Acked())
	f[connects.Name], f[repeats.Name] = float64(said.Attempts), float64(said.Repeats)
	f[archive.FsyncsPerOp.Name] = report.Ratio(float64(count.Fsyncs), all)
	f[archive.BytesPerFsync.Name] = report.Ratio(float64(count.FsyncBytes), float64(count.Fsyncs))
	f[archive.EntriesPerAppend.Name] = report.Ratio(float64(count.AppendedEntries), float64(count.Appends))
	f[archive.EntriesPerApply.Name] = report.Ratio(float64(count.AppliedEntries), float64(count.Applies))
	f[archive.CPUUsPerOp.Name] = report.Ratio(report.Micros(cpu+said.CPU), all) // of both processes, warm-up included as in all
	return t.Repeat, s.Keep(pt, t)
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
	s.Judge(experiment.Criterion{Name: "a connection that breaks: writes that fail, of those that are in the state once", Point: logcabinBreaks, Limit: "0", Unit: archive.UnitCount, Holds: experiment.AtMost(0)},
		failed, have && too && again > 0, "no write was sent again")
	const missing = "one of the two clusters was not measured"
	ratio, ok := s.Ratio(archive.MeanUs.Name, logcabinPoint(5, 1), logcabinPoint(3, 1))
	s.Judge(experiment.Criterion{Name: "one thread: mean latency of five hosts by that of three", Point: logcabinPoint(5, 1), Limit: "≤ 1.25 (the thesis: 1.05)", Unit: archive.UnitRatio, Holds: experiment.AtMost(1.25)}, ratio, ok, missing)
	ratio, ok = s.Ratio(ops.Name, logcabinPoint(5, 100), logcabinPoint(3, 100))
	s.Judge(experiment.Criterion{Name: "100 threads: throughput of five hosts by that of three", Point: logcabinPoint(5, 100), Limit: "≥ 0.6 (the thesis: 0.75)", Unit: archive.UnitRatio, Holds: experiment.AtLeast(0.6)}, ratio, ok, missing)
	ratio, ok = s.Ratio(ops.Name, logcabinPoint(1, 10), logcabinPoint(1, 1))
	s.Judge(experiment.Criterion{Name: "one host: throughput of ten threads by that of one", Point: logcabinPoint(1, 10), Limit: "≥ 2 (the thesis: 5.6)", Unit: archive.UnitRatio, Holds: experiment.AtLeast(2)}, ratio, ok, missing)
}
