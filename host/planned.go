package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// A plan is in the log, and the leader of the group carries it out: it proposes one stage after the other,
// each when it may be. So a plan continues when its caller ends, and when another member leads.
//
//	entry plan      begins it (Group.Execute)
//	stage           an entry that changes the configuration. It is proposed when the stage before is in force
//	                and the core has left its joint configuration; when every learner that the stage promotes
//	                has caught up; and when the members that were heard lately are a quorum afterwards, too
//	entry end       ends it, when all is in force: a quorum holds durably that it is (membership.Roster.End)
//	entry cancel    ends it before. What is in force stays
//
// A leader whose own vote a stage takes hands its leadership over first, and its successor goes on.
//
// A learner has caught up when it needs less than an election timeout for what the log has got in the round
// before (thesis §4.2.1). Otherwise the group could wait that long for a quorum with the new voter.
type planned struct {
	// Owned by the turn.
	version uint64         // Roster.Changed of that for which the following is
	rounds  []catchUpRound // of learners that the next stage promotes
	asked   int64          // tick at which the leadership was offered to another member
	waits   atomic.Pointer[string]

	requests []planRequest // that wait for a turn; guarded by the lock of the inbox
}

// catchUpRound is a round of a learner that catches up.
type catchUpRound struct {
	id    uint64
	goal  uint64 // the end of the log when the round began
	since int64  // tick
	level bool
}

// planRequest asks the leader to begin or to cancel a plan.
type planRequest struct {
	from uint64 // this host or another
	id   membership.PlanID
	data []byte // of the entry
}

// putPlan leaves a request for the next turn. A request that is repeated takes the place of the first one: a
// host may ask to begin a plan and to cancel it, and each of the two counts.
func (b *inbox) putPlan(p *planned, r planRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if i := slices.IndexFunc(p.requests, func(other planRequest) bool {
		return other.from == r.from && other.id == r.id && other.data[0] == r.data[0]
	}); i >= 0 {
		p.requests[i] = r
		return
	}
	if len(p.requests) < maxPlanRequests {
		p.requests = append(p.requests, r)
	}
}

const maxPlanRequests = 16

func (b *inbox) takePlans(p *planned) (requests []planRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, p.requests = p.requests, nil
	return requests
}

// advancePlan is a duty: while this member leads, it is wanted for as long as a plan or a joint
// configuration is in force, or a host waits to join.
func (g *Group) advancePlan() (again bool) {
	g.stepPlan()
	r := g.roster()
	if r == nil || g.core.node.BasicStatus().RaftState != raft.StateLeader {
		return false
	}
	return r.Plan != nil || r.IsJoint() || g.host.changes.applicants.waitFor(g.id)
}

// stepPlan takes the next step of a plan, if this member leads.
func (g *Group) stepPlan() {
	requests := g.inbox.takePlans(&g.members.plan)
	r := g.roster()
	st := g.core.node.BasicStatus()
	if r == nil || st.RaftState != raft.StateLeader || g.writes.discarding.waitsForLane {
		for _, q := range requests {
			g.answerPlan(q, g.host.notLeader(st.Lead))
		}
		g.members.plan.rounds, g.members.plan.version = nil, 0
		g.members.plan.waits.Store(nil)
		return
	}
	for _, q := range requests {
		g.takePlan(r, q)
	}
	c, ok := r.NextStage()
	switch {
	case len(g.members.noted) > 0:
		return
	case r.Plan == nil && !r.IsJoint():
		g.planJoin(r)
		return
	case r.Ends():
		g.proposeHost(append([]byte{entry.EndKind}, r.Plan.ID[:]...))
		return
	case !ok:
		return
	}
	if g.members.plan.version != r.Changed {
		g.members.plan.version, g.members.plan.rounds = r.Changed, nil
	}
	why := g.stageWaits(r, c)
	g.members.plan.waits.Store(&why)
	switch {
	case why != "":
	case membership.Takes(c.Steps, g.self):
		g.yieldTo(c)
	default:
		kind, data, err := raftpb.MarshalConfChange(c.Entry())
		if err == nil {
			err = g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{Type: kind, Data: data}}})
		}
		if err != nil && !errors.Is(err, raft.ErrProposalDropped) && !errors.Is(err, raft.ErrConfChangeRefused) {
			g.noteRefusal(err)
		}
	}
}

