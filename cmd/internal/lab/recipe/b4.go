package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// b4 is reconfiguration under load: an empty host is added and gets a snapshot of the state, a follower is
// removed and goes on as a stranger, three members become five and five three in one plan each, the directory
// of a member is lost and replaced, the leader is removed, and a host that is not there cannot be added.
//
// Every fsync is made longer, for the reason that b3 gives.
var b4 = design[b4Scale]{
	name:     "b4",
	question: "How long does it take to change the members, and what do clients feel meanwhile?",
	source:   "dissertation, chapter 10, open question: reconfiguration",
	hosts:    b4Hosts,
	plan:     scaleB4,
	about:    aboutB4,
	needMiB:  func(s Size) int { return pick(s, orLong(s, 8000, 30_000), 4000, 64) },
	omits: omissions{
		full:   "a state of 1 GB; four of five rounds",
		short:  "states of 0, 100 MB and 1 GB; four of five rounds",
		always: []string{"a new host that is too slow; the phases within a plan"},
	},
	metrics: append(slices.Clone(eventMetrics), refusedPlan),
	steps:   func(c b4Scale) int { return c.rounds * len(c.states) * (1 + len(b4Changes)) },
	measure: measureB4,
	judge:   judgeB4,
}

const (
	b4Hosts    = 6 // three found the group, one is added, and then two at once
	b4Election = 1000 * time.Millisecond
)

// b4Scale is how much of b4 is made.
type b4Scale struct {
	l      lengths
	t      spans
	states []int64
	rounds int
}

func scaleB4(size Size) b4Scale {
	return b4Scale{
		l: pick(size, orLong(size, lengths{time.Second, 2 * time.Second, 2 * time.Second}, lengths{2 * time.Second, 15 * time.Second, 10 * time.Second}),
			lengths{500 * time.Millisecond, time.Second, 2 * time.Second}, lengths{0, 10 * time.Millisecond, 200 * time.Millisecond}),
		t: pick(size, orLong(size, spans{3 * time.Second, 0, 2 * time.Second}, spans{10 * time.Second, 0, 10 * time.Second}),
			spans{2 * time.Second, 0, time.Second}, spans{200 * time.Millisecond, 0, 100 * time.Millisecond}),
		states: pick(size, orLong(size, []int64{0, 100 << 20}, []int64{0, 100 << 20, 1 << 30}), []int64{32 << 20}, []int64{1 << 20}),
		rounds: pick(size, orLong(size, 1, 5), 1, 1),
	}
}

func aboutB4(c b4Scale) time.Duration {
	total := time.Duration(0)
	for _, state := range c.states {
		const sent, written = 64 << 20, 300e6 // bytes a second
		moves := time.Duration(float64(state) * (4.0/sent + 25.0/written) * float64(time.Second))
		total += times(c.rounds, c.l.about()+aboutCluster+times(len(b4Changes), (c.l.least+c.l.most)/2+c.t.before+c.t.after+time.Second)+moves)
	}
	return total
}

