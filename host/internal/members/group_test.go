package members

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// script is a group and its host by hand: member 1 of three.
type script struct {
	Group
	bound    *entry.Binding
	founded  bool
	own      transport.Incarnation
	came     map[uint64]transport.Incarnation
	met      []uint64
	leader   uint64
	now      int64
	pulsesAt int64
	sent     map[uint64][]byte
	told     []event.MemberRefused
	stopped  error
}

func newScript() *script {
	s := &script{own: directory(1), came: map[uint64]transport.Incarnation{}, sent: map[uint64][]byte{}}
	s.Init(s, Settings{Group: 1, Self: 1, Dir: "here", Heartbeat: 4, Election: 40})
	s.Rosters.SetIDs([]uint64{1, 2, 3})
	return s
}

func (s *script) Bound() *entry.Binding            { return s.bound }
func (s *script) IsFounded() bool                  { return s.founded }
func (s *script) IsSeenFounded() bool              { return s.founded }
func (s *script) Directory() transport.Incarnation { return s.own }
func (s *script) HasMet(id uint64) bool            { return slices.Contains(s.met, id) }
func (s *script) Others() []uint64                 { return []uint64{2, 3} }
func (s *script) Now() int64                       { return s.now }
func (s *script) Leader() uint64                   { return s.leader }
func (s *script) PulsesAt() int64                  { return s.pulsesAt }
func (s *script) Send(to uint64, body []byte)      { s.sent[to] = body }
func (s *script) Refused(e event.MemberRefused)    { s.told = append(s.told, e) }
func (s *script) Stop(err error)                   { s.stopped = err }

func (s *script) Came(id uint64) (i transport.Incarnation, known bool) {
	i, known = s.came[id]
	return i, known
}

// bind makes the entry found bind all three.
func (s *script) bind() {
	s.bound = &entry.Binding{{ID: 1, Incarnation: directory(1)}, {ID: 2, Incarnation: directory(2)}, {ID: 3, Incarnation: directory(3)}}
}

// counted returns what counts of messages of each kind from member 3, at a tick.
func (s *script) counted(tick int64, lacks bool) (kinds []raftpb.MessageType) {
	var all []raftpb.Message
	for _, t := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow} {
		all = append(all, raftpb.Message{Type: t, From: 3})
	}
	for _, m := range s.Counted(all, tick, lacks) {
		kinds = append(kinds, m.Type)
	}
	return kinds
}

// Before the members have met no vote counts. A member that lacks something does not campaign. A hinted
// member counts, and its votes do not. Nothing of an excluded one counts.
func TestCounted(t *testing.T) {
	s := newScript()
	all := s.counted(1, false)
	if want := []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgVoteResp, raftpb.MsgPreVote}; !slices.Equal(all, want) {
		t.Errorf("of strangers %v counts, want %v", all, want)
	}
	s.met = []uint64{2, 3}
	if n := len(s.counted(1, false)); n != 6 {
		t.Errorf("all have met, and %d of 6 kinds count", n)
	}
	if kinds := s.counted(1, true); len(kinds) != 5 || slices.Contains(kinds, raftpb.MsgTimeoutNow) {
		t.Errorf("the member lacks something, and %v counts", kinds)
	}
	s.bind()
	s.came[3] = directory(9)
	hint := rosterOf(9, 1, 2, 3)
	hint.Members[2].Incarnation = directory(9)
	if !s.Rosters.AcceptHint(hint) {
		t.Fatal("no hint")
	}
	s.SetExcluded()
	if kinds := s.counted(1, false); s.Excludes(3) || len(kinds) != 4 || slices.Contains(kinds, raftpb.MsgVoteResp) || slices.Contains(kinds, raftpb.MsgPreVoteResp) {
		t.Errorf("the member comes with a hinted directory, and %v counts", kinds)
	}
	s.came[3] = directory(8)
	s.now = 77
	s.SetExcluded()
	if ids, since := s.Excluded(); !slices.Equal(ids, []uint64{3}) || since != 77 {
		t.Errorf("%v are excluded since %d", ids, since)
	}
	if kinds := s.counted(1, false); len(kinds) != 0 {
		t.Errorf("the member is excluded, and %v counts", kinds)
	}
	s.came[3] = directory(3)
	if s.SetExcluded(); s.Excludes(3) {
		t.Error("the member has its directory back, and is excluded")
	}
}

// A member is told that it is refused once in a heartbeat interval, and the listeners of this host once.
func TestRefuse(t *testing.T) {
	for _, test := range []struct {
		what string
		roll func(s *script)
		is   event.MemberRefused
		body []byte
	}{
		{"another directory", func(s *script) {}, event.MemberRefused{Group: 1, Member: 3, Bound: directory(3), Came: directory(9)}, Refusal{1, directory(3)}.Encode()},
		{"a stranger", func(s *script) { s.bound = &entry.Binding{{ID: 1}} }, event.MemberRefused{Group: 1, Member: 3, Came: directory(9), Stranger: true}, EncodeStranger(1)},
	} {
		s := newScript()
		s.bind()
		s.founded, s.came[3] = true, directory(9)
		s.SetExcluded()
		test.roll(s)
		var told []int64
		for tick := range int64(12) {
			clear(s.sent)
			if s.counted(tick, false); s.sent[3] != nil {
				told = append(told, tick)
				if string(s.sent[3]) != string(test.body) {
					t.Errorf("%s: it was told %x", test.what, s.sent[3])
				}
			}
		}
		if want := []int64{0, 5, 9}; !slices.Equal(told, want) {
			t.Errorf("%s: told in ticks %v, want %v", test.what, told, want)
		}
		if len(s.told) != 1 || s.told[0] != test.is {
			t.Errorf("%s: the listeners heard %+v", test.what, s.told)
		}
	}
}