// stageWaits says what a stage waits for, or "".
func (g *Group) stageWaits(r *membership.Roster, c membership.Change) string {
	var behind []string
	for _, s := range c.Steps {
		switch {
		case s.Op != membership.Promote:
		case !g.isLevel(s.ID):
			behind = append(behind, fmt.Sprintf("member %d has not caught up", s.ID))
		case !g.machine.objects.AreHeldBy(s.ID):
			behind = append(behind, fmt.Sprintf("member %d does not hold all objects", s.ID))
		}
	}
	if behind != nil {
		return strings.Join(behind, ", ")
	}
	if why := g.leavesNoQuorum(r, [][]membership.Step{c.Steps}); why != "" {
		return why
	}
	return g.machine.objects.WaitWith(r, c.Steps)
}

// leavesNoQuorum says after which of some stages the members that were heard lately would be no quorum, or
// "". A member that is promoted on the way counts as there: the stage waits for it.
func (g *Group) leavesNoQuorum(r *membership.Roster, stages [][]membership.Step) string {
	rosters, err := r.Play(stages)
	if err != nil {
		return err.Error()
	}
	for _, next := range rosters {
		if left := next.Spare(func(id uint64) bool { return g.isHere(id) || !r.Votes(id) }); left < 0 {
			return fmt.Sprintf("with voters %v, of which %v were heard lately, the group would have no quorum", next.Conf.Voters, g.there(next.Conf.Voters))
		}
	}
	return ""
}

// there returns those of some members that were heard lately.
func (g *Group) there(ids []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return !g.isHere(id) })
}

// isLevel reports whether a learner has caught up.
func (g *Group) isLevel(id uint64) bool {
	at := slices.IndexFunc(g.members.plan.rounds, func(c catchUpRound) bool { return c.id == id })
	st := g.core.node.BasicStatus()
	if at < 0 {
		g.members.plan.rounds = append(g.members.plan.rounds, catchUpRound{id: id, goal: st.LastIndex, since: g.core.at.ticks})
		return false
	}
	c := &g.members.plan.rounds[at]
	pr, ok := g.progress(id)
	if !ok || pr.Match < c.goal || pr.State != tracker.StateReplicate {
		c.level = false
		return false
	}
	c.level = g.core.at.ticks-c.since <= int64(g.host.config.electionTicks())
	c.goal, c.since = st.LastIndex, g.core.at.ticks
	return c.level
}

// progress returns what this leader knows of a member.
func (g *Group) progress(id uint64) (found tracker.Progress, ok bool) {
	g.core.node.WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id {
			found, ok = pr, true
		}
	})
	return found, ok
}

// yieldTo hands the leadership to a member that stays a voter after a stage.
func (g *Group) yieldTo(c membership.Change) {
	if g.core.node.BasicStatus().LeadTransferee != raft.None || g.members.plan.asked > 0 && g.core.at.ticks < g.members.plan.asked+int64(g.host.config.electionTicks()) {
		return
	}
	g.members.plan.asked = max(g.core.at.ticks, 1)
	target := g.successor(func(id uint64, pr tracker.Progress) bool {
		return !membership.Takes(c.Steps, id) && (pr.RecentActive || g.host.isThere(id))
	})
	if target == raft.None {
		return
	}
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: g.core.node.BasicStatus().Term, To: target, Cause: "the plan under way takes the vote of this member"})
	if err := g.core.node.TransferLeader(target); err != nil {
		g.noteRefusal(err)
	}
}

