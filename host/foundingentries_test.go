package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// openUnmet opens host 1 of three, with a group, and with no other host met.
func openUnmet(t *testing.T) *testHost {
	t.Helper()
	l := openTestHost(t, 3)
	if err := l.group.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.manual.runIdle()
	for _, p := range l.network.handshakes.All() {
		p.Met.Store(false)
	}
	l.group = l.open(theGroup, l.machine)
	l.out.take(0)
	return l
}

// from passes a message of a host.
func (l *testHost) from(id uint64, m raftpb.Message) {
	m.From, m.To = id, 1
	(*inbound)(l.Host).Receive(id, envelopes(theGroup, m))
	l.manual.runIdle()
}

// Before it has met every member, a member gives no vote and does not become a candidate; when it has, it
// does.
func TestNoVoteBeforeAllHaveMet(t *testing.T) {
	vote := raftpb.Message{Type: raftpb.MsgVote, Term: 4}
	l := openUnmet(t)
	l.from(2, vote)
	if s := l.group.Status(); s.Term != 0 || len(l.out.take(raftpb.MsgVoteResp)) > 0 {
		t.Fatalf("host 3 was not met, and this host votes: %+v", s)
	}
	l.group.Campaign()
	l.manual.runIdle()
	l.from(2, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1})
	if s := l.group.Status(); s.Term != 0 || s.Role == event.RoleCandidate {
		t.Fatalf("host 3 was not met, and this host is a candidate: %+v", s)
	}
	if f := l.group.Founding(); !slices.Equal(f.Unmet, []uint64{3}) || f.Found {
		t.Errorf("the founding is %+v", f)
	}
	l.from(3, raftpb.Message{Type: raftpb.MsgPreVote, Term: 1})
	l.from(2, vote)
	if s := l.group.Status(); s.Term != 4 || len(l.out.take(raftpb.MsgVoteResp)) != 1 {
		t.Fatalf("all were met, and this host does not vote: %+v", s)
	}
}

// electInUnfounded makes host 1 leader of term 1, with its first entry on all disks.
func (l *testHost) electInUnfounded() {
	l.t.Helper()
	l.meet()
	l.group.Campaign()
	l.manual.runIdle()
	l.from(2, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1})
	l.from(2, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 1})
	if s := l.group.Status(); s.Role != event.RoleLeader {
		l.t.Fatalf("the host does not lead: %+v", s)
	}
}

// The leader proposes founded when found is on every disk, not on a quorum. Until then commands wait, are
// refused after an election timeout with the name of the host that is missing, and are not in the log.
func TestCommandsWaitForTheFounding(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "too late": true} {
		l := openTestHost(t, 3)
		l.electInUnfounded()
		p := l.submit("x")
		l.manual.runIdle()
		l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2}) // found
		l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 1})
		s := l.group.Status()
		if _, done, err := p.Poll(); done || s.LastIndex != 2 || s.Committed != 2 {
			t.Fatalf("%s: found is committed and not on all disks; the command was told %v, the host has %+v", name, err, s)
		}
		if f := l.group.Founding(); !slices.Equal(f.Missing, []uint64{3}) || !f.Found || f.Founded {
			t.Errorf("%s: the founding is %+v", name, f)
		}
		if late {
			for range l.config.electionTicks() + 1 {
				l.from(2, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
				l.from(3, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
				l.manual.tick()
			}
			var missing *outcome.NotFoundedError
			if _, err := poll(t, p); !errors.As(err, &missing) || outcome.MayHaveCommitted(err) || !strings.Contains(err.Error(), "host 3 does not have the founding entry on its disk yet") {
				t.Errorf("%s: the command was told %v", name, err)
			}
			p = l.submit("y")
			l.manual.runIdle()
			if _, err := poll(t, p); !errors.Is(err, outcome.ErrNotFounded) {
				t.Errorf("%s: the next command was told %v", name, err)
			}
		}
		l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
		want := uint64(begun + 1)
		if late {
			p, want = l.submit("z"), begun+1
			l.manual.runIdle()
		}
		l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: want})
		if r, err := poll(t, p); err != nil || r.Index != want {
			t.Errorf("%s: founded, and the command was told %v, %v", name, r, err)
		}
		if f := l.group.Founding(); !f.Founded || len(l.machine.entries) != 1 {
			t.Errorf("%s: the founding is %+v, the state machine got %v", name, f, l.machine.entries)
		}
	}
}

