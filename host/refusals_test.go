package host

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A member that is refused is told so at once, and then at most once in a heartbeat interval for as long as
// it sends.
func TestARefusedMemberIsToldAgain(t *testing.T) {
	l, c := openAlone(t, 3)
	l.meet()
	bound := l.bindingOf(3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, bound)}})
	c.bodies = nil
	says := members.Refusal{Group: theGroup, Bound: bound[2].Incarnation}.Encode()
	var told []int
	for tick := range 4 * ticksPerHeartbeat {
		l.from(3, raftpb.Message{Type: raftpb.MsgVote, Term: 9})
		if len(c.told(says)) > 0 {
			told = append(told, tick)
		}
		l.manual.tick()
	}
	if len(told) < 3 || told[0] != 0 {
		t.Fatalf("it was told in ticks %v", told)
	}
	for i, tick := range told[1:] {
		if tick-told[i] < ticksPerHeartbeat {
			t.Errorf("it was told in ticks %v, and a heartbeat interval has %d", told, ticksPerHeartbeat)
		}
	}
}

// The promise of a host that joins counts when the roster has its directory, and not when it has another one
// of the same id: that was lost.
func TestAMemberThatJoinsVotesForItsOwnDirectoryOnly(t *testing.T) {
	l := openTestHost(t, 3)
	g := l.group
	g.members.Joins = true
	if g.members.MayVote() {
		t.Error("no roster is known, and the host votes")
	}
	r := rosterOf(9, 1, 2, 3)
	g.members.Rosters.Set(r, 0)
	if g.members.MayVote() {
		t.Error("another directory is the member, and the host votes")
	}
	r.Members[0].Incarnation = l.incarnation()
	if !g.members.MayVote() {
		t.Error("the host does not vote although it is the member")
	}
	g.members.Rosters.Set(rosterOf(10, 2, 3), 0)
	if g.members.MayVote() {
		t.Error("the host is no member, and votes")
	}
}

// A roster that other hosts report stays a hint until this member's own roster is as late.
func TestAHintStaysUntilTheRosterIsAsLate(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	hint := rosterOf(30, 1, 2, 3)
	l.group.members.Rosters.AcceptHint(hint)
	for _, version := range []uint64{20, 30} {
		r := *l.group.roster()
		r.Version, r.Changed = version, version
		l.group.members.commits.SetRoster(&r)
		if have := l.group.members.Rosters.Hint(); (have == hint) != (version < hint.Version) {
			t.Errorf("version %d is in force, and the hint is %v", version, have)
		}
	}
}

// A host that joins takes the founders of its log for members, and for the voters of the core, until it has a
// roster.
func TestAHostThatJoinsKnowsTheFounders(t *testing.T) {
	l := openTestHost(t, 3)
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Members: []uint64{3}, Joins: true}, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	b := entry.Binding{{ID: 2, Incarnation: incarnationOf(2)}, {ID: 5, Incarnation: incarnationOf(5)}}
	g.members.founding.Restore(b, 0)
	g.adoptFounders()
	if m := g.memberIDs(); !slices.Equal(m, []uint64{2, 5}) {
		t.Errorf("the members are %v, want 2 and 5", m)
	}
	if v := g.core.node.Status().Config.ConfState().Voters; !slices.Equal(v, []uint64{2, 5}) {
		t.Errorf("the voters are %v, want 2 and 5", v)
	}
}

// A host stops when a member tells it that it is none of the members, and not if its own log says that the
// group is founded and has it.
func TestStrangerStops(t *testing.T) {
	l, _ := openAlone(t, 3)
	l.control(4, members.EncodeStranger(theGroup))
	l.control(1, members.EncodeStranger(theGroup))
	if err := l.group.Err(); err != nil {
		t.Fatalf("told by a host that is no member: %v", err)
	}
	l.control(2, members.EncodeStranger(theGroup))
	if err := l.group.Err(); err == nil || !containsEach(err.Error(), []string{"host 1 is none of the members of group 1", "host 2 says so", "AddMember"}) {
		t.Errorf("it has stopped with %v", err)
	}

	l, _ = openAlone(t, 3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0)), foundedAt(3, 1)}})
	l.control(2, members.EncodeStranger(theGroup))
	if err := l.group.Err(); err != nil {
		t.Errorf("its own log says that it is a member: %v", err)
	}
}

