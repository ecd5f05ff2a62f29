package host

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// advancePlan is a duty: while this member leads, it is wanted for as long as a plan or a joint
// configuration is in force, or a host waits to join.
func (g *Group) advancePlan() (again bool) {
	g.stepPlan()
	r := g.roster()
	if r == nil || g.core.node.BasicStatus().RaftState != raft.StateLeader {
		return false
	}
	return r.Plan != nil || r.IsJoint() || g.host.changes.applicants.WaitFor(g.id)
}

// stepPlan takes the next step of a plan, if this member leads.
func (g *Group) stepPlan() {
	requests := g.members.plan.requests.Take()
	r := g.roster()
	st := g.core.node.BasicStatus()
	if r == nil || st.RaftState != raft.StateLeader || g.writes.discarding.waitsForLane {
		for _, q := range requests {
			g.answerPlan(q, g.host.notLeader(st.Lead))
		}
		g.members.plan.catchUp = plans.CatchUp{}
		g.members.plan.waits.Store(nil)
		return
	}
	for _, q := range requests {
		g.takePlan(r, q)
	}
	c, ok := r.NextStage()
	switch {
	case g.members.noted.Any():
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
	g.members.plan.catchUp.Begin(r.Changed)
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
	if why := plans.LeavesNoQuorum(r, [][]membership.Step{c.Steps}, g.isHere); why != "" {
		return why
	}
	return g.machine.objects.WaitWith(r, c.Steps)
}

// isLevel reports whether a learner has caught up.
func (g *Group) isLevel(id uint64) bool {
	match := uint64(0)
	if pr, ok := g.progress(id); ok && pr.State == tracker.StateReplicate {
		match = pr.Match
	}
	return g.members.plan.catchUp.IsLevel(id, match, g.core.node.BasicStatus().LastIndex, g.core.at.ticks, int64(g.host.config.electionTicks()))
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
	target := g.leadership.leader.Successor(func(id uint64, pr tracker.Progress) bool {
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
func (g *Group) takePlan(r *membership.Roster, q plans.Request) {
	if q.Data[0] == entry.SkipKind {
		if err := g.takeSkip(q); err != nil {
			g.answerPlan(q, err)
		}
		return
	}
	if g.members.noted.Any() {
		return // it asks again
	}
	var err error
	switch q.Data[0] {
	case entry.GrantKind:
		var data []byte
		if data, err = q.Grant(r, g.logTime()); data != nil {
			g.proposeHost(data)
		}
	case entry.RekeyKind:
		err = g.takeRekey(r, q)
	default:
		if q.IsLate(r) {
			return
		}
		if err = q.Reject(r, (*planHosts)(g)); err == nil {
			g.proposeHost(q.Data)
		}
	}
	if err != nil {
		g.answerPlan(q, err)
	}
}

// planHosts is what the group knows of hosts: plans.Hosts.
type planHosts Group

func (g *planHosts) IsHere(id uint64) bool     { return (*Group)(g).isHere(id) }
func (g *planHosts) LeavesOut(id uint64) bool  { return (*Group)(g).leavesOutMember(id) }
func (g *planHosts) RejectNew(id uint64) error { return g.host.rejectNew(id) }

// answerPlan refuses a request.
func (g *Group) answerPlan(q plans.Request, err error) {
	var elsewhere *outcome.NotLeaderError
	if errors.As(err, &elsewhere) {
		return // it asks the next leader
	}
	if q.From == g.self {
		g.members.executions.Refuse(q.ID, err)
		return
	}
	g.host.network.transport.SendBytes(q.From, transport.Control, plans.Answer{Group: g.id, ID: q.ID, Why: err.Error()}.Encode())
}

// planDue returns the tick at which a leader looks at its plan again.
func (g *Group) planDue() int64 {
	if r := g.roster(); r == nil || r.Plan == nil || g.core.node.BasicStatus().RaftState != raft.StateLeader {
		return never
	}
	return g.core.at.ticks + ticksPerHeartbeat
}

// planJoin begins a plan for the first host that may join by its token, and tells the others why they may
// not. It is part of a leader's turn, and no plan is under way.
func (g *Group) planJoin(r *membership.Roster) {
	ids, all := g.host.changes.applicants.List(g.id)
	for i, id := range ids {
		c := all[i]
		if m, ok := r.Member(id); ok && m.Incarnation == c.Incarnation {
			g.host.changes.applicants.Drop(id, g.id)
			continue
		}
		p, err := plans.JoinPlan(r, id, c, g.logTime())
		if err == nil {
			err = plans.RejectStages(r, p, (*planHosts)(g))
		}
		if err != nil {
			g.refuseJoin(id, err)
			continue
		}
		g.host.env.logger.Info("a host joins by a token", "group", g.id, "host", g.self, "member", id, "token", c.Hash.String(), "directory", c.Incarnation.String())
		g.proposeHost(append([]byte{entry.PlanKind}, p.Encode()...))
		return
	}
}

// refuseJoin tells a host why it is not made a member.
func (g *Group) refuseJoin(id uint64, why error) {
	news, waits := g.host.changes.applicants.Tell(id, g.id, why.Error())
	if news {
		g.host.reports.events.Emit(event.JoinRefused{Group: g.id, Member: id, Err: why})
		g.host.env.logger.Warn("a host comes with a join token and is not made a member", "group", g.id, "host", g.self, "member", id, "cause", why)
	}
	if !waits {
		return
	}
	g.host.network.transport.SendBytes(id, transport.Control, plans.JoinRefused{Group: g.id, Why: why.Error()}.Encode())
}

// takePlanRecord takes a request, or the answer to one.
func (h *Host) takePlanRecord(from uint64, body []byte) error {
	if body[0] == control.PlanAnswer {
		a, err := plans.DecodeAnswer(body)
		if err == nil {
			h.takeUnbound(from, a)
		}
		if g := h.groups.get(a.Group); err == nil && g != nil {
			g.members.executions.Refuse(a.ID, fmt.Errorf("%w: host %d, its leader, says: %s", membership.ErrRefused, from, a.Why))
		}
		return err
	}
	group, q, err := plans.DecodeRequest(body)
	if err != nil {
		return err
	}
	q.From = from
	if g := h.groups.get(group); g != nil && g.isOther(from) && !g.leavesOutMember(from) {
		g.members.plan.requests.Put(q)
		g.want(dutyPlan)
		g.wake()
	}
	return nil
}
