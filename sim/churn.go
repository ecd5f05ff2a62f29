package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// churn changes the members of the groups while everything else goes wrong: it plans, executes and cancels on
// any member, and wipes the directory of one host at a time, which must then be replaced. The hosts beyond
// the founders wait to be added. Every check of the run applies, and these:
//
//   - members that put a roster of one version in force have the same configuration (checkRoster);
//   - a member stops as removed only if it is (checkAtEnd);
//   - an acknowledged command is on a quorum of the voters of its configuration, or of a later one;
//   - when the faults stop, plans under way end, and the wiped host is a member again or is removed.
//
// One host at a time is wiped, and the next one only when that is a full member again: more than a minority
// of lost disks loses commands, and that is no bug.
type churn struct {
	w       *world
	rng     *rand.Rand
	pace    time.Duration
	running []*plan
	tokens  []*joining        // join.go
	named   map[memberOf]bool // hosts that a plan of an operator may have added
	keyed   bool              // keys.go
	strangers
	moves  int      // moves.go
	wiped  *machine // whose directory is lost; nil: none
	counts map[string]int
}

// plan is an execution that a client of the simulation waits for.
type plan struct {
	replica   *replica
	execution *host.Execution
	what      string
}

type memberOf struct{ group, id uint64 }

const (
	churnHosts    = 6
	churnFounders = 3
)

// drawChurn draws whether the members change in this run.
func (w *world) drawChurn() bool {
	rng := splitSeed(w.options.Seed, 12)
	if w.options.small || w.options.still || rng.IntN(3) > 0 && !w.options.churn {
		return false
	}
	if w.options.churn {
		w.pipeline = pipeline.Async{}
		w.useSafeMode()
	}
	if !w.pipeline.AsyncStorageWrites() || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return false
	}
	w.churn = &churn{w: w, rng: rng, pace: pick(rng, 30*time.Millisecond, 120*time.Millisecond, 400*time.Millisecond), counts: map[string]int{}, named: map[memberOf]bool{}}
	for id := range uint64(churnFounders) {
		w.groupConfig.Members = append(w.groupConfig.Members, id+1)
	}
	w.churn.keyed = rng.IntN(2) == 0
	for _, g := range w.ghosts {
		g.churns, g.rosters = true, map[uint64]raftpb.ConfState{0: {Voters: w.groupConfig.Members}}
	}
	return true
}

func (w *world) startChurn() {
	if w.churn != nil && !w.nemesis.calm {
		w.churn.schedule()
	}
}

// joins reports whether a host opens its groups to be added to them.
func (w *world) joins(h *machine) bool {
	return h.joins || w.churn != nil && !slices.Contains(w.groupConfig.Members, h.id)
}

func (c *churn) schedule() {
	c.w.plan(between(c.rng, 0, 2*c.pace), "members change", nil, func() {
		c.poll()
		c.act()
		c.schedule()
	})
}

// poll looks at the executions.
func (c *churn) poll() {
	c.running = slices.DeleteFunc(c.running, func(p *plan) bool {
		done, err := p.execution.Poll()
		if !done {
			return p.replica.life.dead
		}
		switch {
		case err == nil:
			c.counts["plans carried out"]++
			c.w.count(PlansDone)
		case errors.Is(err, outcome.ErrMembersUnchanged), errors.Is(err, outcome.ErrPlanCancelled), errors.Is(err, outcome.ErrStopped):
			c.counts["plans refused or cancelled"]++
		default:
			c.w.breaks(property.OneConfiguration, "%s: %s ends with an error of unknown kind: %v", p.replica.name, p.what, err)
		}
		c.w.record(fmt.Sprintf("%s: %s has ended: %v", p.replica.name, p.what, err))
		return true
	})
	c.pollTokens()
	c.acceptKeys()
	if h := c.wiped; h != nil && c.isSettled(h) {
		c.wiped = nil
	}
}

