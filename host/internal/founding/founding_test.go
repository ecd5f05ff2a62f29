package founding

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// script is a group by hand: its log, what is known of its members, and what its founding has done.
type script struct {
	g       *Group
	log     []raftpb.Entry
	status  raft.Status
	now     int64
	ids     []uint64
	unmet   []uint64
	joins   bool
	refused error
	did     []string
}

func (s *script) EntryTerm(index uint64) (term uint64, ok bool) {
	if index == 0 || index > uint64(len(s.log)) {
		return 0, false
	}
	return s.log[index-1].Term, true
}

func (s *script) Core() Core                    { return s }
func (s *script) BasicStatus() raft.BasicStatus { return s.status.BasicStatus }
func (s *script) Status() raft.Status           { return s.status }
func (s *script) Now() int64                    { return s.now }
func (s *script) Joins() bool                   { return s.joins }
func (s *script) IDs() []uint64                 { return s.ids }
func (s *script) Unmet() []uint64               { return s.unmet }
func (s *script) AreReady() bool                { return len(s.unmet) == 0 }
func (s *script) AskSilent()                    { s.do("ask") }
func (s *script) Campaign()                     { s.do("campaign") }
func (s *script) Stop(err error)                { s.do("stop: " + err.Error()) }
func (s *script) Rebound()                      { s.do("rebound") }
func (s *script) Founded()                      { s.do("founded") }
func (s *script) Announce()                     { s.do("announce") }
func (s *script) do(what string)                { s.did = append(s.did, what) }

func (s *script) RejectBinding(entry.Binding) error { return s.refused }

func (s *script) Incarnation(id uint64) (i transport.Incarnation, known bool) {
	return transport.Incarnation{byte(id)}, !slices.Contains(s.unmet, id)
}

func (s *script) Propose(data []byte) (proposed bool) {
	s.append(s.status.Term, data)
	return true
}

// append appends an entry of a term to the log.
func (s *script) append(term uint64, data []byte) {
	e := raftpb.Entry{Type: raftpb.EntryHost, Term: term, Index: uint64(len(s.log)) + 1, Data: data}
	s.log = append(s.log, e)
	s.g.Append([]raftpb.Entry{e})
}

// replace makes another leader's entry take the place of the last one.
func (s *script) replace(term uint64, data []byte) {
	s.log = s.log[:len(s.log)-1]
	s.append(term, data)
}

func (s *script) FirstIndex() uint64 { return 1 }
func (s *script) LastIndex() uint64  { return uint64(len(s.log)) }

func (s *script) Entries(lo, hi, _ uint64) ([]raftpb.Entry, error) {
	return s.log[lo-1 : min(lo, hi-1)], nil // one at a time
}

// take returns what was done since the last call.
func (s *script) take() (did string) {
	did, s.did = strings.Join(s.did, ", "), nil
	return did
}

func binding(directory byte) entry.Binding {
	return entry.Binding{{ID: 1, Incarnation: transport.Incarnation{1}}, {ID: 2, Incarnation: transport.Incarnation{directory}}}
}

func newGroup() (*script, *Group) {
	s := &script{g: new(Group), ids: []uint64{1, 2}, now: 5}
	s.status.Term = 1
	s.g.Init(s, Settings{Member: Member{Group: 7, Self: 1, Promise: time.Second}, Election: 10})
	return s, s.g
}

func found(directory byte) []byte { return entry.EncodeFound(binding(directory)) }

// An entry found is in force while it is in the log. Another leader may replace it.
func TestBindingFollowsTheLog(t *testing.T) {
	s, g := newGroup()
	if g.SetBound(); g.Bound() != nil || s.take() != "" {
		t.Error("an empty log binds")
	}
	s.append(1, []byte{entry.PlanKind})
	s.append(1, found(2))
	g.Append(s.log)
	if g.SetBound(); !slices.Equal(*g.Bound(), binding(2)) || len(g.seen) != 1 || s.take() != "rebound" {
		t.Errorf("bound to %v", g.Bound())
	}
	s.replace(3, []byte{entry.PlanKind})
	if g.SetBound(); g.Bound() != nil || s.take() != "rebound" {
		t.Errorf("the entry was replaced, and binds: %v", g.Bound())
	}
	s.append(3, found(9))
	if !slices.Equal(*g.Bound(), binding(9)) || s.take() != "rebound" {
		t.Errorf("bound to %v", g.Bound())
	}
}

