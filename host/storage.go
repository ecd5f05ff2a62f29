package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// storage is a group's part of the log as its core reads it: raft.ReaderStorage. Package wal knows raftpb's
// types but not Raft's rules, so the two meet here.
//
// Entries that are not in memory are read by a lane of readers (readers.go), because a turn waits for no
// disk. What was read is kept for the one reader that asked for it, until it asks again.
type storage struct {
	log   GroupLog
	conf  raftpb.ConfState
	group *Group // nil while the core starts

	fetched []fetched // owned by the turn: one for each reader at most
}

// fetched is what a reader has asked for: entries starting at lo, or the error of the read.
type fetched struct {
	reader, lo uint64
	entries    []raftpb.Entry
	err        error
}

// members returns all members of the configuration.
func (s *storage) members() []uint64 {
	return slices.Concat(s.conf.Voters, s.conf.VotersOutgoing, s.conf.Learners, s.conf.LearnersNext)
}

// InitialState implements raft.Storage.
func (s *storage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs := s.log.HardState()
	return hs, s.conf, nil
}

// Entries implements raft.Storage. The core reads by EntriesFor.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.log.Entries(lo, hi, maxSize)
	return entries, toRaft(err)
}

// EntriesFor implements raft.ReaderStorage.
func (s *storage) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if entries, ok := s.log.Recent(lo, hi, maxSize); ok {
		return entries, nil
	}
	g := s.group
	if g == nil || reader == raft.LocalApplyThread || !g.host.env.pipeline.AsyncStorageWrites() {
		// Only the pipelines for the lab hand entries, and not ranges, to the state machine, or wait for the
		// disk.
		return s.Entries(lo, hi, maxSize)
	}
	if entries, found, err := s.take(reader, lo, hi); found {
		return entries, toRaft(err)
	}
	if err := g.host.readers.ask(readRequest{g, reader, lo, hi, min(maxSize, maxReadBytes)}); err != nil {
		// This host cannot reach the member (Host.learnMembers), so nothing is read. For the core, it waits.
		g.host.env.logger.Warn("a member gets no entries", "group", g.id, "host", g.self, "member", reader, "cause", err)
	}
	return nil, raft.ErrEntriesPending
}

// take returns what was read for a reader and forgets it. It is found only if it begins at lo and is still
// what the log has: an entry of equal index and term is the same entry, with all before it (thesis §3.5).
func (s *storage) take(reader, lo, hi uint64) (entries []raftpb.Entry, found bool, err error) {
	at := slices.IndexFunc(s.fetched, func(f fetched) bool { return f.reader == reader })
	if at < 0 {
		return nil, false, nil
	}
	f := s.fetched[at]
	s.fetched = slices.Delete(s.fetched, at, at+1)
	switch {
	case f.lo != lo:
		return nil, false, nil
	case errors.Is(f.err, wal.ErrUnavailable) && hi <= s.log.LastIndex()+1, errors.Is(f.err, wal.ErrCompacted) && lo >= s.log.FirstIndex():
		return nil, false, nil // the log ended, or began, elsewhere when it was read
	case f.err != nil:
		return nil, true, f.err
	}
	entries = f.entries[:min(uint64(len(f.entries)), hi-lo)]
	last := &entries[len(entries)-1]
	if term, err := s.log.Term(last.Index); err != nil || term != last.Term {
		return nil, false, nil
	}
	return entries, true, nil
}

// put keeps what was read for a reader, in place of what was read for it before.
func (s *storage) put(f fetched) {
	s.fetched = slices.DeleteFunc(s.fetched, func(old fetched) bool { return old.reader == f.reader })
	s.fetched = append(s.fetched, f)
}

// forget drops what was read for followers: this member does not lead, and they will not ask.
func (s *storage) forget() {
	s.fetched = nil
}

// hasAllMembers reports whether a snapshot knows all members that the group has now.
func (g *Group) hasAllMembers(p *publishedSnapshot) bool {
	r := g.roster()
	if r == nil {
		return true
	}
	for _, m := range entry.ManifestMembers(r) {
		if !slices.Contains(p.manifest.Members, m) {
			return false
		}
	}
	return true
}

// Changes implements raft.ChangesStorage: the entries of the log that have a type, without those of hosts.
func (s *storage) Changes(lo, hi uint64) (indexes []uint64, err error) {
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
func (s *storage) Term(i uint64) (uint64, error) {
	term, err := s.log.Term(i)
	return term, toRaft(err)
}

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.log.LastIndex(), nil }

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.log.FirstIndex(), nil }

// Snapshot implements raft.Storage: what the core must know of the latest snapshot. Data is the hash of its
// manifest. If there is none, or the log begins after it, one is wanted.
func (s *storage) Snapshot() (raftpb.Snapshot, error) {
	var p *publishedSnapshot
	if s.group != nil {
		p = s.group.snapshots.latest()
	}
	if p != nil && !s.group.hasAllMembers(p) {
		p = nil // a new member cannot begin from a snapshot that does not know it
	}
	if p == nil {
		if s.group != nil {
			s.group.snapshots.want()
		}
		return raftpb.Snapshot{}, fmt.Errorf("millrace: there is no snapshot yet that has all members; the log begins at entry %d: %w",
			s.log.FirstIndex(), raft.ErrSnapshotTemporarilyUnavailable)
	}
	return raftpb.Snapshot{
		Data:     p.hash[:],
		Metadata: raftpb.SnapshotMetadata{Index: p.id.Index, Term: p.id.Term, ConfState: p.manifest.Conf},
	}, nil
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