// isSettled reports whether a host that was wiped is a voter with its new directory in all groups, or is no
// member any more.
func (c *churn) isSettled(h *machine) bool {
	for _, g := range c.w.ghosts {
		r := c.w.leading(g.id)
		if r == nil {
			return false
		}
		m := r.group.Members()
		if at := slices.IndexFunc(m.All, func(i host.MemberInfo) bool { return i.ID == h.id }); !m.Founded || m.Plan != "" || at >= 0 &&
			(m.All[at].Incarnation == h.lost || slices.Contains(m.Learners, h.id) && !c.mayStayLearner(r, h)) {
			return false
		}
	}
	return true
}

// mayStayLearner reports whether a learner holds everything, so that it does no harm that it does not vote.
func (c *churn) mayStayLearner(r *replica, h *machine) bool {
	return h.alive != nil && h.alive.process != nil && h.alive.replicas[r.id-1].group != nil &&
		h.alive.replicas[r.id-1].group.Status().Applied >= r.group.Status().Committed
}

// leading returns the replica that leads a group in the highest term, or nil.
func (w *world) leading(group uint64) (leads *replica) {
	var term uint64
	w.eachReplica(func(r *replica) {
		if r.group == nil || r.id != group || r.closing {
			return
		}
		if s := r.group.Status(); s.Role == event.RoleLeader && s.Term > term {
			leads, term = r, s.Term
		}
	})
	return leads
}

// act does one thing to the members, or to a directory.
func (c *churn) act() {
	if !c.w.isFounded() {
		return
	}
	if c.w.nemesis.isQuiet() {
		c.tellAll()
	}
	r := c.anyMember()
	if r == nil {
		return
	}
	m := r.group.Members()
	if !m.Founded {
		return
	}
	stopped := c.w.nemesis.isQuiet()
	if !stopped && c.rng.IntN(4) == 0 {
		c.rekey()
	}
	if !stopped && c.rng.IntN(8) == 0 {
		c.move()
	}
	if !stopped && c.rng.IntN(4) == 0 {
		c.grant(r, c.newcomers(r, m), 0)
	}
	switch {
	case stopped && c.wiped != nil && m.Plan != "" && c.rng.IntN(8) == 0:
		_ = r.group.CancelPlan(ended) // it may wait for the directory that is lost
	case c.wiped != nil && !stopped && c.rng.IntN(3) == 0:
		c.grant(r, []*machine{c.wiped}, c.wiped.id)
	case c.wiped != nil && (stopped || c.rng.IntN(2) == 0):
		if leads := c.w.leading(r.id); stopped && leads != nil {
			r = leads // the operator asks one that knows, or says where the host is (seeds 1669, 78)
			if err := r.life.process.SetPeer(c.wiped.id, c.wiped.addr); err != nil && c.wiped != r.life.host {
				c.w.breaks(property.OneConfiguration, "%s: %v", r.name, err)
			}
		}
		c.start(r, host.ReplaceMember(c.wiped.id))
	case stopped:
	case c.wiped == nil && c.rng.IntN(2) == 0 && len(m.Voters) >= 3 && m.Plan == "" && len(c.running) == 0:
		c.wipe()
	case c.wiped != nil: // a voter less would leave no quorum, as a second lost directory would
	case m.Plan != "" && c.rng.IntN(12) == 0:
		c.w.record(fmt.Sprintf("%s cancels %s", r.name, m.Plan))
		_ = r.group.CancelPlan(ended)
	default:
		c.start(r, c.draw(r, m)...)
	}
}

// anyMember returns a replica that works and is a member, as far as the run knows.
func (c *churn) anyMember() *replica {
	h := c.w.hosts[c.rng.IntN(len(c.w.hosts))]
	if h.alive == nil || h.alive.process == nil {
		return nil
	}
	r := pick(c.rng, h.alive.replicas...)
	if r.group == nil || r.closing || r.group.Err() != nil || !r.ghost.has(h.id) {
		return nil
	}
	return r
}

