package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/event"
)

// b2 is how soon a new leader commits its first entry, and how many probes it needs to find where the log
// of a follower agrees with its own. The logs are made to differ: a follower lacks entries, or the old
// leader has entries that no other member has, of one term or of several. The network is slow, so that times
// can be told in round trips.
var b2 = design[[]b2Case]{
	name:     "b2",
	question: "How soon does a new leader commit its first entry, and how does it find where logs agree?",
	source:   "dissertation, chapter 10, open question: the first commit of a new leader",
	hosts:    3,
	plan:     b2Cases,
	about:    aboutB2,
	needMiB:  needMiB(4000, 1500),
	omits: omissions{
		full:   "logs that differ by 100,000 entries, or by 1,000 terms; of 100 trials 80 with 1,000 entries, and 94 with more or of two logs that differ",
		short:  "logs that differ by more than 1,000 entries or 10 terms; 80 of 100 trials, 97 of two logs that differ",
		always: []string{"followers behind the snapshot (b4 and b5 have them); the stages within an election"},
	},
	metrics: []archive.Metric{firstCommit, firstRounds, levelAfter, probes, sentBytes},
	steps:   func(cases []b2Case) int { return len(b2Trials(cases)) },
	measure: measureB2,
	judge:   judgeB2,
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
	sentBytes   = archive.Metric{Name: "sent_bytes", Unit: archive.UnitBytes, Better: archive.BetterLower, Meaning: "that all hosts sent from the election until that member is level, mean of the trials"}
	probes      = archive.Metric{Name: "probes", Unit: archive.UnitCount, Better: archive.BetterLower, Meaning: "different appends that the member that differed rejected, the most of all trials"}
)

// b2Case is how the logs differ before an election.
type b2Case struct {
	name    string
	missing int // entries that one follower lacks
	extra   int // entries that only the old leader has
	terms   int // not 0: as many entries that only the next one has, and the terms of each
	trials  int
}

func b2Cases(size Size) []b2Case {
	light, some, few := pick(size, 100, 20, 1), pick(size, orLong(size, 20, 100), 5, 1), pick(size, orLong(size, 6, 100), 3, 1)
	cases := []b2Case{{name: "equal logs", trials: light}}
	lacks := func(n, trials int) {
		cases = append(cases, b2Case{name: fmt.Sprintf("a follower lacks %d", n), missing: n, trials: trials})
	}
	has := func(n, terms, trials int) {
		c := b2Case{name: fmt.Sprintf("the old leader has %d more", n), extra: n, terms: terms, trials: trials}
		if terms > 0 {
			c.name = fmt.Sprintf("two logs differ by %d, of %s each", n, report.Plural(terms, "term"))
		}
		cases = append(cases, c)
	}
	lacks(1, light)
	if size == Glance {
		lacks(50, 1)
		has(5, 0, 1)
		has(50, 10, 1)
		return cases
	}
	lacks(1000, some)
	has(1, 0, some)
	has(1000, 0, some)
	has(1000, 1, few)
	has(1000, 10, few)
	if size == Quick {
		return cases
	}
	has(1000, 100, few)
	n := orLong(size, 10_000, 100_000)
	lacks(n, few)
	has(n, 0, few)
	has(n, 10, few)
	if size == Long {
		has(1000, 1000, few)
	}
	return cases
}

func aboutB2(cases []b2Case) time.Duration {
	total := aboutCluster
	for _, c := range cases {
		one := 120 * time.Millisecond
		switch {
		case c.terms > 0:
			one = time.Second + times(c.terms, 2*b2Delay)
		case c.extra > 0:
			one = 700 * time.Millisecond
		}
		total += times(c.trials, one+times(c.missing+c.extra, 100*time.Microsecond))
	}
	return total
}

// b2Trials has the case of each trial, by its index.
func b2Trials(cases []b2Case) (trials []int) {
	for i, c := range cases {
		for range c.trials {
			trials = append(trials, i)
		}
	}
	return trials
}

