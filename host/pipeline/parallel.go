package pipeline

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Parallel is P2: the leader's appends leave before its own write, which then runs in parallel with the
// followers'. Clients are acknowledged at commit, before anything else of the Ready is done. What is sent
// first promises nothing about the leader's disk. Only a leader sends appends, and its own entries count
// for commit by the match index that Advance moves.
type Parallel struct{}

// Name implements Pipeline.
func (Parallel) Name() string { return "parallel" }

// AsyncStorageWrites implements Pipeline.
func (Parallel) AsyncStorageWrites() bool { return false }

// Handle implements Pipeline.
func (Parallel) Handle(rd raft.Ready, s Steps) error {
	s.AcknowledgeEarly(rd.CommittedEntries)
	appends, rest := splitAppends(rd.Messages)
	s.Send(appends)
	if err := s.Save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
		return err
	}
	s.Send(rest)
	if err := s.Apply(rd.CommittedEntries); err != nil {
		return err
	}
	s.Advance(rd)
	return nil
}

// splitAppends separates the appends from the rest and keeps the order of both.
func splitAppends(messages []raftpb.Message) (appends, rest []raftpb.Message) {
	for _, m := range messages {
		if m.Type == raftpb.MsgApp {
			appends = append(appends, m)
		} else {
			rest = append(rest, m)
		}
	}
	return appends, rest
}
