package host

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// commitSkip makes host 2 send a group entries [lo, index) and, as entry index, the one that skips a command,
// all committed.
func (l *testHost) commitSkip(group, lo, index, command uint64) {
	m := raftpb.Message{Type: raftpb.MsgApp, Term: 1, LogTerm: 1, Index: lo - 1, Entries: span(lo, index, 1), Commit: index}
	for i := range m.Entries {
		m.Entries[i].Data = []byte("x")
	}
	m.Entries = append(m.Entries, raftpb.Entry{Type: raftpb.EntryHost, Term: 1, Index: index, Data: entry.Skip{At: raftpb.Position{Index: command}}.Encode()})
	l.deliverTo(group, m)
}

// indexes returns what a machine was given.
func (c *commands) indexes() (all []uint64) {
	for _, e := range c.entries {
		all = append(all, e.Index)
	}
	return all
}

// A member that learns that a command is skipped before it applies it never applies it. One that has applied
// it halts at the entry, for good. One that is halted there says that a start leads past it.
func TestSkipIsTakenByEveryMember(t *testing.T) {
	l := openTestHost(t, 3)
	poison := func(e statemachine.Entry) error {
		if e.Index == 2 {
			return errMachine
		}
		return nil
	}
	in, applied, stuck := &commands{fail: poison}, &commands{}, &commands{fail: poison}
	for id, m := range map[uint64]*commands{2: in, 3: applied, 4: stuck} {
		l.open(id, m)
		l.commit(id, 1, 2)
	}
	l.commitSkip(2, 2, 4, 2)
	l.commit(2, 5, 6)
	if g := l.Group(2); g.Halted() != nil || !slices.Equal(in.indexes(), []uint64{1, 3, 5}) {
		t.Errorf("%v, given %v, want 1, 3 and 5", g.Halted(), in.indexes())
	}
	for _, id := range []uint64{3, 4} {
		l.commit(id, 2, 3)
		l.commit(id, 3, 4)
		l.commitSkip(id, 4, 4, 2)
		l.commit(id, 5, 6)
	}
	var halted *outcome.HaltedError
	if err := l.Group(3).Halted(); !errors.As(err, &halted) || !halted.Final || !errors.As(err, new(*apply.AppliedSkippedError)) || !slices.Equal(applied.indexes(), []uint64{1, 2, 3}) {
		t.Errorf("a member that has applied the command: %v, given %v", err, applied.indexes())
	}
	if err := l.Group(4).Halted(); !errors.As(err, &halted) || halted.First != 2 || halted.Skipped != 4 {
		t.Errorf("a member that is halted there: %v", err)
	}
	ahead := func(applied uint64) func(uint64) (uint64, bool) { // host 3 has said so
		return func(index uint64) (uint64, bool) { return 3, applied >= index }
	}
	if err := l.Group(4).rejectSkip(raftpb.Position{Index: 2}, ahead(0)); err != nil {
		t.Errorf("as a leader it refuses: %v", err)
	}
	if err := l.Group(4).rejectSkip(raftpb.Position{Index: 2}, ahead(2)); !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "host 3 has applied entry 2") {
		t.Errorf("as a leader that knows of a member with the command: %v", err)
	}
	for id := uint64(2); id <= 4; id++ {
		if st := l.Group(id).Status(); l.Group(id).Err() != nil || st.Committed != 5 || st.Durable != 5 {
			t.Errorf("group %d does not go on: %v, %+v", id, l.Group(id).Err(), st)
		}
	}
	if err := l.Close(over()); err != nil {
		t.Log(err)
	}
}

// A member that starts again knows which commands are skipped before it applies any.
func TestSkipsAreReadAtAStart(t *testing.T) {
	l := openTestHost(t, 3)
	l.machine.fail = func(e statemachine.Entry) error {
		if string(e.Data) == "poison" {
			return errMachine
		}
		return nil
	}
	entries := []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0)), foundedAt(begun, 1)}
	for i, text := range []string{"a", "poison", "b"} {
		entries = append(entries, raftpb.Entry{Term: 1, Index: begun + 1 + uint64(i), Data: []byte(text)})
	}
	entries = append(entries, raftpb.Entry{Type: raftpb.EntryHost, Term: 1, Index: 7, Data: entry.Skip{At: raftpb.Position{Index: 5}}.Encode()})
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: entries, Commit: 7})
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, LogTerm: 1, Index: 7, Entries: span(8, 9, 1), Commit: 7}) // makes the commit durable
	for _, what := range []string{"at first", "after a start"} {
		if err := l.group.Halted(); err != nil || l.group.Halts() > 0 || !slices.Equal(l.machine.indexes(), []uint64{4, 6}) {
			t.Errorf("%s: %v, %d halts, given %v, want 4 and 6", what, err, l.group.Halts(), l.machine.indexes())
		}
		l.machine.entries = nil
		l.reopen()
	}
	if err := l.Close(over()); err != nil {
		t.Log(err)
	}
}

// A batch of several commands fails, and it is not known which. The next start applies them one at a time.
func TestSuspectCommandsAreAppliedOneByOne(t *testing.T) {
	l := openTestHost(t, 1)
	l.machine.fail = func(e statemachine.Entry) error {
		if string(e.Data) == "c" {
			return errMachine
		}
		return nil
	}
	l.lead()
	for _, text := range []string{"a", "b", "c", "d"} {
		l.submit(text)
	}
	l.manual.runIdle()
	var halted *outcome.HaltedError
	if err := l.group.Halted(); !errors.As(err, &halted) || halted.Last != halted.First+3 {
		t.Fatalf("halted with %v, want one of four", err)
	}
	first := halted.First
	l.machine.entries = nil
	l.reopen()
	if err := l.group.Halted(); !errors.As(err, &halted) || halted.First != first+2 || halted.Last != first+2 || !slices.Equal(l.machine.indexes(), []uint64{first, first + 1}) {
		t.Errorf("after a start: halted with %v, given %v; want it at %d", err, l.machine.indexes(), first+2)
	}
	if err := l.Close(over()); err != nil {
		t.Log(err)
	}
}

// The bytes of the entry are exact.
func TestSkipEntry(t *testing.T) {
	want := entry.Skip{ID: [16]byte{1, 2}, At: raftpb.Position{Index: 300}}
	data := want.Encode()
	for _, pos := range []uint32{5, 0} {
		if want.At.Pos = pos; pos > 0 == (len(want.Encode()) == len(data)) {
			t.Errorf("%v has %d bytes", want, len(want.Encode()))
		}
		if have, err := entry.DecodeSkip(want.Encode()); err != nil || have != want {
			t.Errorf("%v, %v", have, err)
		}
	}
	for _, bad := range [][]byte{nil, {entry.SkipKind}, data[:len(data)-1], append(slices.Clone(data), 0), entry.Skip{}.Encode()} {
		if s, err := entry.DecodeSkip(bad); err == nil {
			t.Errorf("%x is read as %v", bad, s)
		}
	}
}

// What was skipped is in a snapshot, and a snapshot without it has the bytes that it had before.
func TestSkippedCommandsInASnapshot(t *testing.T) {
	b := entry.Block{PerEntry: 7, Skipped: []raftpb.Position{{Index: 3}, {Index: 900, Pos: 2}, {Index: 900, Pos: 3}}}
	if have, err := entry.DecodeBlock(b.Encode()); err != nil || !slices.Equal(have.Skipped, b.Skipped) {
		t.Errorf("%v, %v", have.Skipped, err)
	}
	if b.Skipped = nil; b.Encode()[0] != entry.BlockVersion {
		t.Error("another version without need")
	}
}