// Commands are taken when founded is in the log, and the founding ends when it is committed.
func TestFoundingEnds(t *testing.T) {
	for _, known := range []bool{false, true} {
		s, g := newGroup()
		s.append(1, found(2))
		if g.Commit(9); g.TakesCommands() || g.IsFounded() {
			t.Error("founded is not in the log")
		}
		s.append(1, entry.EncodeFounded())
		news := ", announce"
		if known {
			if err := g.Read(s); err != nil {
				t.Fatal(err)
			}
			news = ""
		}
		s.take()
		if g.Commit(1); !g.TakesCommands() || g.IsFounded() {
			t.Error("founded is in the log, and not committed")
		}
		g.Commit(2)
		if did := s.take(); did != "founded"+news || !g.IsFounded() || !g.TakesCommands() || !g.Reached().Founded {
			t.Errorf("founded is committed: %s", did)
		}
		if g.Commit(3); s.take() != "" || g.Step() {
			t.Error("the founding ends twice")
		}
	}
}

// The first member campaigns once when all have met. The leader binds all to their directories, and founds
// the group when all hold that.
func TestALeaderFoundsTheGroup(t *testing.T) {
	s, g := newGroup()
	s.unmet = []uint64{2}
	if g.Step(); s.take() != "ask" {
		t.Error("it does not ask the one that is missing")
	}
	s.unmet = nil
	if g.Step(); s.take() != "campaign, ask" {
		t.Error("it does not campaign")
	}
	if g.Step(); s.take() != "ask" {
		t.Error("it campaigns twice")
	}
	s.status.RaftState, s.status.Lead, s.unmet = raft.StateLeader, 1, []uint64{2}
	if g.Step(); len(s.log) != 0 {
		t.Error("it binds a member that it has not met")
	}
	s.unmet = nil
	s.status.Progress = map[uint64]tracker.Progress{1: {Match: 1}, 2: {Match: 0}}
	if g.Step(); len(s.log) != 1 || !slices.Equal(*g.Bound(), binding(2)) {
		t.Fatalf("its log is %v", s.log)
	}
	if g.Step(); len(s.log) != 1 {
		t.Error("it founds a group of which one member holds nothing")
	}
	s.status.Progress[2] = tracker.Progress{Match: 1, WithoutAuthority: true}
	if g.Step(); len(s.log) != 1 {
		t.Error("it counts a member without authority")
	}
	s.status.Progress[2] = tracker.Progress{Match: 1}
	if again := g.Step(); !again || len(s.log) != 2 || !g.TakesCommands() {
		t.Errorf("its log is %v", s.log)
	}
	if g.Step(); len(s.log) != 2 {
		t.Error("it founds the group twice")
	}
}

// A member that joins, or is refused by the entry found, founds nothing.
func TestAMemberThatFoundsNothing(t *testing.T) {
	s, g := newGroup()
	s.joins, s.status.RaftState = true, raft.StateLeader
	if g.Step(); len(s.log) != 0 || s.take() != "" {
		t.Error("a member that joins founds the group")
	}
	s, g = newGroup()
	s.refused = errors.New("no")
	if s.append(1, found(2)); s.take() != "stop: no" || g.Bound() != nil || g.Reject(s.log) == nil {
		t.Error("it goes on under a binding that refuses it")
	}
}

