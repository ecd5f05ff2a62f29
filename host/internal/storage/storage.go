package storage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Storage is a group's part of the log as its core reads it: raft.ReaderStorage. Package wal knows raftpb's
// types but not Raft's rules, so the two meet here.
//
// Entries that are not in memory are read by a lane of readers (readers.go), because a turn waits for no
// disk. What was read is kept for the one reader that asked for it, until it asks again.
type Storage struct {
	Conf raftpb.ConfState // with which a core begins

	log     Log
	group   Group // nil while the core starts
	readers *Readers
	results []Result // owned by the turn: one for each reader at most
}

// Log is what a core reads of the log of its group. Only Entries may wait for a disk. Package host says more
// (GroupLog).
type Log interface {
	HardState() raftpb.HardState
	FirstIndex() uint64
	LastIndex() uint64
	Term(i uint64) (uint64, error)
	Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error)
	Typed(lo, hi uint64) []uint64
	Recent(lo, hi, maxBytes uint64) ([]raftpb.Entry, bool)
}

// Group is the group of a Storage. The turn calls its methods, except where noted.
type Group interface {
	ID() uint64
	// Unknown is called if a member gets no entries, since its host is not known.
	Unknown(member uint64, err error)
	// Snapshot returns what the core must know of the latest snapshot that has all members. If there is none,
	// one is wanted.
	Snapshot() (s raftpb.Snapshot, is bool)
	// Arrived takes what was read, for Storage.Keep in a turn. A reader calls it.
	Arrived(r Result)
}

// Result is what a reader was asked for: entries starting at Lo, or the error of the read.
type Result struct {
	Reader, Lo uint64
	Entries    []raftpb.Entry
	Err        error
}

// New returns the storage of a core that starts.
func New(log Log) Storage { return Storage{log: log} }

// Begin is called when the core has started. Readers may be nil: entries are read in the turn.
func (s *Storage) Begin(g Group, r *Readers) { s.group, s.readers = g, r }

// Members returns all members of the configuration.
func (s *Storage) Members() []uint64 {
	return slices.Concat(s.Conf.Voters, s.Conf.VotersOutgoing, s.Conf.Learners, s.Conf.LearnersNext)
}

// InitialState implements raft.Storage.
func (s *Storage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs := s.log.HardState()
	return hs, s.Conf, nil
}

// Entries implements raft.Storage. The core reads by EntriesFor.
func (s *Storage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.log.Entries(lo, hi, maxSize)
	return entries, toRaft(err)
}

// EntriesFor implements raft.ReaderStorage.
func (s *Storage) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if entries, ok := s.log.Recent(lo, hi, maxSize); ok {
		return entries, nil
	}
	if s.readers == nil || reader == raft.LocalApplyThread {
		// Only the pipelines for the lab hand entries, and not ranges, to the state machine, or wait for the
		// disk.
		return s.Entries(lo, hi, maxSize)
	}
	if entries, found, err := s.pop(reader, lo, hi); found {
		return entries, toRaft(err)
	}
	if err := s.readers.ask(request{s.group, s.log, reader, lo, hi, min(maxSize, MaxReadBytes)}); err != nil {
		// This host cannot reach the member, so nothing is read. For the core, it waits.
		s.group.Unknown(reader, err)
	}
	return nil, raft.ErrEntriesPending
}

// pop returns what was read for a reader and forgets it. It is found only if it begins at lo and is still
// what the log has: an entry of equal index and term is the same entry, with all before it (thesis §3.5).
func (s *Storage) pop(reader, lo, hi uint64) (entries []raftpb.Entry, found bool, err error) {
	at := slices.IndexFunc(s.results, func(r Result) bool { return r.Reader == reader })
	if at < 0 {
		return nil, false, nil
	}
	r := s.results[at]
	s.results = slices.Delete(s.results, at, at+1)
	switch {
	case r.Lo != lo:
		return nil, false, nil
	case errors.Is(r.Err, wal.ErrUnavailable) && hi <= s.log.LastIndex()+1, errors.Is(r.Err, wal.ErrCompacted) && lo >= s.log.FirstIndex():
		return nil, false, nil // the log ended, or began, elsewhere when it was read
	case r.Err != nil:
		return nil, true, r.Err
	}
	entries = r.Entries[:min(uint64(len(r.Entries)), hi-lo)]
	last := &entries[len(entries)-1]
	if term, err := s.log.Term(last.Index); err != nil || term != last.Term {
		return nil, false, nil
	}
	return entries, true, nil
}

// Keep keeps what was read for a reader, in place of what was read for it before.
func (s *Storage) Keep(r Result) {
	s.results = slices.DeleteFunc(s.results, func(old Result) bool { return old.Reader == r.Reader })
	s.results = append(s.results, r)
}

// Forget drops what was read for followers: this member does not lead, and they will not ask.
func (s *Storage) Forget() {
	s.results = nil
}

// Kept returns for how many readers something is kept.
func (s *Storage) Kept() int { return len(s.results) }

// Changes implements raft.ChangesStorage: the entries of the log that have a type, without those of hosts.
func (s *Storage) Changes(lo, hi uint64) (indexes []uint64, err error) {
	for _, i := range s.log.Typed(lo, hi) {
		entries, err := s.log.Entries(i, i+1, 1)
		if err != nil {
			return nil, toRaft(err)
		}
		if entries[0].Type.ChangesMembers() {
			indexes = append(indexes, i)
		}
	}
	return indexes, nil
}

// Term implements raft.Storage. It never reads the disk.
func (s *Storage) Term(i uint64) (uint64, error) {
	term, err := s.log.Term(i)
	return term, toRaft(err)
}

// LastIndex implements raft.Storage.
func (s *Storage) LastIndex() (uint64, error) { return s.log.LastIndex(), nil }

// FirstIndex implements raft.Storage.
func (s *Storage) FirstIndex() (uint64, error) { return s.log.FirstIndex(), nil }

// Snapshot implements raft.Storage: what the core must know of the latest snapshot. Data is the hash of its
// manifest. If there is none, or the log begins after it, one is wanted.
func (s *Storage) Snapshot() (raftpb.Snapshot, error) {
	if s.group != nil {
		if p, is := s.group.Snapshot(); is {
			return p, nil
		}
	}
	return raftpb.Snapshot{}, fmt.Errorf("millrace: there is no snapshot yet that has all members; the log begins at entry %d: %w",
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
