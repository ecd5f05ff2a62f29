package raft

import (
	"slices"
	"sync"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// Storage is what the core reads back of what it handed out. Its methods may be called from any RawNode method; they
// must be safe against the append worker writing at the same time. An error other than ErrCompacted, for entries that
// are applied, means the disk lies: the RawNode stops (RawNode.Err).
type Storage interface {
	// InitialState returns the hard state and configuration saved before a restart.
	InitialState() (pb.HardState, pb.ConfState, error)
	// Entries returns entries in [lo, hi), at least one, at most about maxSize encoded bytes. The caller may keep
	// the slice and must not change it.
	Entries(lo, hi, maxSize uint64) ([]pb.Entry, error)
	// Term returns the term of entry i, for i in [FirstIndex-1, LastIndex].
	Term(i uint64) (uint64, error)
	// LastIndex and FirstIndex bound what Entries can return.
	LastIndex() (uint64, error)
	FirstIndex() (uint64, error)
}

// MemoryStorage keeps the log in memory, for tests and examples. It is safe for concurrent use.
type MemoryStorage struct {
	mu        sync.Mutex
	hardState pb.HardState
	confState pb.ConfState
	entries   []pb.Entry // entries[0] has index 1
}

// NewMemoryStorage returns an empty log. Give it a configuration with SetConfState before use.
func NewMemoryStorage() *MemoryStorage { return &MemoryStorage{} }

// SetConfState sets the configuration that InitialState reports.
func (s *MemoryStorage) SetConfState(cs pb.ConfState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confState = cs
}

// SetHardState saves the hard state.
func (s *MemoryStorage) SetHardState(st pb.HardState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hardState = st
	return nil
}

// Append saves contiguous entries; they replace everything from the first one's index on.
func (s *MemoryStorage) Append(entries []pb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := entries[0].Index
	if first == 0 || first > uint64(len(s.entries))+1 {
		return ErrUnavailable
	}
	if kept := s.entries[:first-1]; first == uint64(len(s.entries))+1 {
		s.entries = append(kept, entries...)
	} else {
		s.entries = append(slices.Clip(kept), entries...) // a copy: readers keep what is replaced
	}
	return nil
}

// InitialState implements Storage.
func (s *MemoryStorage) InitialState() (pb.HardState, pb.ConfState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hardState, s.confState, nil
}

// Entries implements Storage.
func (s *MemoryStorage) Entries(lo, hi, maxSize uint64) ([]pb.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lo < 1 {
		return nil, ErrCompacted
	}
	if hi > uint64(len(s.entries))+1 || lo >= hi {
		return nil, ErrUnavailable
	}
	return limitSize(s.entries[lo-1:hi-1:hi-1], maxSize), nil
}

// Term implements Storage.
func (s *MemoryStorage) Term(i uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i == 0 {
		return 0, nil
	}
	if i > uint64(len(s.entries)) {
		return 0, ErrUnavailable
	}
	return s.entries[i-1].Term, nil
}

// LastIndex implements Storage.
func (s *MemoryStorage) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.entries)), nil
}

// FirstIndex implements Storage.
func (s *MemoryStorage) FirstIndex() (uint64, error) { return 1, nil }
