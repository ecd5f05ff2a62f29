package pipeline

import "github.com/millrace/millrace/raft"

// Basic is P1: save, send, apply, in line. A client waits for the leader's disk, then for the network and a
// follower's disk, then for the leader's state machine.
type Basic struct{}

// Name implements Pipeline.
func (Basic) Name() string { return "basic" }

// AsyncStorageWrites implements Pipeline.
func (Basic) AsyncStorageWrites() bool { return false }

// Handle implements Pipeline.
func (Basic) Handle(rd raft.Ready, s Steps) error {
	if err := s.Save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
		return err
	}
	s.Send(rd.Messages)
	if err := s.Apply(rd.CommittedEntries); err != nil {
		return err
	}
	s.Acknowledge(rd.CommittedEntries)
	s.Advance(rd)
	return nil
}