// draw draws changes that make sense more often than not.
func (c *churn) draw(r *replica, m host.Members) (changes []host.MemberChange) {
	for range 1 + c.rng.IntN(2) {
		id := uint64(c.rng.IntN(churnHosts) + 1)
		if c.onlyByToken(r.id, id) {
			continue
		}
		isVoter, isLearner := slices.Contains(m.Voters, id), slices.Contains(m.Learners, id)
		switch {
		case isVoter && len(m.Voters) > 2 && c.rng.IntN(8) == 0:
			changes = append(changes, host.RemoveMember(id))
		case isVoter && len(m.Voters) > 2:
			changes = append(changes, host.DemoteMember(id))
		case isLearner && c.rng.IntN(8) == 0:
			changes = append(changes, host.RemoveMember(id))
		case isLearner:
			changes = append(changes, host.PromoteMember(id))
		case !isVoter && c.rng.IntN(3) == 0:
			changes = append(changes, host.AddLearner(id))
		case !isVoter:
			changes = append(changes, host.AddMember(id))
		}
	}
	return changes
}

// nameOf returns the fault that a plan is: the removal of a member, or the addition or promotion of one.
func nameOf(p *host.MemberPlan, now host.Members) coverage.Fault {
	if len(p.Stages) == 0 {
		return coverage.MemberAdd
	}
	last := p.Stages[len(p.Stages)-1]
	for _, m := range now.All {
		if !slices.Contains(last.Voters, m.ID) && !slices.Contains(last.Learners, m.ID) {
			return coverage.MemberRemove
		}
	}
	return coverage.MemberAdd
}

// start plans and executes on a member.
func (c *churn) start(r *replica, changes ...host.MemberChange) {
	p, err := r.group.Plan(changes...)
	if err != nil {
		if !errors.Is(err, outcome.ErrMembersUnchanged) && !errors.Is(err, outcome.ErrNotFounded) {
			c.w.breaks(property.OneConfiguration, "%s refuses a plan: %v", r.name, err)
		}
		if isOldProgram(err) {
			c.w.count(PromotionsRefused)
		}
		c.w.record(fmt.Sprintf("%s: %v", r.name, err))
		return
	}
	c.w.checkPromotions(r, p)
	if !c.w.injects(nameOf(p, r.group.Members()), r.life.host) {
		return
	}
	c.w.record(fmt.Sprintf("%s: %v", r.name, p))
	for _, s := range p.Stages {
		for _, id := range slices.Concat(s.Voters, s.Learners) {
			if !slices.ContainsFunc(r.group.Members().All, func(i host.MemberInfo) bool { return i.ID == id }) {
				c.named[memberOf{r.id, id}] = true
			}
		}
	}
	c.running = append(c.running, &plan{r, r.group.StartPlan(p), p.String()})
	c.w.count(Plans)
}

// wipe removes the directory of a host, which comes back to be replaced. The others must hold what it held: a
// quorum without it is level.
func (c *churn) wipe() {
	h := c.w.hosts[c.rng.IntN(len(c.w.hosts))]
	if h.alive == nil || h.alive.process == nil || !c.mayBeWiped(h) {
		return
	}
	c.wipeOne(h)
}

// wipeOne wipes a host, unless that is left out. It reports true.
func (c *churn) wipeOne(h *machine) bool {
	if !c.w.injects(coverage.LostDisk, h) {
		return true
	}
	c.w.record(fmt.Sprintf("%s is wiped", h.alive.name))
	c.w.count(Wipes)
	all := c.w.leading(1).group.Members().All
	h.lost = all[slices.IndexFunc(all, func(i host.MemberInfo) bool { return i.ID == h.id })].Incarnation
	h.crash(crashfs.LoseAll)
	h.disk = newDisk(h.id)
	h.disk.SetHook(h.onOperation)
	h.isFull, h.joins, h.reached, h.logged, h.memory = false, true, map[uint64]uint64{}, false, memory{}
	h.renew()
	c.wiped = h
	c.w.nemesis.restart(h)
	return true
}

