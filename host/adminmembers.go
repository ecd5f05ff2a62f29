package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
)

// Members implements admin.Host.
func (a adminPort) Members(group uint64) (admin.Members, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Members{}, err
	}
	g.awaitView(context.Background())
	g.awaitVersions(context.Background())
	m := g.Members()
	of := admin.Members{
		Host: g.self, Cluster: a.h.trust.directory.Identity().Cluster, Group: group, Leader: g.Status().Leader, Founded: m.Founded, Version: m.Version, MachineVersion: m.MachineVersion,
		Members: make([]admin.Member, 0, len(m.All)), Removed: m.Removed, View: m.View, Tolerates: m.Tolerates, Plan: m.Plan, Waits: m.Waits,
	}
	if r := g.roster(); r != nil && r.Plan != nil {
		of.PlanID = hex.EncodeToString(r.Plan.ID[:])
	}
	for _, i := range m.All {
		member := admin.Member{ID: i.ID, Role: i.Role.String(), Heard: i.There, Addr: i.Addr, Incarnation: hex.EncodeToString(i.Incarnation[:])}
		if i.KnowsVersions {
			member.Versions = []uint32{i.Versions.Lowest, i.Versions.Highest}
		}
		of.Members = append(of.Members, member)
	}
	for _, t := range m.Tokens {
		if left := t.Expires - g.LogTime(); left > 0 {
			of.Tokens = append(of.Tokens, admin.OpenToken{Name: t.Hash.String(), ID: t.Member, Learner: t.Learner, Seconds: int64((left + time.Second - 1) / time.Second)})
		}
	}
	return of, nil
}

// changeOf returns a change of the members.
func changeOf(c admin.Change) (MemberChange, error) {
	switch c.Op {
	case admin.OpAdd:
		return AddMember(c.ID), nil
	case admin.OpLearner:
		return AddLearner(c.ID), nil
	case admin.OpReplace:
		return ReplaceMember(c.ID), nil
	case admin.OpPromote:
		return PromoteMember(c.ID), nil
	case admin.OpDemote:
		return DemoteMember(c.ID), nil
	case admin.OpRemove:
		return RemoveMember(c.ID), nil
	}
	return MemberChange{}, fmt.Errorf("there is no change of members that is called %.40q", c.Op)
}

// Plan implements admin.Host.
func (a adminPort) Plan(ctx context.Context, group uint64, changes []admin.Change) (admin.Plan, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Plan{}, err
	}
	var wants []MemberChange
	for _, c := range changes {
		want, err := changeOf(c)
		if err != nil {
			return admin.Plan{}, err
		}
		if c.Addr != "" && want.want.Op != membership.Add {
			return admin.Plan{}, fmt.Errorf("%s %d needs no address; give one to %s, %s or %s", c.Op, c.ID, admin.OpAdd, admin.OpLearner, admin.OpReplace)
		}
		wants = append(wants, want.At(c.Addr))
	}
	p, err := g.WaitPlan(ctx, wants...)
	if err != nil {
		return admin.Plan{}, err
	}
	a.h.changes.plans.Keep(&plans.Proposal{ID: p.plan.ID, Member: (*planWiring)(g), Start: func() *plans.Execution { return g.StartPlan(p).way }})
	of := admin.Plan{ID: hex.EncodeToString(p.plan.ID[:]), Group: group, Text: p.String(), View: p.View, Tolerates: p.Tolerates, Absent: p.Absent, Stages: []admin.Stage{}}
	for _, s := range p.Stages {
		of.Stages = append(of.Stages, admin.Stage{What: s.What, During: s.During, After: s.After})
	}
	return of, nil
}

// Execute implements admin.Host.
func (a adminPort) Execute(ctx context.Context, group uint64, id, seen string) (admin.Progress, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Progress{}, err
	}
	if p, _ := a.h.changes.plans.Find((*planWiring)(g), id); p != nil {
		a.h.changes.plans.Begin(p)
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	again := time.NewTicker(watchPace)
	defer again.Stop()
	for {
		p, err := a.progress(g, id)
		if err != nil || p.Done || p.State != seen {
			return p, err
		}
		select {
		case <-ctx.Done():
			return p, nil
		case <-again.C:
		}
	}
}

// progress says how far a plan is: by its execution, or by the roster if it was begun elsewhere or in an
// earlier life.
func (a adminPort) progress(g *Group, id string) (p admin.Progress, err error) {
	p.Plan = id
	r := g.roster()
	if r == nil {
		return p, g.notFounded()
	}
	known, begun := a.h.changes.plans.Find((*planWiring)(g), id)
	if begun != nil {
		var wrong error
		p.Plan = hex.EncodeToString(known.ID[:])
		p.Done, wrong = begun.Poll()
		switch {
		case errors.Is(wrong, outcome.ErrMemberRemoved):
			p.Left = true
		case wrong != nil:
			p.Refused = wrong.Error()
		}
		if p.Done {
			return p, nil
		}
	}
	ended := slices.IndexFunc(r.Ended, func(e membership.Ended) bool { return plans.IsNamed(e.ID, id) })
	switch {
	case ended >= 0:
		p.Done = true
		if e := r.Ended[ended]; e.Cancelled {
			p.Refused = fmt.Sprintf("%v, with %d of its stages in force", outcome.ErrPlanCancelled, e.Done)
		}
	case r.Plan != nil && plans.IsNamed(r.Plan.ID, id):
		p.Plan, p.State = hex.EncodeToString(r.Plan.ID[:]), r.Plan.String()
		if why := g.members.plan.Waits(); why != "" {
			p.State += "; it waits: " + why
		}
	case known == nil:
		return p, fmt.Errorf("plan %.40q is neither under way in group %d nor known to this host; it was made on another host or in an earlier life of this one, or %d later plans were made; plan again", id, g.id, plans.MaxProposals)
	}
	return p, nil
}

// Cancel implements admin.Host.
func (a adminPort) Cancel(ctx context.Context, group uint64, id string) (admin.Progress, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Progress{}, err
	}
	if r := g.roster(); r != nil && r.Plan != nil && plans.IsNamed(r.Plan.ID, id) {
		if err := g.CancelPlan(ctx); err != nil {
			return admin.Progress{}, err
		}
	}
	return a.progress(g, id)
}

// JoinToken implements admin.Host.
func (a adminPort) JoinToken(ctx context.Context, group, member uint64, life time.Duration, learner bool) (admin.Token, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Token{}, err
	}
	text, err := g.NewJoinToken(ctx, JoinTokenOptions{Life: life, Member: member, Learner: learner})
	return admin.Token{Text: text}, err
}

// AcceptKey implements admin.Host.
func (a adminPort) AcceptKey(id uint64) error { return a.h.AcceptKey(id) }

// SetPeer implements admin.Host.
func (a adminPort) SetPeer(id uint64, addr string) error { return a.h.SetPeer(id, addr) }
