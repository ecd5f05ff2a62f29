package raft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// The search for the point where two logs diverge finds what a walk down the log finds, wherever the log
// begins, is in storage, or ends, and it looks at few entries.
func TestLastNotAfterIsAWalkDownTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var terms []uint64
		term := uint64(1)
		for range rapid.IntRange(0, 200).Draw(t, "entries") {
			term += rapid.SampledFrom([]uint64{0, 0, 0, 0, 1, 3}).Draw(t, "later")
			terms = append(terms, term)
		}
		log := logOfTerms(terms...)
		last := uint64(len(log))
		stored := rapid.Uint64Range(0, last).Draw(t, "in storage")
		compacted := rapid.Uint64Range(0, stored).Draw(t, "compacted")
		s := &lookedAt{MemoryStorage: NewMemoryStorage()}
		_ = s.Append(log[:stored])
		l, err := newLog(s, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if l.append(log[stored:], term); rapid.Bool().Draw(t, "known to be compacted") {
			_ = s.Compact(compacted)
			l.firstIndex()
		} else {
			_ = s.Compact(compacted)
		}
		index := rapid.Uint64Range(0, last+2).Draw(t, "index")
		notAfter := rapid.Uint64Range(0, term+1).Draw(t, "term")
		want := walkDown(&l, index, notAfter)
		s.looks = 0
		if have := l.lastNotAfter(index, notAfter); have != want {
			t.Errorf("the last at or below %d of term %d at most: have %v, want %v, terms %v", index, notAfter, have, want, terms)
		}
		if s.looks > 2*8+1 {
			t.Errorf("it read %d terms of a log of %d entries", s.looks, last)
		}
		if l.failure != nil {
			t.Error(l.failure)
		}
	})
}

func walkDown(l *raftLog, index, term uint64) raftpb.EntryID {
	for i := index; i > 0; i-- {
		if t, err := l.term(i); err != nil || t <= term {
			return raftpb.EntryID{Term: t, Index: i}
		}
	}
	return raftpb.EntryID{}
}

// lookedAt counts the questions for a term.
type lookedAt struct {
	*MemoryStorage
	looks int
}

func (s *lookedAt) Term(i uint64) (uint64, error) {
	s.looks++
	return s.MemoryStorage.Term(i)
}

var _ Storage = (*lookedAt)(nil)

// A peer's hint may be any number: it costs a few looks, however far from the log it is.
func TestLastNotAfterAnyHint(t *testing.T) {
	l, err := newLog(NewMemoryStorage(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.append([]raftpb.Entry{{Term: 3, Index: 1}}, 3)
	for _, hint := range []uint64{2, 1 << 40, 1<<64 - 1} {
		if have := l.lastNotAfter(hint, 1); have != (raftpb.EntryID{Index: hint}) {
			t.Errorf("hint %d: have %v", hint, have)
		}
	}
}
