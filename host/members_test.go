package host_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"go.uber.org/goleak"
)

// openJoining opens the host, with a group that waits to be added.
func (p *party) openJoining(peers map[uint64]string, founders ...uint64) {
	p.t.Helper()
	p.openHost(peers)
	p.journal = newJournal()
	if _, err := p.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup, Members: founders, Joins: true}, p.journal); err != nil {
		p.t.Fatal(err)
	}
}

// change plans and executes changes on a host.
func (p *party) change(changes ...host.MemberChange) {
	p.t.Helper()
	g := p.Group(theGroup)
	plan, err := g.Plan(changes...)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := g.Execute(deadline(p.t), plan); err != nil {
		p.t.Fatalf("%v\n%v", plan, err)
	}
}

// waitMembers waits until a host has put these voters and learners in force, and no plan is under way.
func (p *party) waitMembers(voters, learners []uint64) {
	p.t.Helper()
	p.waitEventAfter("the members", func() bool {
		m := p.Group(theGroup).Members()
		return slices.Equal(m.Voters, voters) && slices.Equal(m.Learners, learners) && m.Plan == ""
	})
}

func (p *party) waitEventAfter(what string, is func() bool) {
	p.t.Helper()
	if is() {
		return
	}
	p.waitEvent(what, func(event.Event) bool { return is() })
}

// wipe stops the host and removes its directory.
func (p *party) wipe() {
	p.t.Helper()
	p.close()
	if err := os.RemoveAll(filepath.Join(p.dir, "data")); err != nil {
		p.t.Fatal(err)
	}
}

// threeAndTwo returns five hosts: three founders with a command, and two that wait to be added.
func threeAndTwo(t *testing.T) (ps []*party, list map[uint64]string) {
	t.Helper()
	ps = parties(t, 5)
	list = listOf(ps...)
	for _, p := range ps[:3] {
		p.openHost(list)
		p.openGroup(1, 2, 3)
	}
	for _, p := range ps[3:] {
		p.openJoining(list, 1, 2, 3)
	}
	write(t, ps[:3], "with three")
	return ps, list
}

// Three members become five, five become three others, and every command stays.
func TestMembersChange(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps, list := threeAndTwo(t)
	ps[1].change(host.AddMember(4), host.AddMember(5))
	write(t, ps, "with five")
	for _, p := range ps {
		p.waitMembers([]uint64{1, 2, 3, 4, 5}, nil)
	}
	ps[3].change(host.RemoveMember(1), host.DemoteMember(2))
	ps[0].waitStopped("host 1 was removed from group 1")
	if err := ps[0].Group(theGroup).Err(); !errors.Is(err, outcome.ErrMemberRemoved) {
		t.Errorf("it has stopped with %v", err)
	}
	write(t, ps[1:], "with three others and a learner")
	for _, p := range ps[1:] {
		p.waitMembers([]uint64{3, 4, 5}, []uint64{2})
		if d := p.Group(theGroup).Explain(); d.Has(diagnosis.CodeIdentityRefused) {
			t.Errorf("host 1 was removed, and is not refused: %v", d)
		}
	}
	for _, p := range ps[1:] {
		p.close()
	}
	for _, p := range ps[1:] { // the founding list is not looked at any more
		p.openHost(list)
		p.openGroup()
	}
	write(t, ps[1:], "after a restart")
	ps[2].change(host.RemoveMember(2))
	ps[1].waitStopped("host 2 was removed")
	for _, p := range ps {
		p.close()
	}
}

// A host whose directory was lost is refused, and is a member again when its directory was replaced. It
// counts: with it and one other member the group goes on.
func TestWipedMemberIsReplaced(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 3)
	founded(t, ps...)
	list := listOf(ps...)
	ps[2].wipe()
	ps[2].openJoining(list)
	ps[0].waitRefusal(ps[2], "host 3", "another directory", "ReplaceMember")
	ps[0].change(host.ReplaceMember(3))
	write(t, ps, "with the new directory")
	ps[1].close()
	write(t, []*party{ps[0], ps[2]}, "with one old member and the new directory")
	ps[2].close()
	ps[2].openHost(list)
	ps[2].openGroup()
	write(t, []*party{ps[0], ps[2]}, "after a restart of the new directory")
	ps[0].close()
	ps[2].close()
}