// A log with a command before the founding is of an older program. What is behind the first command is not
// read.
func TestRead(t *testing.T) {
	s, g := newGroup()
	s.log = []raftpb.Entry{{Index: 1, Term: 1}, {Index: 2, Term: 1, Data: []byte("x")}}
	if err := g.Read(s); err == nil || !strings.Contains(err.Error(), "command at index 2") {
		t.Errorf("it is read: %v", err)
	}
	s, g = newGroup()
	s.append(1, found(2))
	s.append(1, entry.EncodeFounded())
	s.log = append(s.log, raftpb.Entry{Index: 3, Term: 1, Data: []byte("x")}, raftpb.Entry{Type: raftpb.EntryHost, Index: 4, Term: 1, Data: []byte{0}})
	opened := new(Group)
	opened.Init(s, g.settings)
	if err := opened.Read(s); err != nil || !opened.TakesCommands() || !opened.knew {
		t.Errorf("it is read: %v", err)
	}
}

// A new leader lets commands wait for the founding for an election timeout.
func TestCommandsWaitForTheFounding(t *testing.T) {
	s, g := newGroup()
	if g.Holds() || g.Due() != turn.Never || g.IsUrgent() {
		t.Error("a follower holds commands")
	}
	s.unmet, s.status.RaftState = []uint64{2}, raft.StateLeader
	g.Step()
	s.now = 14
	if g.Step(); !g.Holds() || g.Due() != 15 || !g.IsUrgent() {
		t.Error("commands are held until tick 15")
	}
	if s.now = 15; g.Holds() || g.Due() != turn.Never {
		t.Error("commands are held for longer")
	}
	s.now = 6
	if s.append(1, entry.EncodeFounded()); g.Holds() {
		t.Error("founded is in the log, and commands are held")
	}
	if g.Commit(1); g.IsUrgent() || g.Due() != turn.Never {
		t.Error("the founding has ended")
	}
}

// What is published says who is missing, and is replaced when it changes only.
func TestPublish(t *testing.T) {
	s, g := newGroup()
	s.unmet = []uint64{2}
	if g.Publish(); g.Reached().Found || !slices.Equal(g.Reached().Unmet, s.unmet) {
		t.Errorf("%+v", g.Reached())
	}
	s.unmet, s.status.Progress = nil, map[uint64]tracker.Progress{1: {Match: 1}}
	s.append(1, found(2))
	g.lead(true, 1)
	if g.Publish(); !g.Reached().Found || g.Reached().Founded || len(g.Reached().Unmet) > 0 || !slices.Equal(g.Reached().Missing, []uint64{2}) {
		t.Errorf("%+v", g.Reached())
	}
	was := g.reached.Load()
	if g.Publish(); g.reached.Load() != was {
		t.Error("nothing has changed, and it is published again")
	}
	g.Restore(binding(2), time.Second)
	if g.Publish(); !g.Reached().Founded || len(g.Reached().Missing) > 0 || g.Promise() != time.Second || g.Bound() == nil {
		t.Errorf("%+v", g.Reached())
	}
}

// A group is counted once.
func TestCount(t *testing.T) {
	_, g := newGroup()
	if g.Count(false) || !g.Count(true) || g.Count(true) || !g.Count(false) {
		t.Error("counted")
	}
}

// A member with other leases, or shorter promises, would make the leases of all unsound.
func TestRejectPromises(t *testing.T) {
	plain, leased := entry.EncodeFound(binding(2)), entry.WithPromise(entry.EncodeFound(binding(2)), time.Second)
	for _, row := range []struct {
		leases  bool
		promise time.Duration
		found   []byte
		says    string
	}{
		{false, time.Second, plain, ""}, {true, time.Second, leased, ""}, {true, 2 * time.Second, leased, ""},
		{true, time.Second, plain, "was founded with Leases false"}, {false, time.Second, leased, "was founded with Leases true"},
		{true, time.Second / 2, leased, "set it to 1s or more"},
	} {
		err := Member{Group: 1, Self: 2, Leases: row.leases, Promise: row.promise}.RejectPromises(row.found)
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
