package host

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// MemberChange is what a plan does to one member. AddMember, AddLearner, ReplaceMember, PromoteMember,
// DemoteMember and RemoveMember make one.
type MemberChange struct {
	want membership.Want
	addr string // not empty: where the host is
}

// At says where the host of a member is that is added or replaced (host:port). Without it this host must know
// that: from Config.Members, Host.SetPeer, or a connection of that host.
func (c MemberChange) At(addr string) MemberChange {
	c.addr = addr
	return c
}

// AddMember adds a host as a voter: it becomes a learner, which gets the log, and a voter when it has caught
// up. The host must have been heard by the one that plans, with GroupConfig.Joins in its group.
func AddMember(id uint64) MemberChange {
	return MemberChange{want: membership.Want{Op: membership.Add, Member: membership.Member{ID: id}}}
}

// AddLearner adds a host as a learner, for good: it has the log and the state machine, serves reads, and does
// not vote.
func AddLearner(id uint64) MemberChange {
	c := AddMember(id)
	c.want.Learner = true
	return c
}

// ReplaceMember gives the id of a member to the directory with which its host comes now. The old directory
// was wiped, restored from a backup, or lost with its machine. A voter becomes a learner first, so
// meanwhile the group tolerates fewer failures.
func ReplaceMember(id uint64) MemberChange {
	c := AddMember(id)
	c.want.Replace = true
	return c
}

// PromoteMember makes a learner a voter, when it has caught up.
func PromoteMember(id uint64) MemberChange {
	return MemberChange{want: membership.Want{Op: membership.Promote, Member: membership.Member{ID: id}}}
}

// DemoteMember makes a voter a learner.
func DemoteMember(id uint64) MemberChange {
	return MemberChange{want: membership.Want{Op: membership.Demote, Member: membership.Member{ID: id}}}
}

// RemoveMember removes a member. Its host stops the group and keeps its data.
func RemoveMember(id uint64) MemberChange {
	return MemberChange{want: membership.Want{Op: membership.Remove, Member: membership.Member{ID: id}}}
}

// MemberPlan is a way from the present members to others, and what each stage does to the group.
type MemberPlan struct {
	// Stages are what happens, one after the other.
	Stages []PlanStage
	// View is the member by whose view the plan is judged: the leader, which this one is or has asked
	// (Members.View). It is 0 if no leader has told. Then the plan is judged as if all members that were met
	// in this life were there, and the leader judges it again.
	View uint64
	// Tolerates is how many voters may fail before the plan begins, by that view. It is negative if there is
	// no quorum now.
	Tolerates int
	// Absent are members that were not heard lately, by that view; none if View is 0.
	Absent []uint64

	group, host, leader uint64
	plan                membership.Plan
}

// PlanStage is one change of the members.
type PlanStage struct {
	// What is said of it in words.
	What string
	// Voters and Learners are the members after it.
	Voters, Learners []uint64
	// During and After are how many voters may fail while the stage is under way and after it, besides those
	// that are not there now. A negative number means that the group would have no quorum: Execute refuses.
	During, After int
}

// String is a page for an operator.
func (p *MemberPlan) String() string {
	o := plans.Outlook{ID: p.plan.ID, Group: p.group, Host: p.host, Leader: p.leader, View: p.View, Tolerates: p.Tolerates, Absent: p.Absent}
	for _, s := range p.Stages {
		o.Stages = append(o.Stages, plans.Stage(s))
	}
	return o.String()
}