func measureB4(ctx context.Context, s *run, c b4Scale) error {
	for range c.rounds {
		for _, state := range c.states {
			if n := 1 + len(b4Changes); s.passed(n, n) {
				continue
			}
			setup := three()
			setup.Hosts, setup.Founders, setup.Faults, setup.StateBytes, setup.FsyncDelay = b4Hosts, 3, true, state, b3Fsync
			setup.Snapshots = host.SnapshotPolicy{Disabled: true, LogBytes: 1 << 20, KeepBytes: 1}
			if err := s.InCluster(ctx, setup, func(cluster *rig.Cluster) error { return c.changes(ctx, s, cluster, setup, state) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// changes makes all changes of one cluster.
func (c b4Scale) changes(ctx context.Context, s *run, cluster *rig.Cluster, setup rig.Setup, state int64) error {
	of := c.l.of(experiment.Point{Setup: setup, ValueBytes: b0Value})
	s.step("peak", c.l.most+c.l.length)
	peak, err := capacity(ctx, s, cluster, b4Peak(of, state))
	if err != nil {
		return err
	}
	for _, change := range b4Changes {
		pt := of
		pt.Rate = float64(max(int(peak/2), 1))
		pt = with(pt.Named("async"), state).With("event", change.name, change.name)
		pt.Name = b4Point(change.name, state)
		delete(pt.Labels, archive.LabelRate)
		s.step(pt.Name, c.t.before+c.t.after)
		if err := b4Happen(ctx, s.Session, cluster, pt, change, c.t); err != nil {
			return fmt.Errorf("%s: %w", pt.Name, err)
		}
	}
	return nil
}

// b4Happen makes a change under load. One that an earlier part of the run has finished is made without a
// load, because the next change begins with the members that this one leaves.
func b4Happen(ctx context.Context, s *experiment.Session, c *rig.Cluster, pt experiment.Point, change b4Change, t spans) error {
	if err := c.Settle(ctx); err != nil {
		return err
	}
	if err := c.Fill(ctx, 1, b0Value); err != nil { // there may have been no load before
		return err
	}
	if err := snapshotAll(ctx, c); err != nil { // so that an empty host needs one
		return err
	}
	_, done, err := s.Finished(pt.Name)
	switch {
	case err != nil:
		return err
	case done:
		if err := change.do(ctx, c); err != nil {
			return err
		}
		return c.Level(ctx)
	}
	i := incident{name: change.name, begin: func(ctx context.Context) error { return change.do(ctx, c) }}
	if change.name == b4Changes[len(b4Changes)-1].name {
		i.also = func(_ observed, f map[string]float64) error { return planUnreachable(ctx, c, f) }
	}
	return happen(ctx, s, c, pt, i, t)
}

// refusedPlan is measured after the last change.
var refusedPlan = archive.Metric{Name: "unreachable_refused", Unit: archive.UnitCount, Better: archive.BetterHigher, Meaning: "1 if a plan to add a host that is not there was refused, after the event; else 0"}

// planUnreachable asks for a member that cannot be reached.
func planUnreachable(ctx context.Context, c *rig.Cluster, f map[string]float64) error {
	err := plan(ctx, c, host.AddMember(b4Hosts+4))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f[refusedPlan.Name] = 0
	if errors.Is(err, outcome.ErrMembersUnchanged) {
		f[refusedPlan.Name] = 1
	}
	return nil
}

// with adds the size of the state to the labels of a point.
func with(p experiment.Point, state int64) experiment.Point {
	p.Labels["state"] = strconv.FormatInt(state, 10)
	return p
}

// b4Peak is the closed loop that finds the capacity with a state of some size.
func b4Peak(of experiment.Point, state int64) experiment.Point {
	of.Clients = 100
	of = with(of.Named("async"), state)
	of.Name = b4Point(of.Name, state)
	return of
}

func b4Point(change string, state int64) string {
	return fmt.Sprintf("%s, state of %d MiB", change, state>>20)
}

// The changes, in their order. Each is in force when do returns.
const (
	b4Add     = "an empty host is added"
	b4Remove  = "a follower is removed and goes on"
	b4Grow    = "from three to five in one plan"
	b4Replace = "the directory of a follower is lost and replaced"
	b4Shrink  = "from five to three in one plan"
	b4Leader  = "the leader is removed"
)

// b4Change changes the members of a cluster.
type b4Change struct {
	name string
	do   func(context.Context, *rig.Cluster) error
}

var b4Changes = []b4Change{
	{b4Add, func(ctx context.Context, c *rig.Cluster) error { return addHosts(ctx, c, 3) }},
	{b4Remove, func(ctx context.Context, c *rig.Cluster) error {
		return plan(ctx, c, host.RemoveMember(c.Member(followersOf(c)[0]).ID))
	}},
	{b4Grow, func(ctx context.Context, c *rig.Cluster) error { return addHosts(ctx, c, 4, 5) }},
	{b4Replace, replaceHost},
	{b4Shrink, func(ctx context.Context, c *rig.Cluster) error {
		f := followersOf(c)
		return plan(ctx, c, host.RemoveMember(c.Member(f[0]).ID), host.RemoveMember(c.Member(f[1]).ID))
	}},
	{b4Leader, func(ctx context.Context, c *rig.Cluster) error {
		return plan(ctx, c, host.RemoveMember(c.Member(c.Leader(0)).ID))
	}},
}

// followersOf returns the members, from 0, that do not lead.
func followersOf(c *rig.Cluster) (f []int) {
	for i, m := range c.Members() {
		if g := m.Group(0); g != nil && g.Err() == nil && i != c.Leader(0) {
			f = append(f, i)
		}
	}
	return f
}

// addHosts opens hosts and makes them voters, in one plan.
func addHosts(ctx context.Context, c *rig.Cluster, hosts ...int) error {
	var changes []host.MemberChange
	for _, i := range hosts {
		if err := c.Member(i).Open(ctx); err != nil {
			return err
		}
		changes = append(changes, host.AddMember(c.Member(i).ID))
	}
	return plan(ctx, c, changes...)
}

// replaceHost kills a follower, removes its directory, opens it with an empty one, and gives it its place
// again.
func replaceHost(ctx context.Context, c *rig.Cluster) error {
	m := c.Member(followersOf(c)[0])
	if err := m.Kill(); err != nil {
		return err
	}
	if err := errors.Join(m.Lose(), m.Again(ctx)); err != nil {
		return err
	}
	return plan(ctx, c, host.ReplaceMember(m.ID))
}

// maxRefused is how long a plan may be refused because its host is not heard yet.
const maxRefused = 5 * time.Second

// errNoLeader is no refusal: no member was asked.
var errNoLeader = errors.New("there is no leader")

// plan changes the members, on whichever member leads, and returns when the change is in force on a member
// that remains.
func plan(ctx context.Context, c *rig.Cluster, changes ...host.MemberChange) error {
	for began := time.Now(); ; {
		err := planOnce(ctx, c, changes)
		if !(errors.Is(err, outcome.ErrMembersUnchanged) || errors.Is(err, errNoLeader)) || time.Since(began) > maxRefused {
			return err
		}
		if err := lab.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func planOnce(ctx context.Context, c *rig.Cluster, changes []host.MemberChange) error {
	at := c.Leader(0)
	if at < 0 {
		return errNoLeader
	}
	group := c.Member(at).Group(0)
	p, err := group.Plan(changes...)
	if err != nil {
		return err
	}
	err = group.Execute(ctx, p)
	if !errors.Is(err, outcome.ErrMemberRemoved) {
		return err
	}
	return rig.Until(ctx, "another member leads", func() (bool, error) { // the leader has removed itself
		now := c.Leader(0)
		return now >= 0 && now != at, nil
	})
}

// snapshotAll takes a snapshot on every open member that is one.
func snapshotAll(ctx context.Context, c *rig.Cluster) error {
	for _, m := range c.Members() {
		if g := m.Group(0); g != nil && g.Err() == nil {
			if _, err := g.TakeSnapshot(ctx); err != nil {
				return fmt.Errorf("host %d: %w", m.ID, err)
			}
		}
	}
	return nil
}

func judgeB4(s *experiment.Session, c b4Scale) {
	stranger, refused, have, asked := 0.0, 1.0, true, true
	for _, state := range c.states {
		n, ok := sumOf(s, b4Point(b4Remove, state), elections, c.rounds)
		stranger, have = stranger+n, have && ok
		n, ok = sumOf(s, b4Point(b4Leader, state), refusedPlan, c.rounds)
		refused, asked = min(refused, n/float64(c.rounds)), asked && ok
		for _, change := range []string{b4Add, b4Grow} {
			judge(s, demand{change + ": p99 by that before", archive.P99Ratio, b4Point(change, state), "", below(2, "")})
		}
		for _, change := range b4Changes[:len(b4Changes)-1] {
			judge(s, demand{change.name + ": elections", elections, b4Point(change.name, state), "", zero})
		}
		judge(s, demand{"the leader is removed: longest gap", archive.LongestGapSec, b4Point(b4Leader, state), "",
			atMost(b4Election.Seconds(), "").says("≤ 1 s, the shortest election timeout")})
	}
	const missing = "the change was not measured"
	judgeValue(s, "a removed host that goes on: elections", "", archive.UnitCount, zero, stranger, have, missing)
	judgeValue(s, "a host that cannot be reached is refused with an error", "", archive.UnitCount, atLeast(1, "").says("1"), refused, asked, missing)
}
