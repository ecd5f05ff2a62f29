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

// A message with a snapshot that is queued after the look for one is not taken: its state is not restored.
func TestNoSnapshotBeforeItIsInstalled(t *testing.T) {
	var q Queue
	s := new(raftpb.Snapshot)
	if q.HeadSnapshot() != nil {
		t.Fatal("an empty queue has a snapshot")
	}
	q.EnqueueAnd(raftpb.Message{Type: raftpb.MsgStorageAppend, Snapshot: s}, func() {})
	q.EnqueueAnd(raftpb.Message{Type: raftpb.MsgStorageAppend, Entries: []raftpb.Entry{{Index: 8, Term: 1}}}, func() {})
	for _, installed := range []*raftpb.Snapshot{nil, new(raftpb.Snapshot)} {
		if taken := q.Dequeue(1<<20, installed); len(taken) != 0 || q.TakenBytes() != 0 || q.HeadSnapshot() != s {
			t.Errorf("%d messages of %d bytes are taken, and the snapshot is not installed", len(taken), q.TakenBytes())
		}
	}
	if taken := q.Dequeue(1<<20, s); len(taken) != 2 || q.HeadSnapshot() != nil || !q.Empty() {
		t.Errorf("%d messages are taken, want both", len(taken))
	}
}
