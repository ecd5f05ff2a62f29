package members

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// commitScript is a group and its host by hand. said has what they were told, in order.
type commitScript struct {
	Commits
	members Group
	core    raftpb.ConfState // after a change
	skip    error
	said    []string
}

func newCommitScript() *commitScript {
	s := &commitScript{}
	s.members.Init(nil, Settings{Group: 7, Self: 1})
	s.Init(s, &s.members)
	return s
}

func (s *commitScript) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *commitScript) LearnMembers(r *membership.Roster) { s.say("learn %v", r.IDs()) }
func (s *commitScript) Applied() uint64                   { return 0 }
func (s *commitScript) SkipCommand(e *raftpb.Entry) error {
	s.say("skip by %d", e.Index)
	return s.skip
}
func (s *commitScript) Ignored(e *raftpb.Entry, why error)          { s.say("ignore %d: %v", e.Index, why) }
func (s *commitScript) Changed(was, now *membership.Roster)         { s.say("version %d", now.Version) }
func (s *commitScript) Differs(index uint64, _, _ raftpb.ConfState) { s.say("stop at %d", index) }
func (s *commitScript) ApplyConfChange(cc raftpb.ConfChangeV2) *raftpb.ConfState {
	s.say("core")
	return &s.core
}

// after commits entries, and compares what was said.
func (s *commitScript) after(t *testing.T, entries []raftpb.Entry, want ...string) {
	t.Helper()
	s.said = nil
	s.members.Noted.Append(entries)
	s.Commit(entries[len(entries)-1].Index)
	if !slices.Equal(s.said, want) {
		t.Errorf("said %q, want %q", s.said, want)
	}
	if s.members.Noted.Any() {
		t.Errorf("%d entries are still noted", len(s.members.Noted.All()))
	}
}

// removal begins a plan, and is its entry, that removes a member from the present roster.
func (s *commitScript) removal(index, id uint64) raftpb.Entry {
	now, steps := *s.members.Rosters.Now(), []membership.Step{{Op: membership.Remove, Member: membership.Member{ID: id}}}
	now.Plan = &membership.Plan{Stages: [][]membership.Step{steps}}
	s.members.Rosters.Set(&now, 0)
	cc := membership.Change{Base: now.Changed, Steps: steps}.Entry()
	return raftpb.Entry{Type: raftpb.EntryConfChangeV2, Index: index, Term: 1, Data: cc.Append(nil)}
}

// A roster is learned before the core has it, and before any part hears of it. Before the group is founded,
// entries change nothing. What a snapshot has is not done again.
func TestCommitsInOrder(t *testing.T) {
	s := newCommitScript()
	s.after(t, []raftpb.Entry{{Type: raftpb.EntryHost, Index: 1, Term: 1, Data: []byte{entry.EndKind}}}, "ignore 1: the group is not founded")
	s.said = nil
	s.Found(entry.Binding{{ID: 1, Incarnation: directory(1)}, {ID: 2, Incarnation: directory(2)}, {ID: 3, Incarnation: directory(3)}})
	s.Found(entry.Binding{{ID: 9}}) // it is founded once
	if want := []string{"learn [1 2 3]", "version 0"}; !slices.Equal(s.said, want) {
		t.Errorf("at the founding: %q, want %q", s.said, want)
	}
	r := *s.members.Rosters.Now()
	r.Version, r.Changed = 10, 10
	s.SetRoster(&r)
	s.after(t, []raftpb.Entry{s.removal(9, 3)}) // the snapshot has it
	s.core = raftpb.ConfState{Voters: []uint64{1, 2}}
	s.after(t, []raftpb.Entry{s.removal(11, 3)}, "learn [1 2]", "core", "learn [1 2]", "version 11")
	if s.Commit(99) {
		t.Error("there was nothing to put in force")
	}
}

// An entry that ends a plan and does not name it changes nothing, nor does a skip of nothing.
func TestCommitsIgnoreWhatIsMalformed(t *testing.T) {
	s := newCommitScript()
	s.SetRoster(rosterOf(5, 1, 2, 3))
	for i, data := range [][]byte{{entry.EndKind}, {entry.CancelKind, 1, 2}} {
		s.said = nil
		s.members.Noted.Append([]raftpb.Entry{{Type: raftpb.EntryHost, Index: 6, Term: uint64(i + 1), Data: data}})
		if s.Commit(6); len(s.said) != 1 || s.members.Rosters.Now().Version != 5 {
			t.Errorf("%x: %q", data, s.said)
		}
	}
	s.skip = errors.New("no such command")
	s.after(t, []raftpb.Entry{{Type: raftpb.EntryHost, Index: 7, Term: 1, Data: []byte{entry.SkipKind}}}, "skip by 7", "ignore 7: no such command")
}

// If the core has another configuration than the roster, the group stops.
func TestCommitsStopWhenTheCoreDiffers(t *testing.T) {
	s := newCommitScript()
	s.SetRoster(rosterOf(5, 1, 2, 3))
	s.core = raftpb.ConfState{Voters: []uint64{1}}
	s.members.Noted.Append([]raftpb.Entry{s.removal(6, 3)})
	s.said = nil
	s.Commit(6)
	if !slices.Contains(s.said, "stop at 6") {
		t.Errorf("said %q", s.said)
	}
}