// mayBeWiped reports whether every group has a leader elsewhere, of which h is a member, and whose other
// voters that hold all that is committed are a quorum.
func (c *churn) mayBeWiped(h *machine) bool {
	for _, g := range c.w.ghosts {
		r := c.w.leading(g.id)
		if r == nil || r.life.host == h || !g.has(h.id) {
			return false
		}
		m := r.group.Members()
		if m.Plan != "" || len(m.Outgoing) > 0 || !slices.Contains(m.Voters, h.id) {
			return false
		}
		level := 0
		for _, id := range m.Voters {
			other := c.w.hosts[id-1]
			if other == h || other.alive == nil || other.alive.process == nil {
				continue
			}
			if o := other.alive.replicas[g.id-1]; o.group != nil && o.group.Status().Durable >= r.group.Status().LastIndex && o.group.Status().Term == r.group.Status().Term {
				level++
			}
		}
		if level <= len(m.Voters)/2 {
			return false
		}
	}
	return true
}

// checkRoster: members that put one version in force have the same configuration.
func (g *ghost) checkRoster(w *world, who string, e event.MembersChanged) {
	was, known := g.rosters[e.Version]
	if known && was.Equivalent(e.Conf) != nil {
		w.breaks(property.OneConfiguration, "%s has configuration %v with version %d of the members, another one had %v", who, raft.DescribeConfState(e.Conf), e.Version, raft.DescribeConfState(was))
	}
	if g.churns {
		g.rosters[e.Version] = e.Conf
		g.version = max(g.version, e.Version)
	}
}

// has reports whether a host is a member in the latest version that the run has seen. In a run without churn
// every host is.
func (g *ghost) has(id uint64) bool {
	if !g.churns {
		return true
	}
	conf := g.rosters[g.version]
	return slices.Contains(conf.Voters, id) || slices.Contains(conf.VotersOutgoing, id) || slices.Contains(conf.Learners, id)
}

// quorum reports whether hosts are a quorum in a configuration that could commit an entry. The leader may be
// one change of the configuration behind its log, which is up to three versions: the beginning of a plan, the
// end of one and a joint configuration are versions, too.
func (g *ghost) quorum(by *replica, index uint64, is func(id uint64) bool) bool {
	if m := by.group.Members(); isQuorum(m.Voters, is) && (len(m.Outgoing) == 0 || isQuorum(m.Outgoing, is)) {
		return true // the run may learn of that version later
	}
	versions := slices.Sorted(maps.Keys(g.rosters))
	first, _ := slices.BinarySearch(versions, index+1)
	for _, version := range versions[max(0, first-4):] {
		if conf := g.rosters[version]; isQuorum(conf.Voters, is) && (len(conf.VotersOutgoing) == 0 || isQuorum(conf.VotersOutgoing, is)) {
			return true
		}
	}
	return false
}

func isQuorum(voters []uint64, is func(id uint64) bool) bool {
	n := 0
	for _, id := range voters {
		if is(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// isQuiet reports whether no plan is under way, and no host waits to be replaced.
func (c *churn) isQuiet() bool {
	c.poll()
	if c.wiped != nil {
		return false
	}
	for _, g := range c.w.ghosts {
		if r := c.w.leading(g.id); r == nil || r.group.Members().Plan != "" {
			return false
		}
	}
	return true
}

// Churn runs random faults while the members change, for every seed. The error, if any, is a *Violation.
func Churn(o Options) (Faults, error) {
	o.churn = true
	r, err := Run(o)
	return r.Faults, err
}

// neverJoined reports whether a replica waits to be added to its group, and was not added: its clients
// wait, too, as long as they like.
func (r *replica) neverJoined() bool {
	return r.group != nil && r.life.w.joins(r.life.host) && !r.ghost.has(r.life.host.id) && r.group.Status().LastIndex == 0 && r.group.Err() == nil
}