// bindingOf binds the hosts of a testHost, with one member's directory replaced.
func (l *testHost) bindingOf(other uint64) (b entry.Binding) {
	for id := uint64(1); id <= 3; id++ {
		i := incarnationOf(id)
		if id == l.self() {
			i = l.incarnation()
		}
		if id == other {
			i[7]++
		}
		b = append(b, entry.BoundMember{ID: id, Incarnation: i})
	}
	return b
}

func (l *testHost) self() uint64 { return l.config.ID }

func foundAt(index, term uint64, b entry.Binding) raftpb.Entry {
	return raftpb.Entry{Index: index, Term: term, Type: raftpb.EntryHost, Data: entry.EncodeFound(b)}
}

// A binding is in force as soon as it is in the log, whatever the host has heard. It goes with its entry, and
// comes back from the log at the next start. A member that is bound to another directory is refused, in the
// group that binds it only.
func TestBindingOfTheLogIsInForce(t *testing.T) {
	l := openTestHost(t, 3)
	vote := raftpb.Message{Type: raftpb.MsgVote, Term: 9, Index: 9, LogTerm: 9}
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(3))}})
	refused := func() []uint64 { return l.group.Founding().Refused }
	if !slices.Equal(refused(), []uint64{3}) || l.group.Status().Committed != 0 {
		t.Fatalf("found is in the log and not committed; refused: %v", refused())
	}
	l.from(3, vote)
	if s := l.group.Status(); s.Term != 1 || len(l.out.take(raftpb.MsgVoteResp)) > 0 {
		t.Errorf("a member with another directory is heard: %+v", s)
	}
	second := l.open(2, &commands{})
	(*inbound)(l.Host).Receive(3, envelopes(2, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 5, From: 3, To: 1}))
	l.manual.runIdle()
	if s := second.Status(); s.Leader != 3 {
		t.Errorf("the entry.Binding of group 1 counts in group 2: %+v", s)
	}
	// Another leader's entry takes the place of found, and then found comes again, as it should be.
	l.from(2, raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: 1, LogTerm: 1, Entries: []raftpb.Entry{{Index: 2, Term: 2}}})
	if f := l.group.Founding(); len(f.Refused) > 0 || f.Found {
		t.Errorf("found was overwritten: %+v", f)
	}
	l.from(2, raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: 2, LogTerm: 2, Entries: []raftpb.Entry{foundAt(3, 2, l.bindingOf(2))}})
	if !slices.Equal(refused(), []uint64{2}) {
		t.Errorf("refused: %v, want 2", refused())
	}
	if err := l.group.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.group = l.open(theGroup, l.machine)
	if f := l.group.Founding(); !f.Found || !slices.Equal(f.Refused, []uint64{2}) {
		t.Errorf("opened again: %+v", f)
	}
}

