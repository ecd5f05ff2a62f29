package raft

import "github.com/millrace/millrace/raft/raftpb"

// Storage is what the core reads back of what it handed out. Its methods may be called from any RawNode method; they
// must be safe against the append worker writing at the same time. An error other than ErrCompacted and
// ErrSnapshotTemporarilyUnavailable, for entries that are applied, means the disk lies: the RawNode stops (RawNode.Err).
type Storage interface {
	// InitialState returns the hard state and configuration saved before a restart.
	InitialState() (raftpb.HardState, raftpb.ConfState, error)
	// Entries returns entries in [lo, hi), at least one, at most about maxSize encoded bytes. The caller may keep
	// the slice and must not change it.
	Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error)
	// Term returns the term of entry i, for i in [FirstIndex-1, LastIndex].
	Term(i uint64) (uint64, error)
	// LastIndex and FirstIndex bound what Entries can return. The entries before FirstIndex are in a snapshot.
	LastIndex() (uint64, error)
	FirstIndex() (uint64, error)
	// Snapshot returns the most recent snapshot, which reaches at least to FirstIndex-1; one of index 0 says that there
	// is none. It must not take long: ErrSnapshotTemporarilyUnavailable says that a snapshot is being made, and the
	// core will ask again later.
	Snapshot() (raftpb.Snapshot, error)
}
