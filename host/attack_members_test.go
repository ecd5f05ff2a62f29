package host

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
)

// rosterOf returns a roster with a version, in which each member has the directory of incarnationOf.
func rosterOf(version uint64, ids ...uint64) *membership.Roster {
	var members []membership.Member
	for _, id := range ids {
		members = append(members, membership.Member{ID: id, Incarnation: incarnationOf(id)})
	}
	r := membership.Founded(members)
	r.Version = version
	return r
}

// A member stops because it was removed. One that was away, and removed as well, asks it for the roster: it
// still tells what it knows. Of the group one member is left, which alone is not believed for long.
func TestRemovedMemberTellsOthersOfTheirRemoval(t *testing.T) {
	c := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHost(t, 3, WithTransport(c))
	l.out = c.recordingTransport
	l.lead()
	now := l.group.roster()
	gone, _ := now.Member(3)
	left := rosterOf(20, 2)
	left.Removed = []membership.Member{gone}
	l.group.members.commits.SetRoster(left)
	if err := l.group.Err(); !errors.Is(err, outcome.ErrMemberRemoved) {
		t.Fatalf("a member that was removed: %v", err)
	}
	c.bodies = nil
	l.control(3, binary.AppendUvarint(binary.AppendUvarint([]byte{control.RosterQuestion}, theGroup), now.Version))
	if told := c.told(members.Removed{Group: theGroup, Version: 20, Incarnation: gone.Incarnation}.Encode()); !slices.Equal(told, []uint64{3}) {
		t.Errorf("hosts %v were told that they were removed, want 3", told)
	}
}

// A plan has ended, and another one after it, before its caller looks. The caller learns the
// outcome of its plan.
func TestOutcomeOfAnEarlierPlan(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	p, err := l.group.Plan(DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	e := l.group.StartPlan(p)
	for i, id := range []membership.PlanID{p.plan.ID, {2}} {
		r := *l.group.roster()
		r.Version, r.Changed = uint64(20+i), uint64(20+i)
		r.Ended = append(r.Ended, membership.Ended{ID: id, Index: uint64(20 + i), Done: 1})
		l.group.members.commits.SetRoster(&r)
	}
	if done, err := e.Poll(); !done || err != nil {
		t.Errorf("done: %v, error %v", done, err)
	}
}

// A leader does not refuse a request for an earlier roster: it may be a late copy of one that began a plan
// which has ended. Only the member that asked can see that.
func TestLateCopyOfARequestIsNotRefused(t *testing.T) {
	c := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHost(t, 3, WithTransport(c))
	l.out = c.recordingTransport
	l.lead()
	p, err := l.group.Plan(DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	r := *l.group.roster()
	r.Version, r.Changed = 20, 20
	l.group.members.commits.SetRoster(&r)
	c.bodies = nil
	l.control(2, plans.RequestOf(0, append([]byte{entry.PlanKind}, p.plan.Encode()...)).Encode(theGroup))
	for _, b := range c.bodies {
		if b.body[0] == control.PlanAnswer {
			t.Errorf("host %d is told %q", b.to, b.body)
		}
	}
}

// A member asks for a plan with a log time, or with a token. The leader does not begin it: with the highest
// time the roster would have no valid token ever again, and with a token a member would use it up unproved.
func TestPlanWithATimeIsRefused(t *testing.T) {
	added := membership.Step{Op: membership.Add, Member: membership.Member{ID: 9, Incarnation: incarnationOf(9)}}
	byToken := added
	byToken.Token = membership.TokenHash{1}
	for what, p := range map[string]membership.Plan{
		"time":  {Time: 1<<63 - 1, Stages: [][]membership.Step{{added}}},
		"token": {Stages: [][]membership.Step{{byToken}}},
	} {
		c := &controlTransport{recordingTransport: &recordingTransport{}}
		l := openTestHost(t, 3, WithTransport(c))
		l.out = c.recordingTransport
		l.lead()
		p.ID, p.Base = membership.PlanID{7}, l.group.roster().Changed
		at := l.group.Status().LastIndex
		l.control(2, plans.RequestOf(0, append([]byte{entry.PlanKind}, p.Encode()...)).Encode(theGroup))
		if have := l.group.Status().LastIndex; have != at {
			t.Errorf("%s: the leader has proposed the plan, as entry %d", what, have)
		}
		if !slices.ContainsFunc(c.bodies, func(b controlBody) bool { return b.to == 2 && b.body[0] == control.PlanAnswer }) {
			t.Errorf("%s: member 2 is not told that its plan is refused", what)
		}
	}
}

// No peer can ask the leader to make one member the only one, as a rescue does.
func TestRescueIsNoRequest(t *testing.T) {
	data := entry.Rescued{Cluster: 9, Former: 5, ID: 2, Incarnation: incarnationOf(7)}.Encode()
	for _, data := range [][]byte{data, data[:1+len(membership.PlanID{})]} {
		if _, _, err := plans.DecodeRequest(plans.Request{ID: membership.PlanID(data[1:17]), Data: data}.Encode(theGroup)); err == nil {
			t.Errorf("a peer may ask for an entry rescued of %d bytes", len(data))
		}
	}
}

// A promise is at most as long as the longest election timeout, and a tick.
func TestLongestPromise(t *testing.T) {
	if longest := maxElection + maxElection/ticksPerHeartbeat; entry.MaxPromise != longest {
		t.Errorf("entries of a founding have promises up to %v, and configurations up to %v", entry.MaxPromise, longest)
	}
}
