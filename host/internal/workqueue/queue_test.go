package workqueue

import (
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Bytes include the overhead of a command: tiny commands do not slip through a bound for large ones.
func TestTinyEntriesCountWhole(t *testing.T) {
	const n = 1000
	m := raftpb.Message{Type: raftpb.MsgApp, Entries: make([]raftpb.Entry, n)}
	for i := range m.Entries {
		m.Entries[i].Data = []byte("x")
	}
	if bytes := MessageBytes(&m); bytes < n*raft.EntryOverhead {
		t.Errorf("a message of %d one-byte entries counts as %d bytes", n, bytes)
	}
}
