package plans

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// Group is how the members of a group change. A plan is in the log, and the leader of the group carries it
// out: it proposes one stage after the other, each when it may be. So a plan continues when its caller ends,
// and when another member leads.
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
// Step and Due belong to the turn. Any goroutine may call the rest.
type Group struct {
	Executions Executions // of callers here
	Requests   Requests   // that wait for a turn

	settings Settings
	w        Wiring
	catchUp  CatchUp
	offered  int64 // tick at which another member was offered the leadership
	waits    atomic.Pointer[string]
}

// Settings say whose plans these are. Times are in ticks.
type Settings struct {
	Group, Self       uint64
	Election, Between int64 // the election timeout; how often a leader looks at its plan
	Applicants        *Applicants
	Running           *atomic.Int64 // executions of all groups of the host
}

// Core is what plans ask the core of a group.
type Core interface {
	BasicStatus() raft.BasicStatus
	WithProgress(visit func(id uint64, kind raft.ProgressType, pr tracker.Progress))
}

// Wiring is the group as its plans see it.
type Wiring interface {
	Member
	Hosts
	Core() Core
	Now() (tick int64)
	LogTime() time.Duration
	// MayPropose reports whether the log takes entries, as far as the turn knows.
	MayPropose() bool
	// IsSettled reports whether all entries that change members are in force.
	IsSettled() bool
	// Propose proposes an entry of the host, and Change one of a stage. One that the core drops is proposed
	// again by a later turn.
	Propose(data []byte)
	Change(c membership.Change)
	// HoldsObjects reports whether a member has all objects. ObjectsWait says what objects steps wait for.
	HoldsObjects(id uint64) bool
	ObjectsWait(r *membership.Roster, steps []membership.Step) string
	// Successor returns a member that may lead and that fits, or 0.
	Successor(fits func(id uint64) bool) uint64
	HandOver(to uint64, cause string)
	// Skip proposes the skip that a request asks for, or says why not.
	Skip(q Request) error
	// Upgrade proposes the version that a request asks for, or says why not.
	Upgrade(q Request) error
	// Unbound learns why a member is not bound to the key that it has named.
	Unbound(id uint64, why error)
	// Joins learns of an applicant that a plan adds, and Rejects why a plan does not.
	Joins(id uint64, c Applicant)
	Rejects(id uint64, why error)
	Send(to uint64, record []byte)
}

// Init prepares the plans of a group for their first use.
func (p *Group) Init(w Wiring, s Settings) {
	p.settings, p.w = s, w
	p.Executions.Init(w, s.Group, s.Self, s.Running)
}

// Waits says what the stage under way waits for, or "".
func (p *Group) Waits() string {
	if why := p.waits.Load(); why != nil {
		return *why
	}
	return ""
}

// Step takes the next step of a plan, if this member leads. It must be called again as long as a plan or a
// joint configuration is in force, or a host waits to join.
func (p *Group) Step() (again bool) {
	requests, r := p.Requests.Dequeue(), p.w.Roster()
	if r == nil || !p.leads() {
		p.reset()
		return false
	}
	if p.w.MayPropose() {
		p.advance(r, requests)
	} else {
		p.reset()
	}
	r = p.w.Roster()
	return p.leads() && (r.Plan != nil || r.IsJoint() || p.settings.Applicants.WaitFor(p.settings.Group))
}

func (p *Group) leads() bool { return p.w.Core().BasicStatus().RaftState == raft.StateLeader }

// reset forgets what only a leader needs. Members that have asked this one ask the next leader.
func (p *Group) reset() {
	p.catchUp = CatchUp{}
	p.waits.Store(nil)
}

func (p *Group) advance(r *membership.Roster, requests []Request) {
	for _, q := range requests {
		if err := p.accept(r, q); err != nil {
			p.refuse(q, err)
		}
	}
	c, ok := r.NextStage()
	switch {
	case !p.w.IsSettled():
		return
	case r.Plan == nil && !r.IsJoint():
		p.join(r)
		return
	case r.Ends():
		p.w.Propose(append([]byte{entry.EndKind}, r.Plan.ID[:]...))
		return
	case !ok:
		return
	}
	p.catchUp.Begin(r.Changed)
	why := p.stageWaits(r, c)
	p.waits.Store(&why)
	switch {
	case why != "":
	case membership.Takes(c.Steps, p.settings.Self):
		p.Yield(c)
	default:
		p.w.Change(c)
	}
}

