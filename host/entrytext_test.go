package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft/raftpb"
)

// An entry is named for an operator, a skip with its command; what cannot be read is no panic.
func TestEntryText(t *testing.T) {
	for _, row := range []struct {
		typ  raftpb.EntryType
		data []byte
		want string
	}{
		{raftpb.EntryNormal, nil, "empty, of a new leader"},
		{raftpb.EntryNormal, []byte{1, 2}, "commands"},
		{raftpb.EntryConfChangeV2, nil, "change of members"},
		{raftpb.EntryHost, nil, "empty, of the host"},
		{raftpb.EntryHost, []byte{entry.FoundKind + entry.FoundPromises}, "founding"},
		{raftpb.EntryHost, []byte{entry.PlanKind}, "plan of members"},
		{raftpb.EntryHost, entry.Skip{At: raftpb.Position{Index: 4711, Pos: 2}}.Encode(), "skip of command 4711.2"},
		{raftpb.EntryHost, []byte{entry.SkipKind, 1}, "skip that cannot be read"},
		{raftpb.EntryHost, []byte{200}, "unknown, of the host: kind 200"},
		{raftpb.EntryType(99), []byte{1}, "unknown"},
	} {
		if have := EntryText(row.typ, row.data); have != row.want {
			t.Errorf("type %d, % x: %q, want %q", row.typ, row.data, have, row.want)
		}
	}
}

// The skips of a snapshot are read out of its block; without skips there are none, and damage is an error.
func TestSkippedCommands(t *testing.T) {
	block := entry.Block{Skipped: []raftpb.Position{{Index: 7}, {Index: 9, Pos: 3}}}
	if have, err := SkippedCommands(block.Encode()); err != nil || !slices.Equal(have, block.Skipped) {
		t.Errorf("%d, %v", have, err)
	}
	block.Skipped = nil
	if have, err := SkippedCommands(block.Encode()); err != nil || len(have) > 0 {
		t.Errorf("%d, %v", have, err)
	}
	if _, err := SkippedCommands([]byte("no block")); err == nil {
		t.Error("damage is no error")
	}
}
