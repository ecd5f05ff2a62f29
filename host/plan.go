package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// This file wires package plans.

// advancePlan is a duty: the next step of a plan.
func (g *Group) advancePlan() (again bool) { return g.members.plan.Step() }

// planDue returns the tick at which a leader looks at its plan again.
func (g *Group) planDue() int64 { return g.members.plan.Due() }

func (g *Group) planSettings() plans.Settings {
	changes := &g.host.changes
	return plans.Settings{
		Group: g.id, Self: g.self, Election: int64(g.host.config.electionTicks()), Between: ticksPerHeartbeat,
		Applicants: &changes.applicants, Running: &changes.executing,
	}
}

// planWiring is the group as its plans see it: plans.Wiring.
type planWiring Group

func (g *planWiring) Roster() *membership.Roster { return (*Group)(g).roster() }
func (g *planWiring) Core() plans.Core           { return g.core.node }
func (g *planWiring) Now() int64                 { return g.core.at.Ticks }
func (g *planWiring) LogTime() time.Duration     { return (*Group)(g).LogTime() }
func (g *planWiring) MayPropose() bool           { return !g.writes.discarding.waitsForLane }
func (g *planWiring) IsSettled() bool            { return !g.members.Noted.Any() }
func (g *planWiring) IsHere(id uint64) bool      { return (*Group)(g).isHere(id) }
func (g *planWiring) Excludes(id uint64) bool    { return g.members.Excludes(id) }
func (g *planWiring) RejectNew(id uint64) error  { return g.host.rejectNew(id) }
func (g *planWiring) Ask(q plans.Request)        { (*Group)(g).askLeader(q) }
func (g *planWiring) Skip(q plans.Request) error { return (*Group)(g).acceptSkip(q) }

func (g *planWiring) Upgrade(q plans.Request) error { return (*Group)(g).acceptUpgrade(q) }

func (g *planWiring) Propose(data []byte) { (*Group)(g).proposeHost(data) }

func (g *planWiring) HoldsObjects(id uint64) bool { return g.machine.objects.AreHeldBy(id) }

func (g *planWiring) ObjectsWait(r *membership.Roster, steps []membership.Step) string {
	return g.machine.objects.WaitWith(r, steps)
}

func (g *planWiring) Unbound(id uint64, why error) { g.host.recordUnbound(g.id, id, why.Error()) }

func (g *planWiring) Err() error {
	if err := (*Group)(g).Err(); err != nil {
		return outcome.WithCause(outcome.ErrStopped, err)
	}
	return nil
}

func (g *planWiring) Change(c membership.Change) {
	kind, data, err := raftpb.MarshalConfChange(c.Entry())
	if err == nil {
		err = g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{Type: kind, Data: data}}})
	}
	if err != nil && !errors.Is(err, raft.ErrProposalDropped) && !errors.Is(err, raft.ErrConfChangeRefused) {
		(*Group)(g).countRefusal(err)
	}
}

func (g *planWiring) Successor(fits func(id uint64) bool) uint64 {
	return g.leadership.leader.Successor(func(id uint64, pr tracker.Progress) bool {
		return fits(id) && (pr.RecentActive || g.host.isThere(id))
	})
}

func (g *planWiring) HandOver(to uint64, cause string) {
	(*Group)(g).reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: g.core.node.BasicStatus().Term, To: to, Cause: cause})
	(*Group)(g).countRefusal(g.core.node.TransferLeader(to))
}

func (g *planWiring) Joins(id uint64, c plans.Applicant) {
	g.host.env.logger.Info("a host joins by a token", "group", g.id, "host", g.self, "member", id, "token", c.Hash.String(), "directory", c.Incarnation.String())
}

func (g *planWiring) Rejects(id uint64, why error) {
	g.host.reports.events.Emit(event.JoinRefused{Group: g.id, Member: id, Err: why})
	g.host.env.logger.Warn("a host comes with a join token and is not made a member", "group", g.id, "host", g.self, "member", id, "cause", why)
}

func (g *planWiring) Send(to uint64, record []byte) {
	g.host.network.transport.SendBytes(to, transport.Control, record)
}

// receivePlanRecord receives a request, or the answer to one.
func (h *Host) receivePlanRecord(from uint64, body []byte) error {
	if body[0] == control.PlanAnswer {
		a, err := plans.DecodeAnswer(body)
		if err == nil {
			h.receiveUnbound(from, a)
		}
		if g := h.groups.get(a.Group); err == nil && g != nil {
			g.members.plan.Executions.Refuse(a.ID, membership.Refusal(fmt.Sprintf("host %d, its leader, says: %s", from, a.Why)))
		}
		return err
	}
	group, q, err := plans.DecodeRequest(body)
	if err != nil {
		return err
	}
	q.From = from
	if g := h.groups.get(group); g != nil && g.members.HasOther(from) && !g.members.Excludes(from) {
		g.members.plan.Requests.Enqueue(q)
		g.want(dutyPlan)
		g.wake()
	}
	return nil
}