// stageWaits says what a stage waits for, or "".
func (p *Group) stageWaits(r *membership.Roster, c membership.Change) string {
	var behind []string
	for _, s := range c.Steps {
		switch {
		case s.Op != membership.Promote:
		case !p.isLevel(s.ID):
			behind = append(behind, fmt.Sprintf("member %d has not caught up", s.ID))
		case !p.w.HoldsObjects(s.ID):
			behind = append(behind, fmt.Sprintf("member %d does not hold all objects", s.ID))
		}
	}
	if behind != nil {
		return strings.Join(behind, ", ")
	}
	if why := LeavesNoQuorum(r, [][]membership.Step{c.Steps}, p.w.IsHere); why != "" {
		return why
	}
	return p.w.ObjectsWait(r, c.Steps)
}

// isLevel reports whether a learner has caught up.
func (p *Group) isLevel(id uint64) bool {
	match := uint64(0)
	p.w.Core().WithProgress(func(other uint64, _ raft.ProgressType, pr tracker.Progress) {
		if other == id && pr.State == tracker.StateReplicate {
			match = pr.Match
		}
	})
	return p.catchUp.IsLevel(id, match, p.w.Core().BasicStatus().LastIndex, p.w.Now(), p.settings.Election)
}

// Yield hands the leadership to a member that stays a voter after a stage.
func (p *Group) Yield(c membership.Change) {
	now := p.w.Now()
	if p.w.Core().BasicStatus().LeadTransferee != raft.None || p.offered > 0 && now < p.offered+p.settings.Election {
		return
	}
	p.offered = max(now, 1)
	if target := p.w.Successor(func(id uint64) bool { return !membership.Takes(c.Steps, id) }); target != raft.None {
		p.w.HandOver(target, "the plan under way takes the vote of this member")
	}
}

// accept proposes what a request asks for, unless it is on its way or done already.
func (p *Group) accept(r *membership.Roster, q Request) error {
	switch kind := q.Data[0]; {
	case kind == entry.SkipKind:
		return p.w.Skip(q)
	case kind == entry.VersionKind:
		return p.w.Upgrade(q)
	case !p.w.IsSettled():
		return nil // it asks again
	case kind == entry.GrantKind:
		data, err := q.Grant(r, p.w.LogTime())
		if data != nil {
			p.w.Propose(data)
		}
		return err
	case kind == entry.RekeyKind:
		return p.rekey(r, q)
	case q.IsLate(r):
		return nil
	}
	if err := q.Reject(r, p.w); err != nil {
		return err
	}
	p.w.Propose(q.Data)
	return nil
}

// rekey binds a member to a key as that member has asked. It returns an error for the member if another one
// has the key. Other refusals are of requests that came late.
func (p *Group) rekey(r *membership.Roster, q Request) error {
	k, err := membership.DecodeRekey(q.Data[1:])
	if err != nil {
		return err
	}
	if k.ID != q.From {
		return fmt.Errorf("%w: host %d names a key of host %d", membership.ErrRefused, q.From, k.ID)
	}
	if _, err := r.Rekey(r.Version+1, k); err != nil {
		if !errors.As(err, new(membership.KeyTaken)) {
			return nil
		}
		p.w.Unbound(k.ID, err)
		return err
	}
	p.w.Propose(q.Data)
	return nil
}

// refuse answers a request.
func (p *Group) refuse(q Request, why error) {
	if q.From == p.settings.Self {
		p.Executions.Refuse(q.ID, why)
		return
	}
	p.w.Send(q.From, Answer{Group: p.settings.Group, ID: q.ID, Why: why.Error()}.Encode())
}

// Due returns the tick at which a leader looks at its plan again.
func (p *Group) Due() int64 {
	if r := p.w.Roster(); r == nil || r.Plan == nil || !p.leads() {
		return turn.Never
	}
	return p.w.Now() + p.settings.Between
}

// join begins a plan for the first host that may join by its token, and tells the others why they may not. No
// plan is under way.
func (p *Group) join(r *membership.Roster) {
	group := p.settings.Group
	ids, all := p.settings.Applicants.List(group)
	for i, id := range ids {
		c := all[i]
		if m, ok := r.Member(id); ok && m.Incarnation == c.Incarnation {
			p.settings.Applicants.Drop(id, group)
			continue
		}
		plan, err := JoinPlan(r, id, c, p.w.LogTime())
		if err == nil {
			err = RejectStages(r, plan, p.w)
		}
		if err == nil {
			p.w.Joins(id, c)
			p.w.Propose(append([]byte{entry.PlanKind}, plan.Encode()...))
			return
		}
		news, waits := p.settings.Applicants.Tell(id, group, err.Error())
		if news {
			p.w.Rejects(id, err)
		}
		if waits {
			p.w.Send(id, JoinRefused{Group: group, Why: err.Error()}.Encode())
		}
	}
}
