package flight

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft/raftpb"
)

// recorded is a Storage whose answers are recorded. Only those that belong to an input are: what a query asks
// changes no state, unless the answer is a failure (Node.EntryTerm). Questions that may have to wait for a
// disk are asked when the input is published: a recording of a turn that hangs there ends with it.
type recorded struct {
	Storage
	log *Log
}

// reply begins the record of an answer. It returns nil if the answer is not recorded.
func (s *recorded) reply(k Kind, question ...uint64) []byte {
	if !s.log.inside {
		return nil
	}
	b := s.log.begin(k)
	if b == nil {
		return nil
	}
	return appendNumbers(b, question...)
}

// number records an answer that is a number or an error.
func (s *recorded) number(b []byte, n uint64, err error) {
	if b == nil {
		return
	}
	if b = appendError(b, err); err == nil {
		b = binary.AppendUvarint(b, n)
	}
	s.log.add(b)
}

// Term implements raft.Storage.
func (s *recorded) Term(i uint64) (uint64, error) {
	term, err := s.Storage.Term(i)
	s.number(s.reply(ReplyTerm, i), term, err)
	return term, err
}

// FirstIndex implements raft.Storage.
func (s *recorded) FirstIndex() (uint64, error) {
	first, err := s.Storage.FirstIndex()
	s.number(s.reply(ReplyFirst), first, err)
	return first, err
}

// LastIndex implements raft.Storage.
func (s *recorded) LastIndex() (uint64, error) {
	last, err := s.Storage.LastIndex()
	s.number(s.reply(ReplyLast), last, err)
	return last, err
}

// Entries implements raft.Storage.
func (s *recorded) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	s.log.publish()
	entries, err := s.Storage.Entries(lo, hi, maxSize)
	s.entries(0, lo, hi, entries, err)
	return entries, err
}

// EntriesFor implements raft.ReaderStorage.
func (s *recorded) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	s.log.publish()
	entries, err := s.Storage.EntriesFor(reader, lo, hi, maxSize)
	s.entries(reader, lo, hi, entries, err)
	return entries, err
}

func (s *recorded) entries(reader, lo, hi uint64, entries []raftpb.Entry, err error) {
	b := s.reply(ReplyEntries, reader, lo, hi)
	if b == nil {
		return
	}
	if b = appendError(b, err); err == nil {
		b = s.log.form.AppendEntries(b, entries)
	}
	s.log.add(b)
}

// Snapshot implements raft.Storage.
func (s *recorded) Snapshot() (raftpb.Snapshot, error) {
	snapshot, err := s.Storage.Snapshot()
	if b := s.reply(ReplySnapshot); b != nil {
		if b = appendError(b, err); err == nil {
			b = appendSnapshot(b, &snapshot)
		}
		s.log.add(b)
	}
	return snapshot, err
}

// InitialState implements raft.Storage.
func (s *recorded) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs, cs, err := s.Storage.InitialState()
	if b := s.reply(ReplyInitial); b != nil {
		if b = appendError(b, err); err == nil {
			b = appendBytes(appendNumbers(b, hs.Term, hs.Vote, hs.Commit), cs.Append(nil))
		}
		s.log.add(b)
	}
	return hs, cs, err
}

// Changes implements raft.ChangesStorage.
func (s *recorded) Changes(lo, hi uint64) ([]uint64, error) {
	s.log.publish()
	indexes, err := s.Storage.Changes(lo, hi)
	if b := s.reply(ReplyChanges, lo, hi); b != nil {
		if b = appendError(b, err); err == nil {
			b = appendNumbers(binary.AppendUvarint(b, uint64(len(indexes))), indexes...)
		}
		s.log.add(b)
	}
	return indexes, err
}
