package recipe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/raft"
)

// b2 is how soon a new leader commits its first entry, and how many probes it needs to find where the log
// of a follower agrees with its own. The logs are made to differ: a follower lacks entries, or the old
// leader has entries that no other member has. The network is slow, so that times can be told in round
// trips.
var b2 = Recipe{
	Name:     "b2",
	Question: "How soon does a new leader commit its first entry, and how does it find where logs agree?",
	Source:   "dissertation, chapter 10, open question: the first commit of a new leader",
	Hosts:    3,
	NeedMiB:  needMiB(4000, 1500),
	Run:      runB2,
}

const (
	b2Delay = 5 * time.Millisecond // one way
	b2Value = 64
	b2Look  = 200 * time.Microsecond // between two looks at the state of the members
)

// Metrics of an election.
var (
	firstCommit = archive.Metric{Name: "first_commit_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "from becoming leader to the first commit, mean of the trials"}
	firstRounds = archive.Metric{Name: "first_commit_round_trips", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "the same in round trips of the network, the median"}
	levelAfter  = archive.Metric{Name: "logs_level_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "from becoming leader until the member that differed is level, mean of the trials"}
	probes      = archive.Metric{Name: "probes", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "appends that the member that differed rejected, the most of all trials"}
)

// b2Case is how the logs differ before an election.
type b2Case struct {
	name    string
	missing int // entries that one follower lacks
	extra   int // entries that only the old leader has
}

func b2Cases(size Size) []b2Case {
	cases := []b2Case{{name: "equal logs"}}
	for _, n := range pick(size, []int{1, 1000, 100_000}, []int{1, 1000}, []int{1, 50}) {
		cases = append(cases, b2Case{name: fmt.Sprintf("a follower lacks %d", n), missing: n})
	}
	for _, n := range pick(size, []int{1, 1000, 10_000}, []int{1, 1000}, []int{5}) {
		cases = append(cases, b2Case{name: fmt.Sprintf("the old leader has %d more", n), extra: n})
	}
	return cases
}

func runB2(ctx context.Context, s *experiment.Session, size Size) error {
	trials := pick(size, 100, 20, 1)
	if size != Full {
		s.Omit("80 of 100 trials; 100,000 entries")
	}
	s.Omit("suffixes that conflict over several terms; followers behind the snapshot; the stages within an election")
	s.Declare(firstCommit, firstRounds, levelAfter, probes)
	cases := b2Cases(size)
	setup := three()
	setup.Faults, setup.NetworkDelay = true, b2Delay
	setup.Heartbeat, setup.Election = 50*time.Millisecond, 300*time.Millisecond
	p := begin(s, trials*len(cases))
	defer p.end()
	results := make([][]trial, len(cases))
	indexes := make([]int, len(cases))
	for i := range indexes {
		indexes[i] = i
	}
	began := time.Now()
	err := s.InCluster(ctx, setup, func(c *rig.Cluster) error {
		err := experiment.Shuffled(s, trials, indexes, func(_ int, i int) error {
			p.step(cases[i].name, time.Second)
			t, err := b2Trial(ctx, c, cases[i])
			if err != nil {
				return fmt.Errorf("%s: %w", cases[i].name, err)
			}
			results[i] = append(results[i], t)
			return nil
		})
		if err != nil {
			return err
		}
		s.Progress.Phase("verify")
		verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
		defer cancel()
		return c.Verify(verifying, c.Ledger())
	})
	for i, of := range results { // an interrupted run has some, too
		if len(of) > 0 {
			if err := addTrials(s, setup, cases[i].name, of, began); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	judgeB2(s, cases)
	return nil
}

// trial is one election.
type trial struct {
	commit, level time.Duration // since a member became leader
	probes        uint64        // of the member that differed
}

// b2Trial makes the logs differ, makes another member lead, and watches.
func b2Trial(ctx context.Context, c *rig.Cluster, of b2Case) (t trial, err error) {
	if err := c.Settle(ctx); err != nil {
		return t, err
	}
	old := c.Leader(0)
	next, third := (old+1)%3, (old+2)%3
	odd := third // the member whose log differs
	switch {
	case of.missing > 0:
		c.Hold(third, true)
		err = c.Fill(ctx, of.missing, b2Value)
	case of.extra > 0:
		odd = old
		c.Hold(old, true)
		err = c.Strand(ctx, old, of.extra, b2Value)
	}
	if err != nil {
		return t, err
	}
	before, term := c.Rejections(odd), c.Term()
	if of.missing > 0 { // it hears again only when the next leader is elected, or the old one would repair it
		defer c.Hold(third, false)
	}
	if of.extra > 0 {
		c.Member(next).Group(0).Campaign()
	} else if err := c.Member(old).Group(0).TransferLeadership(ctx, uint64(next+1)); err != nil {
		return t, err
	}
	elected, first := time.Time{}, uint64(0)
	leader := -1
	if err := look(ctx, func() bool {
		for i, m := range c.Members() {
			if s := m.Group(0).Status(); s.Role == raft.StateLeader && s.Term > term {
				elected, leader, first = time.Now(), i, s.LastIndex
				return true
			}
		}
		return false
	}); err != nil {
		return t, err
	}
	if of.missing > 0 {
		c.Hold(third, false)
	}
	if of.extra > 0 {
		c.Hold(old, false)
	}
	if err := look(ctx, func() bool { return c.Member(leader).Group(0).Status().Committed >= first }); err != nil {
		return t, err
	}
	t.commit = time.Since(elected)
	if err := look(ctx, func() bool { return c.Member(odd).Group(0).Status().Applied >= first }); err != nil {
		return t, err
	}
	t.level, t.probes = time.Since(elected), c.Rejections(odd)-before
	return t, nil
}

// look looks again and again, more often than rig.Until.
func look(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(b2Look)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func addTrials(s *experiment.Session, setup rig.Setup, name string, of []trial, began time.Time) error {
	var commit, level time.Duration
	var most uint64
	var all []time.Duration
	for _, t := range of {
		commit, level, most = commit+t.commit, level+t.level, max(most, t.probes)
		all = append(all, t.commit)
	}
	slices.Sort(all)
	n := time.Duration(len(of))
	labels := experiment.Labels(setup, "async")
	labels["logs"] = name
	return s.Add(name, labels, archive.Repeat{Seed: s.Seed, Began: began.UTC(), Errors: map[string]uint64{}, Figures: map[string]float64{
		firstCommit.Name: float64(commit/n) / 1e3, levelAfter.Name: float64(level/n) / 1e3, probes.Name: float64(most),
		firstRounds.Name: float64(all[len(all)/2]) / float64(2*b2Delay), archive.Ops.Name: float64(len(of)),
	}})
}

func judgeB2(s *experiment.Session, cases []b2Case) {
	for _, of := range cases {
		judgeFigure(s, of.name, of.name+": first commit, by a majority whose logs agree", firstRounds, "≤ 2 round trips and an fsync (2.5)", experiment.AtMost(2.5))
		if of.missing+of.extra > 0 {
			judgeFigure(s, of.name, of.name+": probes, whatever the number of entries", probes, "≤ 2 (one term, and one more)", experiment.AtMost(2))
		}
	}
}
