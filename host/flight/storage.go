package flight

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft/raftpb"
)

// recorded is a Storage whose answers are recorded. Only those that belong to an input are: what a query asks
// changes no state, unless the answer is a failure (Node.EntryTerm).
type recorded struct {
	Storage
	log *Log
}

// reply begins the record of an answer, and reports whether it is recorded.
func (s *recorded) reply(k Kind, question ...uint64) bool {
	l := s.log
	if !l.inside || !l.begin(k) {
		return false
	}
	for _, n := range question {
		l.scratch = binary.AppendUvarint(l.scratch, n)
	}
	return true
}

// number records an answer that is a number or an error.
func (s *recorded) number(n uint64, err error) {
	if s.log.scratch = appendError(s.log.scratch, err); err == nil {
		s.log.scratch = binary.AppendUvarint(s.log.scratch, n)
	}
	s.log.put()
}

// Term implements raft.Storage.
func (s *recorded) Term(i uint64) (uint64, error) {
	term, err := s.Storage.Term(i)
	if s.reply(ReplyTerm, i) {
		s.number(term, err)
	}
	return term, err
}

// FirstIndex implements raft.Storage.
func (s *recorded) FirstIndex() (uint64, error) {
	first, err := s.Storage.FirstIndex()
	if s.reply(ReplyFirst) {
		s.number(first, err)
	}
	return first, err
}

// LastIndex implements raft.Storage.
func (s *recorded) LastIndex() (uint64, error) {
	last, err := s.Storage.LastIndex()
	if s.reply(ReplyLast) {
		s.number(last, err)
	}
	return last, err
}

// Entries implements raft.Storage.
func (s *recorded) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.Storage.Entries(lo, hi, maxSize)
	s.entries(0, lo, hi, entries, err)
	return entries, err
}

// EntriesFor implements raft.ReaderStorage.
func (s *recorded) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	entries, err := s.Storage.EntriesFor(reader, lo, hi, maxSize)
	s.entries(reader, lo, hi, entries, err)
	return entries, err
}

func (s *recorded) entries(reader, lo, hi uint64, entries []raftpb.Entry, err error) {
	if !s.reply(ReplyEntries, reader, lo, hi) {
		return
	}
	l := s.log
	if l.scratch = appendError(l.scratch, err); err == nil {
		l.scratch = l.form.AppendEntries(l.scratch, entries)
	}
	l.put()
}

// Snapshot implements raft.Storage.
func (s *recorded) Snapshot() (raftpb.Snapshot, error) {
	snapshot, err := s.Storage.Snapshot()
	if l := s.log; s.reply(ReplySnapshot) {
		if l.scratch = appendError(l.scratch, err); err == nil {
			l.scratch = appendSnapshot(l.scratch, &snapshot)
		}
		l.put()
	}
	return snapshot, err
}

// InitialState implements raft.Storage.
func (s *recorded) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs, cs, err := s.Storage.InitialState()
	if l := s.log; s.reply(ReplyInitial) {
		if l.scratch = appendError(l.scratch, err); err == nil {
			for _, n := range [...]uint64{hs.Term, hs.Vote, hs.Commit} {
				l.scratch = binary.AppendUvarint(l.scratch, n)
			}
			l.scratch = appendBytes(l.scratch, cs.Append(nil))
		}
		l.put()
	}
	return hs, cs, err
}

// Changes implements raft.ChangesStorage.
func (s *recorded) Changes(lo, hi uint64) ([]uint64, error) {
	indexes, err := s.Storage.Changes(lo, hi)
	if l := s.log; s.reply(ReplyChanges, lo, hi) {
		if l.scratch = appendError(l.scratch, err); err == nil {
			l.scratch = binary.AppendUvarint(l.scratch, uint64(len(indexes)))
			for _, i := range indexes {
				l.scratch = binary.AppendUvarint(l.scratch, i)
			}
		}
		l.put()
	}
	return indexes, err
}