// takePlan proposes what a request asks for, unless it is on its way or done already.
func (g *Group) takePlan(r *membership.Roster, q planRequest) {
	if q.data[0] == entry.SkipKind {
		if err := g.takeSkip(q); err != nil {
			g.answerPlan(q, err)
		}
		return
	}
	if len(g.members.noted) > 0 {
		return // it asks again
	}
	var err error
	switch q.data[0] {
	case entry.GrantKind:
		err = g.takeGrant(r, q)
	case entry.RekeyKind:
		err = g.takeRekey(r, q)
	default:
		_, ended := r.HowEnded(q.id)
		switch begins := q.data[0] == entry.PlanKind; {
		case begins && r.Plan != nil && r.Plan.ID == q.id, ended:
			return // the asker applies it
		case begins && isOutdated(r, q):
			return // the asker applies what has changed the members; only there is it seen whether this plan has
		}
		if err = g.rejectPlan(r, q); err == nil {
			g.proposeHost(q.data)
		}
	}
	if err != nil {
		g.answerPlan(q, err)
	}
}

// isOutdated reports whether a request is to begin a plan for an earlier roster. It may be a late copy of one
// that has begun such a plan, which has ended since.
func isOutdated(r *membership.Roster, q planRequest) bool {
	p, err := membership.DecodePlan(q.data[1:])
	return err == nil && p.Base < r.Changed
}

// proposeHost proposes an entry of the host. One that the core drops is proposed again by a later turn.
func (g *Group) proposeHost(data []byte) {
	err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{Type: raftpb.EntryHost, Data: data}}})
	if err != nil && !errors.Is(err, raft.ErrProposalDropped) {
		g.noteRefusal(err)
	}
}

// rejectPlan says why a leader does not propose what a request asks for, or returns nil.
func (g *Group) rejectPlan(r *membership.Roster, q planRequest) error {
	if q.data[0] == entry.CancelKind {
		_, err := r.Cancel(r.Version+1, q.id)
		return err
	}
	p, err := membership.DecodePlan(q.data[1:])
	if err != nil {
		return err
	}
	if err := p.RejectAsked(); err != nil {
		return err
	}
	if _, err := r.Begin(r.Version+1, p); err != nil {
		return err
	}
	return g.rejectStages(r, p)
}

// rejectStages says why a leader does not begin a plan that the roster allows, or returns nil.
func (g *Group) rejectStages(r *membership.Roster, p membership.Plan) error {
	for _, steps := range p.Stages {
		for _, s := range steps {
			if err := g.host.rejectNew(s.ID); err != nil && s.Op == membership.Add {
				return err
			}
			if s.Op == membership.Promote && r.Role(s.ID) == membership.Learner && g.leavesOutMember(s.ID) && !rebinds(p.Stages, s.ID) {
				return fmt.Errorf("%w: host %d comes with another directory than member %d is bound to; replace the member", membership.ErrRefused, s.ID, s.ID)
			}
		}
	}
	if why := g.leavesNoQuorum(r, p.Stages); why != "" {
		return fmt.Errorf("%w: %s; start the members that are down first, or remove them before others", membership.ErrRefused, why)
	}
	return nil
}

// rebinds reports whether stages bind a member to another directory.
func rebinds(stages [][]membership.Step, id uint64) bool {
	return slices.ContainsFunc(stages, func(steps []membership.Step) bool {
		return slices.ContainsFunc(steps, func(s membership.Step) bool { return s.ID == id && s.Replaces })
	})
}

// answerPlan refuses a request.
func (g *Group) answerPlan(q planRequest, err error) {
	var elsewhere *outcome.NotLeaderError
	if errors.As(err, &elsewhere) {
		return // it asks the next leader
	}
	if q.from == g.self {
		g.members.executions.refuse(q.id, err)
		return
	}
	g.host.network.transport.SendBytes(q.from, transport.Control, planAnswer{g.id, q.id, err.Error()}.encode())
}

// planDue returns the tick at which a leader looks at its plan again.
func (g *Group) planDue() int64 {
	if r := g.roster(); r == nil || r.Plan == nil || g.core.node.BasicStatus().RaftState != raft.StateLeader {
		return never
	}
	return g.core.at.ticks + ticksPerHeartbeat
}
