package host

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// versioned is a machine that notes at which version it is given each command.
type versioned struct{ given []uint32 }

func (v *versioned) Apply(batch []statemachine.Command) error {
	for i := range batch {
		v.given = append(v.given, batch[i].Version)
	}
	return nil
}

// commitVersion makes host 2 send a group the entries from lo through last, all committed at once: commands
// and, as entry index, the one that begins a version.
func (l *testHost) commitVersion(group, lo, index, last uint64, to uint32) {
	m := raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: lo - 1, Entries: span(lo, last+1, 1), Commit: last}
	for i := range m.Entries {
		var h session.Header
		m.Entries[i].Data = h.Put(append(make([]byte, session.Room), 'x'))
	}
	m.Entries[index-lo] = raftpb.Entry{Type: raftpb.EntryHost, Term: 1, Index: index, Data: entry.Version{To: to}.Encode()}
	l.deliverTo(group, m)
}

// Commands behind the entry have the version, in the same batch, and those before it do not. A member whose
// program cannot do it is halted at the entry, with its log and its vote, and says what to do.
func TestVersionBeginsAtItsEntry(t *testing.T) {
	l := openTestHost(t, 3)
	can, cannot := new(versioned), new(versioned)
	l.open(2, Commands(can, statemachine.CommandOptions{Versions: statemachine.Versions{Highest: 2}}))
	l.open(3, Commands(cannot, statemachine.CommandOptions{Versions: statemachine.Versions{Highest: 1}}))
	for _, id := range []uint64{2, 3} {
		l.commitVersion(id, 1, 4, 6, 2)
	}
	if want := []uint32{0, 0, 0, 2, 2}; !slices.Equal(can.given, want) {
		t.Errorf("the versions of the commands are %v, want %v", can.given, want)
	}
	if want := []uint32{0, 0, 0}; !slices.Equal(cannot.given, want) {
		t.Errorf("a machine is given a version that its program cannot do: %v", cannot.given)
	}
	var halted *outcome.HaltedError
	err := l.Group(3).Halted()
	if !errors.As(err, &halted) || !halted.WrongVersion || halted.Version != 2 || halted.First != 4 {
		t.Fatalf("halted with %v", err)
	}
	for _, part := range []string{"at version 2 of its state machine since entry 4", "can do versions 0 to 1", "start this host with a program that can do version 2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	if st := l.Group(3).Status(); l.Group(3).Err() != nil || st.Committed != 6 || st.Durable != 6 || st.Version != 0 || st.HighestVersion != 1 {
		t.Errorf("the group does not go on: %v, %+v", l.Group(3).Err(), st)
	}
	if st := l.Group(2).Status(); st.Version != 2 {
		t.Errorf("%+v", st)
	}
	if err := l.Group(3).rejectSkip(raftpb.Position{Index: 4}, func(uint64) (uint64, bool) { return 0, false }); !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("as a leader it would skip the entry: %v", err)
	}
	d := l.Group(3).Explain()
	at := slices.IndexFunc(d.Causes, func(c diagnosis.Cause) bool { return c.Code == diagnosis.CodeMachineHalted })
	if at < 0 || !strings.Contains(d.Causes[at].String(), "Machine.Versions") {
		t.Errorf("Explain says %v", d)
	}
	if err := l.Close(over()); err != nil {
		t.Log(err)
	}
}

// The bytes of the entry are exact.
func TestVersionEntry(t *testing.T) {
	want := entry.Version{ID: [16]byte{1, 2}, To: 300}
	data := want.Encode()
	if have, err := entry.DecodeVersion(data); err != nil || have != want || !entry.IsVersion(raftpb.EntryHost, data) || entry.IsSkip(raftpb.EntryHost, data) {
		t.Errorf("%v, %v", have, err)
	}
	for _, bad := range [][]byte{nil, {entry.VersionKind}, data[:len(data)-1], append(slices.Clone(data), 0), entry.Version{}.Encode()} {
		if v, err := entry.DecodeVersion(bad); err == nil {
			t.Errorf("%x is read as %v", bad, v)
		}
	}
	if text := EntryText(raftpb.EntryHost, data); text != "version 300 of the state machine" {
		t.Error(text)
	}
}

// The version is in a snapshot, and a snapshot of version 0 has the bytes that it had before.
func TestVersionInASnapshot(t *testing.T) {
	b := entry.Block{PerEntry: 7, At: entry.At{Version: 3, Since: 812}}
	for _, skipped := range [][]raftpb.Position{nil, {{Index: 3}, {Index: 900, Pos: 2}}} {
		b.Skipped = skipped
		if have, err := entry.DecodeBlock(b.Encode()); err != nil || have.At != b.At || !slices.Equal(have.Skipped, skipped) {
			t.Errorf("%+v, %v", have, err)
		}
	}
	b.Skipped, b.At = nil, entry.At{}
	if b.Encode()[0] != entry.BlockVersion {
		t.Error("another version of the block without need")
	}
}