// A member that is bound to another directory than its own, or has other members, stops before it
// acknowledges the entry.
func TestMemberThatDoesNotMatchStops(t *testing.T) {
	for name, row := range map[string]struct {
		change func(l *testHost, b entry.Binding) entry.Binding
		words  string
	}{
		"another directory": {func(l *testHost, _ entry.Binding) entry.Binding { return l.bindingOf(1) }, "of host 1, and this host runs on directory"},
		"one more member": {func(_ *testHost, b entry.Binding) entry.Binding {
			return append(b, entry.BoundMember{ID: 4, Incarnation: incarnationOf(4)})
		}, "founded with members [1 2 3 4], Members of host 1 is [1 2 3]"},
		"one less member": {func(_ *testHost, b entry.Binding) entry.Binding { return b[:2] }, "founded with members [1 2], Members of host 1 is [1 2 3]"},
	} {
		for _, known := range []bool{false, true} {
			l := openTestHost(t, 3)
			if known { // the leader of the entry, and its term
				l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1})
			}
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, row.change(l, l.bindingOf(0)))}})
			if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), row.words) {
				t.Errorf("%s, leader known %t: the group has stopped with %v", name, known, err)
			}
			if acks := l.out.take(raftpb.MsgAppResp); len(acks) > 0 || l.storage.log.Group(theGroup).LastIndex() > 0 {
				t.Errorf("%s, leader known %t: it has acknowledged %v", name, known, acks)
			}
		}
	}
}

// An entry that cannot be read is refused with its message, and does not stop the group.
func TestFoundingEntryThatCannotBeRead(t *testing.T) {
	l := openTestHost(t, 3)
	for _, data := range [][]byte{
		{}, {9}, {entry.FoundKind}, {entry.FoundKind, 1, 0, 5}, {entry.FoundedKind, 0},
		entry.EncodeFound(entry.Binding{{ID: 1}, {ID: 2}, {ID: 3, Incarnation: incarnationOf(3)}}), // a minority
		append([]byte{entry.FoundKind, 1, 0}, make([]byte, 24)...),                                 // bound to no directory
		append([]byte{3}, entry.EncodeFound(l.bindingOf(0))[1:]...),                                // a kind of an older program
	} {
		l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1, Type: raftpb.EntryHost, Data: data}}})
	}
	if s := l.group.Status(); s.Dropped != 8 || s.LastIndex != 0 || l.group.Err() != nil {
		t.Errorf("%+v, %v", s, l.group.Err())
	}
	for _, body := range [][]byte{nil, {0}, {control.Greeting}, {control.Greeting, 0, 0}, {control.Refusal}, {control.Refusal, 1, 2}, {9, 9},
		{control.Stranger}, {control.Stranger, 1, 1}} {
		(*inbound)(l.Host).Deliver(2, transport.Control, body)
	}
	if n := l.network.strays.Load(); n != 9 {
		t.Errorf("%d of 9 control records were refused", n)
	}
}

// A group of one is founded by its first turns, without a member to wait for.
func TestGroupOfOneIsFoundedAtOnce(t *testing.T) {
	l := openTestHost(t, 1)
	if f := l.group.Founding(); !f.Founded || l.group.Status().Committed != begun {
		t.Errorf("%+v, %+v", f, l.group.Status())
	}
}

// What a member says of a group that is not founded names each thing that is missing, and something in any
// case.
func TestNotFoundedSaysWhatIsMissing(t *testing.T) {
	for _, row := range []struct {
		founding diagnosis.Founding
		says     []string
		not      string
	}{
		{diagnosis.Founding{Unmet: []uint64{2}, Missing: []uint64{2, 3}},
			[]string{"group 7 is not founded", "host 2 was not heard", "host 3 does not have the founding entry", "this host does not have the founding entry"}, "host 2 does not"},
		{diagnosis.Founding{Refused: []uint64{3}, Missing: []uint64{3}, Found: true}, []string{"host 3 comes with another directory"}, "does not have"},
		{diagnosis.Founding{Found: true}, []string{"its first leader is being elected"}, "this host does not"},
		{diagnosis.Founding{Joins: true, JoinRefused: "the token has expired"}, []string{"has not added this host", "the token has expired"}, "founded"},
	} {
		err := &outcome.NotFoundedError{Group: 7, Founding: row.founding}
		for _, want := range row.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v says %q, want %q", row.founding, err, want)
			}
		}
		if strings.Contains(err.Error(), row.not) || !errors.Is(err, outcome.ErrNotFounded) {
			t.Errorf("%+v says %q, without %q", row.founding, err, row.not)
		}
	}
}