func measureB2(ctx context.Context, s *run, cases []b2Case) error {
	setup := three()
	setup.Faults, setup.NetworkDelay, setup.SingleEntries = true, b2Delay, true // a log differs by entries
	setup.Heartbeat, setup.Election = 50*time.Millisecond, 300*time.Millisecond
	trials := b2Trials(cases)
	return together(s, len(cases), len(trials), func() ([][]trial, error) {
		results := make([][]trial, len(cases))
		return results, s.InCluster(ctx, setup, func(c *rig.Cluster) error {
			err := experiment.Shuffled(s.Session, 1, trials, func(_ int, i int) error {
				s.step(cases[i].name, time.Second)
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
			return verify(ctx, s.Session, c, c.Ledger())
		})
	}, func(results [][]trial, began time.Time, partial bool) {
		for i, of := range results { // an interrupted run has some, too
			if len(of) > 0 {
				putTrials(s.Session, setup, cases[i].name, of, began, partial)
			}
		}
	})
}

// trial is one election.
type trial struct {
	commit, level time.Duration // since a member became leader; commit is 0 if it was there before the first look
	probes        uint64        // of the member that differed
	sent          uint64        // bytes, by all hosts
}

// b2Trial makes the logs differ, makes another member lead, and watches.
func b2Trial(ctx context.Context, c *rig.Cluster, of b2Case) (t trial, err error) {
	if err := c.Settle(ctx); err != nil {
		return t, err
	}
	old := c.Leader(0)
	next, third := (old+1)%3, (old+2)%3
	odd := third     // the member whose log differs
	term := c.Term() // an election may come by itself from now on
	switch {
	case of.missing > 0:
		c.Hold(third, true)
		err = c.Fill(ctx, of.missing, b2Value)
	case of.terms > 0:
		odd = old
		term, err = c.Diverge(ctx, old, next, of.extra, of.terms, b2Value)
	case of.extra > 0:
		odd = old
		c.Hold(old, true)
		err = c.Strand(ctx, old, of.extra, b2Value)
	}
	if err != nil {
		return t, err
	}
	before := c.Rejections(odd)
	if of.missing > 0 { // it hears again only when the next leader is elected, or the old one would repair it
		defer c.Hold(third, false)
	}
	moved := make(chan error, 1) // a hand-over returns after the election
	if of.extra > 0 {
		c.Member(next).Group(0).Campaign()
		moved <- nil
	} else {
		go func() { moved <- c.Member(old).Group(0).TransferLeadership(ctx, uint64(next+1)) }()
	}
	elected, first := time.Time{}, uint64(0)
	leader, looks := -1, 0
	err = poll(ctx, func() bool {
		looks++
		returned := len(moved) > 0 && of.extra == 0 // then there is a leader, or it failed
		for i, m := range c.Members() {
			if s := m.Group(0).Status(); s.Role == event.RoleLeader && s.Term > term {
				elected, leader, first = time.Now(), i, s.LastIndex
				return true
			}
		}
		return returned
	})
	if err != nil {
		return t, err
	}
	if leader < 0 {
		return t, cmp.Or(<-moved, errors.New("the leadership was handed over, and no member leads"))
	}
	sent := c.Counters().SentBytes
	if of.missing > 0 {
		c.Hold(third, false)
	}
	if of.extra > 0 {
		c.Hold(old, false)
	}
	if err := poll(ctx, func() bool { return c.Member(leader).Group(0).Status().Committed >= first }); err != nil {
		return t, err
	}
	if looks > 1 {
		t.commit = time.Since(elected)
	}
	if err := <-moved; err != nil {
		return t, err
	}
	if err := poll(ctx, func() bool { return c.Member(odd).Group(0).Status().Applied >= first }); err != nil {
		return t, err
	}
	t.level, t.probes, t.sent = time.Since(elected), c.Rejections(odd)-before, c.Counters().SentBytes-sent
	return t, nil
}

// poll asks again and again, more often than rig.Until.
func poll(ctx context.Context, done func() bool) error {
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

// putTrials makes the trials of a case one repeat. It is partial if the trials were cut short.
func putTrials(s *experiment.Session, setup rig.Setup, name string, of []trial, began time.Time, partial bool) {
	var commit, level time.Duration
	var most, sent uint64
	var all []time.Duration
	for _, t := range of {
		commit, level, most, sent = commit+t.commit, level+t.level, max(most, t.probes), sent+t.sent
		if t.commit > 0 {
			all = append(all, t.commit)
		}
	}
	slices.Sort(all)
	n := float64(len(of))
	figures := map[string]float64{
		levelAfter.Name: report.Micros(level) / n, probes.Name: float64(most), sentBytes.Name: float64(sent) / n, archive.Ops.Name: n,
	}
	if len(all) > 0 {
		figures[firstCommit.Name] = report.Micros(commit) / float64(len(all))
		figures[firstRounds.Name] = float64(all[len(all)/2]) / float64(2*b2Delay)
	}
	s.Put(name, labelled(setup, "async", "logs", name), repeatOf(s, began, partial, figures))
}

func judgeB2(s *experiment.Session, cases []b2Case) {
	for _, of := range cases {
		if of.terms == 0 { // else the hosts have just been started, and the third lacks what the leader has
			judge(s, demand{of.name + ": first commit", firstRounds, of.name, "", atMost(2.5, " round trips (a probe, an append, an fsync)")})
		}
		if of.missing+of.extra > 0 {
			terms := max(of.terms, 1)
			judge(s, demand{of.name + ": probes, whatever the number of entries", probes, of.name, "", atMost(float64(terms+1), " (the terms that conflict, and one more)")})
		}
	}
}
