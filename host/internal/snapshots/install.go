package snapshots

import (
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Core is what the install of a snapshot needs of a group's core.
type Core interface {
	BasicStatus() raft.BasicStatus
	EntryTerm(index uint64) (term uint64, known bool)
	Step(raftpb.Message) error
}

// StepReceived gives a snapshot that was received to the core. It is part of a turn. Without a leader it
// waits for one, since the answer goes to a leader. It reports whether the snapshot still waits.
func (s *Group) StepReceived(core Core) (again bool) {
	if p := s.Received.Load(); p != nil && !s.Installing.Load() {
		s.stepReceived(p, core)
	}
	return s.Received.Load() != nil
}

func (s *Group) stepReceived(p *Published, core Core) {
	st := core.BasicStatus()
	has, known := core.EntryTerm(p.ID.Index)
	switch {
	case st.Commit >= p.ID.Index && s.owner.SkipsPast(p):
		s.Received.CompareAndSwap(p, nil)
		return
	case st.Commit >= p.ID.Index:
		s.dropReceived(p)
		return
	case st.Lead == raft.None || st.Lead == s.Self:
		return
	}
	s.Installed.Store(p)
	err := core.Step(raftpb.Message{Type: raftpb.MsgSnap, From: st.Lead, To: s.Self, Term: st.Term, Snapshot: &raftpb.Snapshot{
		Data:     slices.Clone(p.Hash[:]),
		Metadata: raftpb.SnapshotMetadata{Index: p.ID.Index, Term: p.ID.Term, ConfState: p.Manifest.Conf},
	}})
	if err != nil {
		s.owner.Refused(err)
		s.dropReceived(p)
		return
	}
	if core.BasicStatus().Commit < p.ID.Index {
		return // it is tried again
	}
	if s.Received.CompareAndSwap(p, nil); known && has == p.ID.Term {
		s.EndTransfer(p) // the log has its last entry, and goes on
	}
}

// dropReceived forgets a snapshot that this member does not need.
func (s *Group) dropReceived(p *Published) {
	s.Received.CompareAndSwap(p, nil)
	s.EndTransfer(p)
}
