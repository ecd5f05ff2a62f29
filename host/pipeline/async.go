package pipeline

import "github.com/millrace/millrace/raft"

// Async is P3: the consensus loop waits for nothing. Clients are acknowledged at commit, and messages to
// peers leave at once. Writes go to the append worker and committed entries to the apply worker, each with
// the answers to give when the work is done.
type Async struct{}

// Name implements Pipeline.
func (Async) Name() string { return "async" }

// AsyncStorageWrites implements Pipeline.
func (Async) AsyncStorageWrites() bool { return true }

// Handle implements Pipeline.
func (Async) Handle(rd raft.Ready, s Steps) error {
	s.AcknowledgeEarly(rd.CommittedEntries)
	handOut(rd, s)
	return nil
}

// handOut sends the messages to peers, and queues the work for the workers.
func handOut(rd raft.Ready, s Steps) {
	// The core puts the messages to peers first, then at most one to each local worker.
	peers := len(rd.Messages)
	for peers > 0 && isLocal(rd.Messages[peers-1].To) {
		peers--
	}
	s.Send(rd.Messages[:peers])
	for _, m := range rd.Messages[peers:] {
		if m.To == raft.LocalAppendThread {
			s.QueueAppend(m)
		} else {
			s.QueueApply(m)
		}
	}
}

func isLocal(to uint64) bool { return to == raft.LocalAppendThread || to == raft.LocalApplyThread }
