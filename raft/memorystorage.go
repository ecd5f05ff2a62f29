package raft

import (
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/raft/raftpb"
)

// MemoryStorage keeps a log and its snapshot in memory, for tests, examples and applications that ensure
// durability in another way. It is safe for concurrent use, and grows until Compact is called.
//
// The log is the entries after base: entries[i] has index base.Index+1+i. The storage keeps only the id of
// the base, so that its term is known; a fresh log has the base 0@0. The snapshot and the base are
// independent. A snapshot may be ahead of the base, which keeps entries for slow followers. It is behind it
// if the caller has compacted beyond its snapshots.
//
// Invariant: the base never goes back, and a slice that was handed out is never written to. Appending writes
// behind what was handed out; truncation and compaction copy. Rejected: compaction by slicing, which pins
// every payload before the first entry.
//
// A mistake of the caller is answered with an error, and changes nothing.
type MemoryStorage struct {
	mu        sync.Mutex
	hardState raftpb.HardState
	snapshot  raftpb.Snapshot
	base      raftpb.EntryID
	entries   []raftpb.Entry
}

// NewMemoryStorage returns an empty log. Give it a configuration before use, with SetConfState or
// ApplySnapshot.
func NewMemoryStorage() *MemoryStorage { return &MemoryStorage{} }

// SetConfState sets the configuration that InitialState returns and that the snapshot carries.
func (s *MemoryStorage) SetConfState(cs raftpb.ConfState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot.Metadata.ConfState = cs
}

// SetHardState saves the hard state. The error is always nil.
func (s *MemoryStorage) SetHardState(st raftpb.HardState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hardState = st
	return nil
}

// Append saves contiguous entries, which replace everything from the first one's index on. It skips entries
// that are already compacted. If the entries would leave a gap, it refuses them all with an error that is
// ErrUnavailable.
func (s *MemoryStorage) Append(entries []raftpb.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rejectGap(entries); err != nil {
		return err
	}
	for len(entries) > 0 && entries[0].Index <= s.base.Index {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil
	}
	kept := s.entries[:s.position(entries[0].Index)]
	if len(kept) < len(s.entries) {
		kept = slices.Clip(kept) // so that the append copies: readers may hold what is replaced
	}
	s.entries = append(kept, entries...)
	return nil
}

func (s *MemoryStorage) rejectGap(entries []raftpb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	first := entries[0].Index
	if last := s.last(); first > last+1 {
		return fmt.Errorf("raft: append of entries starting at %d leaves a gap after the last entry, %d: %w", first, last, ErrUnavailable)
	}
	for i := range entries {
		if want := first + uint64(i); entries[i].Index != want {
			return fmt.Errorf("raft: append of entries starting at %d is not contiguous: have index %d, want %d: %w", first, entries[i].Index, want, ErrUnavailable)
		}
	}
	return nil
}

// ApplySnapshot replaces the snapshot, the configuration and the log by snap; the log is empty afterwards.
// The hard state stays. The error is ErrSnapOutOfDate if snap is no newer than the present snapshot, or is
// behind the compacted part of the log. The caller must not change what snap points to.
func (s *MemoryStorage) ApplySnapshot(snap raftpb.Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := snap.Metadata
	if meta.Index <= s.snapshot.Metadata.Index || meta.Index < s.base.Index {
		return ErrSnapOutOfDate
	}
	s.snapshot = snap
	s.base, s.entries = raftpb.EntryID{Term: meta.Term, Index: meta.Index}, nil
	return nil
}

// CreateSnapshot makes data, which is the state as of entry i, the present snapshot, and returns that
// snapshot. Its configuration is cs; nil keeps the configuration of the previous snapshot. The log stays as
// it is; see Compact. The error is ErrSnapOutOfDate if i is no newer than the present snapshot, and
// ErrCompacted or ErrUnavailable if i is outside the log. The caller must not change data nor what cs points
// to.
func (s *MemoryStorage) CreateSnapshot(i uint64, cs *raftpb.ConfState, data []byte) (raftpb.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i <= s.snapshot.Metadata.Index {
		return raftpb.Snapshot{}, ErrSnapOutOfDate
	}
	term, err := s.term(i)
	if err != nil {
		return raftpb.Snapshot{}, fmt.Errorf("raft: snapshot at entry %d, but the log has [%d,%d]: %w", i, s.first(), s.last(), err)
	}
	s.snapshot.Data = data
	s.snapshot.Metadata.Index, s.snapshot.Metadata.Term = i, term
	if cs != nil {
		s.snapshot.Metadata.ConfState = *cs
	}
	return s.snapshot, nil
}

// Compact drops the entries through i and releases their memory. Entries that are not applied must not be
// compacted. The error is ErrCompacted if the entries are already compacted, and ErrUnavailable if i is
// beyond the last entry.
func (s *MemoryStorage) Compact(i uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i <= s.base.Index {
		return ErrCompacted
	}
	term, err := s.term(i)
	if err != nil {
		return fmt.Errorf("raft: compact through %d, but the log ends at %d: %w", i, s.last(), err)
	}
	s.entries = slices.Clone(s.entries[s.position(i)+1:])
	s.base = raftpb.EntryID{Term: term, Index: i}
	return nil
}

// InitialState implements Storage. The configuration is that of the snapshot.
func (s *MemoryStorage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hardState, s.snapshot.Metadata.ConfState, nil
}

// Entries implements Storage.
func (s *MemoryStorage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case lo <= s.base.Index:
		return nil, ErrCompacted
	case lo >= hi || hi > s.last()+1:
		return nil, fmt.Errorf("raft: entries [%d,%d), but the log has [%d,%d]: %w", lo, hi, s.first(), s.last(), ErrUnavailable)
	}
	lo, hi = s.position(lo), s.position(hi)
	return limitSize(s.entries[lo:hi:hi], maxSize), nil
}

// Term implements Storage.
func (s *MemoryStorage) Term(i uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term(i)
}

// LastIndex implements Storage.
func (s *MemoryStorage) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last(), nil
}

// FirstIndex implements Storage.
func (s *MemoryStorage) FirstIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first(), nil
}

// Snapshot implements Storage. A snapshot of index 0 means that there is none yet.
func (s *MemoryStorage) Snapshot() (raftpb.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, nil
}

func (s *MemoryStorage) first() uint64 { return s.base.Index + 1 }

func (s *MemoryStorage) last() uint64 { return s.base.Index + uint64(len(s.entries)) }

// position returns the position in entries at which entry i, which is after the base, is or would be.
func (s *MemoryStorage) position(i uint64) uint64 { return i - s.base.Index - 1 }

func (s *MemoryStorage) term(i uint64) (uint64, error) {
	switch {
	case i < s.base.Index:
		return 0, ErrCompacted
	case i == s.base.Index:
		return s.base.Term, nil
	case i > s.last():
		return 0, ErrUnavailable
	}
	return s.entries[s.position(i)].Term, nil
}