// What cannot be is refused with a sentence, and changes nothing.
func TestPlansAreRefused(t *testing.T) {
	ps := parties(t, 4)
	list := listOf(ps...)
	for _, p := range ps[:3] {
		p.openHost(list)
		p.openGroup(1, 2, 3)
	}
	write(t, ps[:3], "with three")
	g := ps[0].Group(theGroup)
	for _, row := range []struct {
		changes []host.MemberChange
		says    string
	}{
		{nil, "no change is named"},
		{[]host.MemberChange{host.AddMember(4)}, "it is not known which directory host 4 has"},
		{[]host.MemberChange{host.AddMember(2)}, "member 2 is there already, as a voter"},
		{[]host.MemberChange{host.RemoveMember(9)}, "there is no member 9 to remove; the members are [1 2 3]"},
		{[]host.MemberChange{host.RemoveMember(2), host.DemoteMember(2)}, "one plan names member 2 twice"},
		{[]host.MemberChange{host.PromoteMember(2)}, "member 2 is no learner, it is a voter"},
		{[]host.MemberChange{host.RemoveMember(1), host.RemoveMember(2), host.RemoveMember(3)}, "removed all voters"},
		{[]host.MemberChange{host.ReplaceMember(4)}, "there is no member 4 to replace"},
		{[]host.MemberChange{host.ReplaceMember(3)}, "it is not known which directory host 3 has"},
	} {
		if _, err := g.Plan(row.changes...); !errors.Is(err, outcome.ErrMembersUnchanged) || !containsAll(err.Error(), []string{row.says}) {
			t.Errorf("planned with %v, want %s", err, row.says)
		}
	}
	stale, err := g.Plan(host.DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	ps[1].change(host.DemoteMember(3))
	ps[0].waitMembers([]uint64{1, 2}, []uint64{3})
	if err := g.Execute(deadline(t), stale); !errors.Is(err, outcome.ErrMembersUnchanged) || !containsAll(err.Error(), []string{"have changed since the plan was made"}) {
		t.Errorf("a plan for other members ends with %v", err)
	}
	ps[2].close()
	ps[1].change(host.RemoveMember(3))
	ps[0].waitMembers([]uint64{1, 2}, nil)
	rejectLostQuorum(t)
	for _, p := range ps[:2] {
		p.close()
	}
}

// A host that no founder knew joins the cluster, under an address that the others learn by the entry that
// adds it, and moves: it says where it listens, and the others find it.
func TestHostJoinsAndMoves(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 4)
	founded(t, ps[:3]...)
	late := ps[3]
	open := func() {
		c := late.config(map[uint64]string{1: ps[0].addr, 4: late.addr})
		c.Joins, c.Cluster = true, ps[0].Cluster()
		h, err := host.Open(context.Background(), c, host.WithLogger(slog.New(slog.NewTextHandler(late, nil))))
		if err != nil {
			t.Fatal(err)
		}
		late.Host, late.journal = h, newJournal()
		if _, err := h.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup, Members: []uint64{1}, Joins: true}, late.journal); err != nil {
			t.Fatal(err)
		}
	}
	open()
	if err := ps[0].SetPeer(4, late.addr); err != nil {
		t.Fatal(err)
	}
	plan := func() (p *host.MemberPlan, err error) { return ps[0].Group(theGroup).Plan(host.AddMember(4)) }
	ctx, again := deadline(t), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	p, err := plan()
	for ; err != nil; p, err = plan() { // until host 4 was heard
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
	if err := ps[0].Group(theGroup).Execute(ctx, p); err != nil {
		t.Fatal(err)
	}
	write(t, ps, "with host 4")
	late.close()
	late.addr = newParty(t, 4).addr
	open()
	write(t, ps, "at another address")
	late.close()
	ps[0].close() // the only member that its configuration names
	open()
	write(t, ps[1:], "without the member that it was given")
	for _, p := range ps[1:] {
		p.close()
	}
}

// With one of three members down, a change that leaves that one and another is refused.
func rejectLostQuorum(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	ps[2].close()
	ctx, again := deadline(t), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		plan, err := ps[0].Group(theGroup).Plan(host.RemoveMember(2))
		if err != nil {
			t.Fatal(err)
		}
		if plan.Stages[0].After < 0 && slices.Equal(plan.Absent, []uint64{3}) && plan.Tolerates == 0 {
			err := ps[0].Group(theGroup).Execute(ctx, plan)
			if !errors.Is(err, outcome.ErrMembersUnchanged) || !containsAll(err.Error(), []string{"would have no quorum"}) {
				t.Errorf("a plan that leaves no quorum ends with %v", err)
			}
			break
		}
		select {
		case <-again.C: // until host 3 is missed
		case <-ctx.Done():
			t.Fatalf("planned with host 3 down:\n%v", plan)
		}
	}
	ps[0].close()
	ps[1].close()
}

// A group of one member moves to another host: the leader hands over to the new voter before it is removed.
func TestLoneMemberMoves(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 2)
	list := listOf(ps...)
	ps[0].openHost(list)
	ps[0].openGroup(1)
	ps[1].openJoining(list, 1)
	write(t, ps[:1], "alone")
	g := ps[0].Group(theGroup)
	var plan *host.MemberPlan
	ps[0].waitUntil("plan with host 2, which it must have heard", func() (is bool) {
		p, err := g.Plan(host.AddMember(2), host.RemoveMember(1))
		plan = p
		return err == nil
	})
	if err := g.Execute(deadline(t), plan); !errors.Is(err, outcome.ErrMemberRemoved) {
		t.Fatalf("%v, %v", err, g.Members())
	}
	ps[1].waitMembers([]uint64{2}, nil)
	write(t, ps[1:], "on the other host")
	for _, p := range ps {
		p.close()
	}
}