// A host that was removed comes with another directory: it is told that it is none of the members.
func TestRemovedHostWithANewDirectoryIsAStranger(t *testing.T) {
	c := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHost(t, 3, WithTransport(c))
	l.out = c.recordingTransport
	l.lead()
	gone, _ := l.group.roster().Member(3)
	left := rosterOf(20, 1, 2)
	left.Members[0].Incarnation = l.incarnation()
	gone.Incarnation = transport.Incarnation{77}
	left.Removed = []membership.Member{gone}
	l.group.members.commits.SetRoster(left)
	c.bodies = nil
	l.from(3, raftpb.Message{Type: raftpb.MsgVote, Term: 9})
	if to := c.told(members.EncodeStranger(theGroup)); !slices.Equal(to, []uint64{3}) {
		t.Errorf("hosts %v were told", to)
	}
}

// A founder that was down when its directory was removed may not know that the group is founded: its log ends
// with the entry found. It stops nevertheless when two others say so, but not for another directory, not
// before it is bound, and not while it hears a leader.
func TestRemovalOfAFounderThatKnowsOfNoRoster(t *testing.T) {
	l, _ := openAlone(t, 3)
	tell := func(i transport.Incarnation) {
		for _, id := range []uint64{2, 3} {
			l.control(id, members.Removed{Group: theGroup, Version: 9, Incarnation: i}.Encode())
		}
	}
	wait := func() {
		for range 2*l.config.electionTicks() + 2 {
			l.manual.tick()
		}
	}
	wait()
	tell(l.incarnation())
	if err := l.group.Err(); err != nil {
		t.Fatalf("it is not bound yet, and has stopped with %v", err)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0))}})
	tell(l.incarnation())
	if err := l.group.Err(); err != nil {
		t.Fatalf("it hears a leader, and has stopped with %v", err)
	}
	wait()
	tell(transport.Incarnation{9})
	if err := l.group.Err(); err != nil {
		t.Fatalf("another directory was removed, and it has stopped with %v", err)
	}
	tell(l.incarnation())
	if err := l.group.Err(); !errors.Is(err, outcome.ErrMemberRemoved) {
		t.Errorf("its directory was removed, and it has stopped with %v", err)
	}
}

// Only a member knows to which directory a group is bound.
func TestRefusalOfANonMember(t *testing.T) {
	l := openTestHost(t, 3)
	wrong := members.Refusal{Group: theGroup, Bound: transport.Incarnation{9}}.Encode()
	for _, id := range []uint64{1, 4} {
		l.control(id, wrong)
		if err := l.group.Err(); err != nil {
			t.Fatalf("host %d has stopped a group of hosts 1, 2 and 3: %v", id, err)
		}
	}
	l.control(2, wrong)
	if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), "host 2 says so") {
		t.Errorf("a member says it, and the group has stopped with %v", err)
	}
}

// An append of an earlier term is refused by the core, so a binding in it stops nothing: also if the later
// term comes in the same turn.
func TestBindingOfAnEarlierTermStopsNothing(t *testing.T) {
	stale := func(l *testHost) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(1))}}
	}
	for name, deliver := range map[string]func(l *testHost){
		"later turn": func(l *testHost) {
			l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
			l.deliver(stale(l))
		},
		"same turn": func(l *testHost) { l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3}, stale(l)) },
	} {
		l := openTestHost(t, 3)
		deliver(l)
		if err := l.group.Err(); err != nil {
			t.Errorf("%s: the group has stopped: %v", name, err)
		}
		if s := l.group.Status(); s.Term != 3 || s.LastIndex != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if answers := l.out.take(raftpb.MsgAppResp); len(answers) != 1 || answers[0].Term != 3 {
			t.Errorf("%s: the answers are %v", name, answers)
		}
	}
}

// A group that is not founded stops when a majority of its members refuse this host's directory, and not
// before. A host that delivers something does not refuse any more. The log's binding is above refusals.
func TestGroupStopsWhenAMajorityRefuse(t *testing.T) {
	refuse := func(l *testHost, ids ...uint64) {
		for _, id := range ids {
			(*inbound)(l.Host).RefusedBy(id, "the sentence")
		}
	}
	l, _ := openAlone(t, 5)
	refuse(l, 2, 2, 3, 9, 1)
	(*inbound)(l.Host).Receive(3, nil)
	refuse(l, 4)
	if err := l.group.Err(); err != nil {
		t.Fatalf("two of five refuse: %v", err)
	}
	refuse(l, 5)
	if err := l.group.Err(); err == nil || !containsEach(err.Error(), []string{"hosts [2 4 5], a majority of its members", "host 5 says: the sentence"}) {
		t.Errorf("three of five refuse, and the group has stopped with %v", err)
	}
	if g := l.open(7, &commands{}); g.Err() == nil {
		t.Error("a group that is opened later goes on")
	}

	l, _ = openAlone(t, 3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0))}})
	refuse(l, 2, 3)
	if err := l.group.Err(); err != nil {
		t.Errorf("its log binds it to this directory: %v", err)
	}
}
