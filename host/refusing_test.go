package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A member that is refused is told so at once, and then at most once in a heartbeat interval for as long as
// it sends.
func TestARefusedMemberIsToldAgain(t *testing.T) {
	l, c := openAlone(t, 3)
	l.meet()
	bound := l.bindingOf(3)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, bound)}})
	c.bodies = nil
	says := refusal{theGroup, bound[2].incarnation}.encode()
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
	g.members.joins = true
	if g.mayVote() {
		t.Error("no roster is known, and the host votes")
	}
	r := rosterOf(9, 1, 2, 3)
	g.members.roster.Store(r)
	if g.mayVote() {
		t.Error("another directory is the member, and the host votes")
	}
	r.Members[0].Incarnation = l.incarnation()
	if !g.mayVote() {
		t.Error("the host does not vote although it is the member")
	}
	g.members.roster.Store(rosterOf(10, 2, 3))
	if g.mayVote() {
		t.Error("the host is no member, and votes")
	}
}

// A roster that other hosts report stays a hint until this member's own roster is as late.
func TestAHintStaysUntilTheRosterIsAsLate(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	hint := rosterOf(30, 1, 2, 3)
	l.group.members.hint.Store(hint)
	for _, version := range []uint64{20, 30} {
		r := *l.group.roster()
		r.Version, r.Changed = version, version
		l.group.setRoster(&r)
		if have := l.group.members.hint.Load(); (have == hint) != (version < hint.Version) {
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
	b := binding{{2, incarnationOf(2)}, {5, incarnationOf(5)}}
	g.bound.Store(&b)
	g.adoptFounders()
	if m := g.memberIDs(); !slices.Equal(m, []uint64{2, 5}) {
		t.Errorf("the members are %v, want 2 and 5", m)
	}
	if v := g.votersInForce(); !slices.Equal(v, []uint64{2, 5}) {
		t.Errorf("the voters are %v, want 2 and 5", v)
	}
}