// Only a member can say that this one is none, or that its directory is another, and only if this member's
// own log does not know better.
func TestNoticesStopAMember(t *testing.T) {
	for _, test := range []struct {
		what string
		is   func(s *script)
		says string // why it stops; "": it does not
	}{
		{"a stranger by a host that is none", func(s *script) { s.ReceiveStranger(9) }, ""},
		{"a stranger by a member", func(s *script) { s.ReceiveStranger(2) }, "host 1 is none of the members of group 1"},
		{"a stranger that is founded", func(s *script) { s.bind(); s.founded = true; s.ReceiveStranger(2) }, ""},
		{"a stranger that joins", func(s *script) { s.Joins = true; s.ReceiveStranger(2) }, ""},
		{"refused with its directory", func(s *script) { s.ReceiveRefusal(2, directory(1)) }, ""},
		{"refused with another", func(s *script) { s.ReceiveRefusal(2, directory(8)) }, "is bound to directory"},
		{"refused, and bound", func(s *script) { s.bind(); s.ReceiveRefusal(2, directory(8)) }, ""},
		{"another directory was removed", func(s *script) { s.bind(); s.ReceiveRemoval(2, Removed{1, 9, directory(8)}) }, ""},
		{"a new member was removed, says one", func(s *script) { s.bind(); s.now = 500; s.ReceiveRemoval(2, Removed{1, 9, directory(1)}) }, ""},
		{"two say so", func(s *script) {
			s.bind()
			s.now = 500
			s.ReceiveRemoval(2, Removed{1, 9, directory(1)})
			s.ReceiveRemoval(3, Removed{1, 9, directory(1)})
		}, "removed from group 1 by entry 9"},
		{"two say so, and the leader is heard", func(s *script) {
			s.bind()
			s.now, s.pulsesAt = 500, 490
			s.ReceiveRemoval(2, Removed{1, 9, directory(1)})
			s.ReceiveRemoval(3, Removed{1, 9, directory(1)})
		}, ""},
	} {
		s := newScript()
		test.is(s)
		if have := fmt.Sprint(s.stopped); (s.stopped == nil) != (test.says == "") || !strings.Contains(have, test.says) {
			t.Errorf("%s: it has stopped with %v, want %q", test.what, s.stopped, test.says)
		}
	}
	s := newScript()
	s.bind()
	s.now = 500
	s.ReceiveRemoval(2, Removed{1, 9, directory(1)})
	s.ReceiveRemoval(3, Removed{1, 9, directory(1)})
	if !errors.Is(s.stopped, outcome.ErrMemberRemoved) {
		t.Errorf("the error is %v", s.stopped)
	}
}

// A binding with other members, or with another directory of this one, is rejected.
func TestRejectBinding(t *testing.T) {
	s := newScript()
	s.bind()
	if err := s.RejectBinding(*s.bound); err != nil {
		t.Error(err)
	}
	other := slices.Clone(*s.bound)
	other[0].Incarnation = directory(9)
	if err := s.RejectBinding(other); !errors.As(err, new(*RefusedDirectoryError)) || !strings.Contains(err.Error(), "here") {
		t.Errorf("another directory: %v", err)
	}
	if err := s.RejectBinding(other[:2]); err == nil || !strings.Contains(err.Error(), "was founded with members [1 2]") {
		t.Errorf("other members: %v", err)
	}
	s.Joins = true
	if err := s.RejectBinding(other[:2]); err != nil {
		t.Errorf("it joins: %v", err)
	}
}

// A member that hears no leader asks for a later roster, takes it as a hint, and tells a removed host so.
func TestRosterQuery(t *testing.T) {
	s := newScript()
	s.Rosters.Set(rosterOf(9, 1, 2, 3), 0)
	later := rosterOf(11, 1, 2, 3)
	s.now, s.pulsesAt = 100, 90
	if s.AskForRosters(); len(s.sent) != 0 {
		t.Error("it hears its leader, and asks")
	}
	if s.ReceiveRoster(later); s.Rosters.Hint() != nil {
		t.Error("it hears its leader, and takes a hint")
	}
	s.now = 171
	if s.AskForRosters(); string(s.sent[2]) != string(RosterRecord{Group: 1, Version: 9}.Encode()) || s.sent[3] == nil {
		t.Errorf("it hears no leader, and says %x", s.sent)
	}
	if s.ReceiveRoster(later); s.Rosters.Hint() != later {
		t.Error("it hears no leader, and takes no hint")
	}
	s.leader = 1
	if s.IsLeaderSilent() {
		t.Error("it leads, and does not hear its leader")
	}
	clear(s.sent)
	if s.AnswerRoster(2, 9); s.sent[2] != nil {
		t.Error("it answers one that knows as much")
	}
	if s.AnswerRoster(2, 8); string(s.sent[2]) != string(RosterRecord{Group: 1, Roster: s.Rosters.Now()}.Encode()) {
		t.Errorf("it answers %x", s.sent[2])
	}
}

// Half of the members are no quorum, whether a roster is there or not.
func TestIsQuorum(t *testing.T) {
	s := newScript()
	s.Rosters.SetIDs([]uint64{1, 2, 3, 4})
	two, three := func(id uint64) bool { return id <= 2 }, func(id uint64) bool { return id <= 3 }
	if s.IsQuorum(two) || !s.IsQuorum(three) {
		t.Error("without a roster")
	}
	s.Rosters.Set(rosterOf(9, 1, 2, 3, 4), 0)
	if s.IsQuorum(two) || !s.IsQuorum(three) {
		t.Error("with a roster")
	}
}