// WaitPlan is Plan for a caller that waits. Hosts whose address is in their change (MemberChange.At) have 5 s
// to come, all together. The leader then has 2 s to say who is there.
func (g *Group) WaitPlan(ctx context.Context, changes ...MemberChange) (*MemberPlan, error) {
	var named []uint64
	for _, c := range changes {
		switch {
		case c.addr == "":
			continue
		case c.want.Op != membership.Add:
			return nil, fmt.Errorf("millrace: group %d: %w: to %v member %d needs no address; give one to a member that is added or replaced", g.id, membership.ErrRefused, c.want.Op, c.want.ID)
		}
		if err := g.host.SetPeer(c.want.ID, c.addr); err != nil {
			return nil, err
		}
		named = append(named, c.want.ID)
	}
	g.waitHeard(ctx, named)
	g.awaitView(ctx)
	for _, c := range changes {
		if c.want.Op == membership.Promote {
			g.machine.versions.Forget(c.want.ID) // its program may be another one by now
			g.awaitVersions(ctx)
		}
	}
	return g.Plan(changes...)
}

// Plan says what changes of the members would do, stage by stage, and changes nothing. It judges by what this
// host knows: who is a member, and which hosts were heard within an election timeout. The error wraps
// ErrMembersUnchanged and says what cannot be. Any member may plan. A member that does not lead asks the
// leader which members are there, and uses its last answer (MemberPlan.View). Plan never waits, and is safe
// for concurrent use. It does not use MemberChange.At, which WaitPlan does.
func (g *Group) Plan(changes ...MemberChange) (*MemberPlan, error) {
	g.askView()
	r := g.roster()
	if r == nil {
		return nil, g.notFounded()
	}
	var wants []membership.Want
	for _, c := range changes {
		if c.want.Op == membership.Add {
			came := g.host.presented(c.want.ID, r)
			c.want.Incarnation, c.want.Keys = came.Incarnation, membership.Keys{came.Key}
			c.want.Addr = g.host.network.peers.Addr(c.want.ID)
			if err := cmp.Or(g.host.rejectNew(c.want.ID), g.rejectAddrOf(c.want.ID, c.want.Addr)); err != nil {
				return nil, fmt.Errorf("millrace: group %d: %w", g.id, err)
			}
		}
		wants = append(wants, c.want)
	}
	stages, err := r.Make(wants)
	for _, w := range wants {
		if err == nil && w.Op == membership.Promote {
			err = g.rejectVersionOf(w.ID)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("millrace: group %d: %w", g.id, err)
	}
	p := &MemberPlan{group: g.id, host: g.self, leader: g.life.status.Load().Leader, View: g.viewer(), plan: membership.Plan{Base: r.Changed, Stages: stages}, Tolerates: r.Spare(g.isHere)}
	for _, id := range r.IDs() {
		if p.View != 0 && !g.isHere(id) {
			p.Absent = append(p.Absent, id)
		}
	}
	if _, err := io.ReadFull(g.host.secrets(), p.plan.ID[:]); err != nil {
		return nil, fmt.Errorf("millrace: group %d: draw the id of a plan: %w", g.id, err)
	}
	judged, err := plans.Judge(r, stages, g.isHere)
	for _, s := range judged {
		p.Stages = append(p.Stages, PlanStage(s))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// rejectAddrOf says why a new member cannot be at an address: another member is there. Founders have no
// address in the roster, so what this host knows is compared as well. A member that is not heard may have
// left its address to another host.
func (g *Group) rejectAddrOf(id uint64, addr string) error {
	for _, other := range g.memberIDs() {
		at := g.host.network.peers.Addr(other)
		if other == g.self {
			at = g.host.trust.admission.Self().Addr
		}
		if addr != "" && at == addr && other != id && g.isHere(other) {
			return fmt.Errorf("%w: %s is the address of member %d; each member needs its own: correct the address of host %d, in its configuration or with Host.SetPeer", membership.ErrRefused, addr, other, id)
		}
	}
	return nil
}

// Execution is a plan on its way (Group.StartPlan), or another entry that a caller waits for.
type Execution struct {
	group *Group
	way   *plans.Execution
}

// StartPlan makes the group carry out a plan, without waiting for it. It asks the leader, again and again,
// until this member has applied the entry that begins the plan. The error of Poll is that of Execute.
func (g *Group) StartPlan(p *MemberPlan) *Execution {
	e := g.execution(append([]byte{entry.PlanKind}, p.plan.Encode()...), "plan %v", p.plan.ID)
	e.way.Outcome = func(r *membership.Roster) (done bool, err error) {
		switch ended, known := r.HowEnded(e.way.ID()); {
		case known && ended.Cancelled:
			return true, fmt.Errorf("%w, with %d of its stages in force", outcome.ErrPlanCancelled, ended.Done)
		case known:
			return true, nil
		case r.Changed > p.plan.Base && (r.Plan == nil || r.Plan.ID != e.way.ID()):
			return true, fmt.Errorf("millrace: group %d: %w: the members have changed since the plan was made, from version %d to %d; plan again", g.id, membership.ErrRefused, p.plan.Base, r.Changed)
		}
		return false, nil
	}
	if p.group != g.id {
		e.way.Finish(fmt.Errorf("millrace: the plan is for group %d, and this is group %d", p.group, g.id))
		return e
	}
	return e.start()
}

// execution returns one for the data of an entry, without what its outcome is.
func (g *Group) execution(data []byte, what string, args ...any) *Execution {
	return &Execution{g, g.members.plan.Executions.New(data, what, args...)}
}

func (e *Execution) start() *Execution {
	e.way.Start()
	return e
}

// Execute carries out a plan, and returns nil when all of it is in force on this member. If ctx ends first,
// the plan goes on: call Execute again with the same plan, on any member, to wait for it, or CancelPlan to
// end it. An error that wraps ErrMembersUnchanged says why the plan was not begun. ErrPlanCancelled says
// that the plan was cancelled. ErrMemberRemoved says that the plan has removed this member, and continues
// without it. Execute is safe for concurrent use, and may be repeated.
func (g *Group) Execute(ctx context.Context, p *MemberPlan) error { return g.StartPlan(p).wait(ctx) }

// CancelPlan ends the plan under way, and returns nil when none is under way on this member. Stages that are
// in force stay so; a joint configuration is left first.
func (g *Group) CancelPlan(ctx context.Context) error {
	r := g.roster()
	if r == nil || r.Plan == nil {
		return nil
	}
	e := g.execution(append([]byte{entry.CancelKind}, r.Plan.ID[:]...), "the end of plan %v", r.Plan.ID)
	e.way.Outcome = func(r *membership.Roster) (done bool, err error) {
		_, ended := r.HowEnded(e.way.ID())
		return ended || r.Plan == nil || r.Plan.ID != e.way.ID(), nil
	}
	return e.start().wait(ctx)
}

func (e *Execution) wait(ctx context.Context) error {
	for {
		changed := e.group.members.changed.wait()
		if done, err := e.Poll(); done {
			return err
		}
		select {
		case <-changed:
		case <-e.way.Done():
		case <-e.group.life.ended:
		case <-ctx.Done():
			e.way.Stop()
			return fmt.Errorf("millrace: %s of group %d is under way, or not begun yet: %w", e.way.What, e.group.id, e.group.waitEnd(ctx))
		}
	}
}

// Poll returns whether the plan has ended, as this member has applied it, and with which error. It never
// waits.
func (e *Execution) Poll() (done bool, err error) { return e.way.Poll() }

// askPlans asks again for all plans that this host waits for. It is called once in a heartbeat interval.
func (h *Host) askPlans() {
	if h.changes.executing.Load() == 0 {
		return
	}
	for _, g := range h.groups.all() {
		g.members.plan.Executions.Ask()
	}
}

// askLeader asks the leader for an entry.
func (g *Group) askLeader(q plans.Request) {
	switch leader := g.life.status.Load().Leader; leader {
	case raft.None:
	case g.self:
		g.members.plan.Requests.Enqueue(q)
		g.want(dutyPlan)
		g.wake()
	default:
		g.host.network.transport.SendBytes(leader, transport.Control, q.Encode(g.id))
	}
}
