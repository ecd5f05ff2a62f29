package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// storage is the log as the core reads it. Package wal knows raftpb's types but not Raft's rules, so the two
// meet here.
type storage struct {
	log  *wal.Group
	conf raftpb.ConfState
}

func (s storage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs := s.log.HardState()
	if planted.ForgetVote {
		hs.Vote = raft.None
	}
	return hs, s.conf, nil
}

func (s storage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.log.Entries(lo, hi, maxSize)
	return entries, toRaft(err)
}

func (s storage) Term(i uint64) (uint64, error) {
	term, err := s.log.Term(i)
	return term, toRaft(err)
}

func (s storage) LastIndex() (uint64, error)  { return s.log.LastIndex(), nil }
func (s storage) FirstIndex() (uint64, error) { return s.log.FirstIndex(), nil }

// Snapshot returns an error: the host makes no snapshots yet, and its log begins at entry 1.
func (s storage) Snapshot() (raftpb.Snapshot, error) {
	return raftpb.Snapshot{}, fmt.Errorf("millrace: the host makes no snapshots yet; its log begins at entry %d: %w",
		s.log.FirstIndex(), raft.ErrSnapshotTemporarilyUnavailable)
}

func toRaft(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrCompacted):
		return raft.ErrCompacted
	case errors.Is(err, wal.ErrUnavailable):
		return raft.ErrUnavailable
	}
	return err
}
