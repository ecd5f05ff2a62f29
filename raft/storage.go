package raft

import "github.com/millrace/millrace/raft/raftpb"

// Storage is how the core reads back what it handed out. Any RawNode method may call it, and it must be safe
// while the append worker writes. An error means that storage lost data, and the RawNode stops (RawNode.Err),
// with three exceptions: ErrCompacted for applied entries, ErrEntriesPending, and
// ErrSnapshotTemporarilyUnavailable.
type Storage interface {
	// InitialState returns the hard state and the configuration that were saved before a restart.
	InitialState() (raftpb.HardState, raftpb.ConfState, error)
	// Entries returns entries in [lo, hi): at least one, and about maxSize encoded bytes at most. The caller
	// may keep the slice and must not change it.
	//
	// An answer that is ErrEntriesPending (errors.Is) means that the entries are being read. Only the follower
	// that they are for, or the apply worker, waits until RawNode.EntriesArrived; see ReaderStorage.
	// NewRawNode reads all entries that are not applied once, about 1 MiB at a time (unless this is a
	// ChangesStorage), and ErrEntriesPending is then an error.
	Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error)
	// Term returns the term of entry i, for i in [FirstIndex-1, LastIndex]. It must not take long: elections
	// and every append ask for terms.
	Term(i uint64) (uint64, error)
	// LastIndex and FirstIndex delimit what Entries can return. A snapshot holds the entries before
	// FirstIndex.
	LastIndex() (uint64, error)
	FirstIndex() (uint64, error)
	// Snapshot returns the latest snapshot, which reaches at least to FirstIndex-1. A snapshot of index 0
	// means that there is none. The call must not take long: ErrSnapshotTemporarilyUnavailable means that a
	// snapshot is being made, and the core will ask again later.
	Snapshot() (raftpb.Snapshot, error)
}
