package recipe

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b1 is how soon clients find the leader: cold ones, which know one host, all, or dead ones too, with the
// leader's address as a hint and without, as goroutines and as processes that have just been started; and one
// that loses its leader, because that is killed, hands over, answers nothing (without a reset), or is cut off
// from the other hosts and not from its clients.
var b1 = design[b1Scale]{
	name:     "b1",
	question: "How soon, and in how many attempts, do clients find the leader?",
	source:   "dissertation, chapter 10, open question: finding the leader; section 6.2",
	hosts:    3,
	plan:     scaleB1,
	about: func(c b1Scale) time.Duration {
		return aboutCluster + times(len(b1Colds)*c.colds, 5*time.Millisecond) + times(len(b1Processes)*c.processes, 80*time.Millisecond) +
			times(3*c.losses, 550*time.Millisecond) + times(c.losses, 100*time.Millisecond)
	},
	needMiB: needMiB(2000, 1000),
	omits: omissions{
		full:   "800 of 1,000 cold clients",
		short:  "900 of 1,000 cold clients, 90 of 100 processes, 90 of 100 lost leaders of each kind",
		always: []string{"names in DNS; hosts that pass requests on; dead addresses that do not refuse"},
	},
	metrics: []archive.Metric{attempts, maxAttempts, searchMean, electedMean},
	steps:   func(c b1Scale) int { return len(b1Colds) + len(b1Processes)*c.processes + len(b1Losses(nil))*c.losses },
	measure: measureB1,
	judge:   func(s *experiment.Session, _ b1Scale) { judgeB1(s) },
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

func measureB1(ctx context.Context, s *run, n b1Scale) error {
	setup := three()
	setup.Faults, setup.Sessions, setup.Heartbeat, setup.Election = true, true, b1Heartbeat, b1Election
	if s.passed(len(b1Colds)+len(b1Processes)+len(b1Losses(nil)), 0) {
		return nil
	}
	return s.InCluster(ctx, setup, func(c *rig.Cluster) (err error) {
		service, err := newService(c, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, service.close()) }()
		for _, of := range b1Colds {
			if err := s.trial(of.name, time.Second, func() error { return coldClients(ctx, s.Session, service, of, n.colds) }); err != nil {
				return err
			}
		}
		for _, of := range b1Processes {
			if err := s.trials(of.name, n.processes, func() error { return coldProcesses(ctx, s, service, of, n.processes) }); err != nil {
				return err
			}
		}
		for _, loss := range b1Losses(service) {
			if err := s.trials(loss.name, n.losses, func() error { return lostLeaders(ctx, s, service, loss, n.losses) }); err != nil {
				return err
			}
		}
		return verify(ctx, s.Session, c, c.Ledger())
	})
}

func judgeB1(s *experiment.Session) {
	timeout := report.Micros(b1Election)
	judge(s,
		demand{"the leader is killed: p99 until a write is acknowledged", archive.P99Us, b1Killed, "", atMost(4*timeout, "").says("≤ 4 election timeouts of 200 ms")},
		demand{"the leader hands over: p99 until a write is acknowledged", archive.P99Us, b1Moved, "", atMost(timeout/2, "").says("≤ half an election timeout")})
	for _, name := range []string{b1Silent, b1CutOff} {
		judge(s, demand{name + ": p99 until a write is acknowledged", archive.P99Us, name, "",
			atMost(4*timeout+2*report.Micros(b1Answer), "").says("≤ 4 election timeouts, and two of 300 ms for an answer")})
	}
	for _, of := range slices.Concat(b1Colds, b1Processes) {
		switch {
		case of.hints && of.dead == 0:
			judge(s,
				demand{of.name + ": attempts", attempts, of.name, "", atMost(2, "")},
				demand{of.name + ": most attempts, so there is no loop between two hosts", maxAttempts, of.name, "", atMost(3, "")})
		case !of.hints:
			s.Reference("thesis §6.2", "attempts of a cold client without hints, three hosts", attempts.Unit, new(2.0), of.name, attempts.Name, "(n+1)/2 on average, if no host is asked twice")
		}
		judge(s, demand{of.name + ": p99", archive.P99Us, of.name, "", below(report.Micros(b1Connect), "").says("< 1 s, the time to connect, and two round trips")})
	}
}
