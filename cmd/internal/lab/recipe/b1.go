package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b1 is how soon clients find the leader: cold ones, which know one host, all, or dead ones too, with the
// leader's address as a hint and without, as goroutines and as processes that have just been started; and one
// that loses its leader, because that is killed, hands over, answers nothing (without a reset), or is cut off
// from the other hosts and not from its clients.
var b1 = Recipe{
	Name:     "b1",
	Question: "How soon, and in how many attempts, do clients find the leader?",
	Source:   "dissertation, chapter 10, open question: finding the leader; section 6.2",
	Hosts:    3,
	NeedMiB:  needMiB(2000, 1000),
	About:    aboutB1,
	Run:      runB1,
}

// Metrics of a search.
var (
	attempts    = archive.Metric{Name: "attempts", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "connections until the first write was acknowledged, the mean"}
	searchMean  = archive.Metric{Name: "search_mean_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of a process: from its first call on, without its start"}
	electedMean = archive.Metric{Name: "elected_mean_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "from the loss of the leader until another one is elected"}
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

// b1Processes are those that are processes of their own: they ask with hints.
var b1Processes = []b1Cold{
	{"a process that knows all hosts", true, 0, 0},
	{"a process that knows one host", true, 1, 0},
	{"a process that knows all hosts and two dead ones", true, 0, 2},
}

const (
	b1Killed    = "the leader is killed"
	b1Moved     = "the leader hands over"
	b1Silent    = "the leader answers nothing"
	b1CutOff    = "the leader is cut off from the other hosts"
	b1Heartbeat = 40 * time.Millisecond
	b1Election  = 200 * time.Millisecond
	b1Answer    = 300 * time.Millisecond // after which a host that answers nothing counts as dead
)

// b1Losses are how a leader is lost, and how it comes back; end is nil if it never went.
func b1Losses(of *service) []b1Loss {
	return []b1Loss{
		{b1Killed, func(_ context.Context, i int) error { return of.kill(i) }, func(ctx context.Context, i int) error { return of.again(ctx, i) }},
		{b1Moved, func(ctx context.Context, i int) error { return of.Member(i).Group(0).TransferLeadership(ctx, 0) }, nil},
		{b1Silent, func(_ context.Context, i int) error { of.hold(i, true); return nil }, func(_ context.Context, i int) error { of.hold(i, false); return nil }},
		{b1CutOff, func(_ context.Context, i int) error { of.Hold(i, true); return nil }, func(_ context.Context, i int) error { of.Hold(i, false); return nil }},
	}
}

type b1Loss struct {
	name       string
	begin, end func(ctx context.Context, leader int) error
}

// b1Scale is how many clients and losses there are of each kind.
type b1Scale struct{ colds, processes, losses int }

func scaleB1(size Size) b1Scale {
	return b1Scale{colds: pick(size, orLong(size, 200, 1000), 100, 5), processes: pick(size, 100, 10, 1), losses: pick(size, 100, 10, 1)}
}

func aboutB1(size Size) time.Duration {
	c := scaleB1(size)
	return aboutCluster + times(len(b1Colds)*c.colds, 5*time.Millisecond) + times(len(b1Processes)*c.processes, 80*time.Millisecond) +
		times(3*c.losses, 550*time.Millisecond) + times(c.losses, 100*time.Millisecond)
}

func runB1(ctx context.Context, s *experiment.Session, size Size) error {
	n := scaleB1(size)
	switch size {
	case Full:
		s.Omit("800 of 1,000 cold clients")
	case Quick, Glance:
		s.Omit("900 of 1,000 cold clients, 90 of 100 processes, 90 of 100 lost leaders of each kind")
	}
	s.Omit("names in DNS; hosts that pass requests on; dead addresses that do not refuse")
	s.Declare(attempts, maxAttempts, searchMean, electedMean)
	setup := three()
	setup.Faults, setup.Sessions, setup.Heartbeat, setup.Election = true, true, b1Heartbeat, b1Election
	p := begin(s, len(b1Colds)+len(b1Processes)*n.processes+len(b1Losses(nil))*n.losses)
	defer p.end()
	if p.passed(len(b1Colds)+len(b1Processes)+len(b1Losses(nil)), 0) {
		judgeB1(s)
		return nil
	}
	err := s.InCluster(ctx, setup, func(c *rig.Cluster) (err error) {
		service, err := newService(c, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, service.close()) }()
		for _, of := range b1Colds {
			p.step(of.name, time.Second)
			if err := coldClients(ctx, s, service, of, n.colds); err != nil {
				return fmt.Errorf("%s: %w", of.name, err)
			}
		}
		for _, of := range b1Processes {
			if err := coldProcesses(ctx, s, p, service, of, n.processes); err != nil {
				return fmt.Errorf("%s: %w", of.name, err)
			}
		}
		for _, loss := range b1Losses(service) {
			if err := lostLeaders(ctx, s, p, service, loss, n.losses); err != nil {
				return fmt.Errorf("%s: %w", loss.name, err)
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

func judgeB1(s *experiment.Session) {
	timeout := report.Micros(b1Election)
	judgeFigure(s, b1Killed, "the leader is killed: p99 until a write is acknowledged", archive.P99Us, "≤ 4 election timeouts of 200 ms", experiment.AtMost(4*timeout))
	judgeFigure(s, b1Moved, "the leader hands over: p99 until a write is acknowledged", archive.P99Us, "≤ half an election timeout", experiment.AtMost(timeout/2))
	for _, name := range []string{b1Silent, b1CutOff} {
		judgeFigure(s, name, name+": p99 until a write is acknowledged", archive.P99Us, "≤ 4 election timeouts, and two of 300 ms for an answer", experiment.AtMost(4*timeout+2*report.Micros(b1Answer)))
	}
	for _, of := range slices.Concat(b1Colds, b1Processes) {
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
