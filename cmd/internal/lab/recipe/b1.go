package recipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/client"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b1 is how soon clients find the leader: cold ones, which know one host, all, or dead ones too, with the
// leader's address as a hint and without; and one that loses its leader, because that is killed or hands
// over.
var b1 = Recipe{
	Name:     "b1",
	Question: "How soon, and in how many attempts, do clients find the leader?",
	Source:   "dissertation, chapter 10, open question: finding the leader; section 6.2",
	Hosts:    3,
	NeedMiB:  needMiB(2000, 1000),
	Run:      runB1,
}

// Metrics of a search.
var (
	attempts    = archive.Metric{Name: "attempts", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "connections until the first write was acknowledged, the mean"}
	maxAttempts = archive.Metric{Name: "attempts_max", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "the most connections that a client needed"}
)

// b1Cold is a client that begins with nothing but addresses.
type b1Cold struct {
	name  string
	hints bool
	seeds int // hosts that it knows; 0: all
	dead  int // addresses at which there is no host
}

var b1Colds = []b1Cold{
	{"all hosts known, hints", true, 0, 0},
	{"all hosts known, no hints", false, 0, 0},
	{"one host known, hints", true, 1, 0},
	{"all hosts and two dead ones known, hints", true, 0, 2},
}

const (
	b1Killed = "the leader is killed"
	b1Moved  = "the leader hands over"
)

func runB1(ctx context.Context, s *experiment.Session, size Size) error {
	colds, losses := pick(size, 1000, 200, 5), pick(size, 100, 10, 1)
	if size != Full {
		s.Omit("800 of 1,000 cold clients, 90 of 100 lost leaders")
	}
	s.Omit("clients that are processes, names in DNS, hosts that pass requests on, leaders that answer nothing while they live, partitioned leaders")
	s.Declare(attempts, maxAttempts)
	setup := three()
	setup.Faults = true
	p := begin(s, len(b1Colds)+2*losses)
	defer p.end()
	err := s.InCluster(ctx, setup, func(c *rig.Cluster) (err error) {
		service, err := newService(c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, service.close()) }()
		for _, of := range b1Colds {
			p.step(of.name, time.Second)
			if err := coldClients(ctx, s, service, of, colds); err != nil {
				return fmt.Errorf("%s: %w", of.name, err)
			}
		}
		for _, name := range []string{b1Killed, b1Moved} {
			if err := lostLeaders(ctx, s, p, service, name, losses); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		s.Progress.Phase("verify")
		verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
		defer cancel()
		return c.Verify(verifying, c.Ledger())
	})
	if err != nil {
		return err
	}
	judgeB1(s)
	return nil
}

// found collects how long clients took, and how many attempts.
type found struct {
	latency *load.Latencies
	n, sum  uint64
	most    uint64
}

func (f *found) add(took time.Duration, attempts uint64) {
	f.latency.Record(took)
	f.n, f.sum, f.most = f.n+1, f.sum+attempts, max(f.most, attempts)
}

func (f *found) save(s *experiment.Session, name string, began time.Time) error {
	labels := experiment.Labels(three(), "async")
	labels["client"] = name
	figures := map[string]float64{
		attempts.Name: report.Ratio(float64(f.sum), float64(f.n)), maxAttempts.Name: float64(f.most), archive.Ops.Name: float64(f.n),
		archive.MeanUs.Name: report.Micros(f.latency.Mean()), archive.P50Us.Name: report.Micros(f.latency.Quantile(0.5)),
		archive.P99Us.Name: report.Micros(f.latency.Quantile(0.99)), archive.MaxUs.Name: report.Micros(f.latency.Max()),
	}
	return s.Add(name, labels, archive.Repeat{Seed: s.Seed, Began: began.UTC(), Errors: map[string]uint64{}, Figures: figures})
}

// deadAddress is an address at which nothing listens.
func deadAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func coldClients(ctx context.Context, s *experiment.Session, of *service, cold b1Cold, n int) error {
	began, f := time.Now(), &found{latency: load.NewLatencies()}
	source := load.NewSource(b2Value, s.Seed)
	var dead []string
	for range cold.dead {
		addr, err := deadAddress()
		if err != nil {
			return err
		}
		dead = append(dead, addr)
	}
	id, page := of.Ledger().Open()
	for i := range n {
		o := client.Options{Seed: s.Seed + uint64(i), IgnoreHints: !cold.hints}
		if cold.seeds > 0 {
			o.Seeds = append(o.Seeds, of.addrs[i%len(of.addrs)])
		}
		start := time.Now()
		c := of.newClient(o, dead...)
		seq := page.Send()
		err := c.Propose(ctx, source.Value(load.ValueID{Client: id, Seq: seq}))
		f.add(time.Since(start), c.Attempts())
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
		page.Acknowledge(seq)
	}
	return f.save(s, cold.name, began)
}

// lostLeaders makes a client that writes lose its leader, again and again, and measures from the loss to the
// next write that is acknowledged.
func lostLeaders(ctx context.Context, s *experiment.Session, p *progress, of *service, name string, n int) error {
	began, f := time.Now(), &found{latency: load.NewLatencies()}
	source := load.NewSource(b2Value, s.Seed)
	id, page := of.Ledger().Open()
	c := of.newClient(client.Options{Seed: s.Seed})
	defer c.Close()
	write := func() error {
		seq := page.Send()
		err := c.Propose(ctx, source.Value(load.ValueID{Client: id, Seq: seq}))
		if err == nil {
			page.Acknowledge(seq)
		}
		return err
	}
	for range n {
		p.step(name, 3*time.Second)
		if err := errors.Join(of.Settle(ctx), write()); err != nil {
			return err
		}
		leader := of.Leader(0)
		before, start := c.Attempts(), time.Now()
		var err error
		if name == b1Killed {
			err = of.kill(leader)
		} else {
			err = of.Member(leader).Group(0).TransferLeadership(ctx, 0)
		}
		if err != nil {
			return err
		}
		for err := write(); err != nil; err = write() { // what was under way may have been committed
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		f.add(time.Since(start), c.Attempts()-before)
		if name == b1Killed {
			if err := of.again(ctx, leader); err != nil {
				return err
			}
		}
	}
	return f.save(s, name, began)
}

func judgeB1(s *experiment.Session) {
	judgeFigure(s, b1Killed, "the leader is killed: p99 until a write is acknowledged", archive.P99Us, "≤ 3 election timeouts of 1 s", experiment.AtMost(3e6))
	judgeFigure(s, b1Moved, "the leader hands over: p99 until a write is acknowledged", archive.P99Us, "≤ half an election timeout", experiment.AtMost(0.5e6))
	for _, of := range b1Colds {
		switch {
		case of.hints && of.dead == 0:
			judgeFigure(s, of.name, of.name+": attempts", attempts, "≤ 2", experiment.AtMost(2))
			judgeFigure(s, of.name, of.name+": most attempts, so there is no loop between two hosts", maxAttempts, "≤ 3", experiment.AtMost(3))
		case !of.hints:
			s.Reference("thesis §6.2", "attempts of a cold client without hints, three hosts", attempts.Unit, new(2.0), of.name, attempts.Name, "(n+1)/2 on average, if no host is asked twice")
		}
		judgeFigure(s, of.name, of.name+": p99", archive.P99Us, "< 1 s, the time to connect, and two round trips", func(x float64) bool { return x < report.Micros(b1Connect) })
	}
}
