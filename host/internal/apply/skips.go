package apply

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
)

// Skips are the commands that the group skips, as far as this member knows the entries as committed. It has
// those, too, for which the group has not decided yet.
type Skips struct {
	holds atomic.Pointer[[]Hold] // never changed in place; nil: none

	mu      lock.Mutex
	ordered atomic.Pointer[[]orderedSkip] // by position; never changed in place; nil: none
	known   atomic.Uint64                 // the last entry that skips one
	Noted   atomic.Uint64                 // and the last that a halted machine has noted for its next start
}

// orderedSkip is a command that is skipped, and the entry that says so.
type orderedSkip struct {
	at raftpb.Position
	by uint64
}

// Of returns the entry that skips a command, or 0.
func (s *Skips) Of(at raftpb.Position) (by uint64) {
	ordered := s.ordered.Load()
	if ordered == nil {
		return 0
	}
	if i, found := slices.BinarySearchFunc(*ordered, at, func(o orderedSkip, at raftpb.Position) int { return o.at.Compare(at) }); found {
		return (*ordered)[i].by
	}
	return 0
}

// within returns the entry that skips a command which may have halted the machine, apart from those that the
// machine was not given, or 0.
func (s *Skips) within(h *outcome.HaltedError, passed []raftpb.Position) (by uint64) {
	ordered := s.ordered.Load()
	if ordered == nil {
		return 0
	}
	for _, o := range *ordered {
		if h.MayBe(o.at) && !slices.Contains(passed, o.at) {
			by = max(by, o.by)
		}
	}
	return by
}

// IsOpen reports whether an entry behind index skips a command at or in front of it.
func (s *Skips) IsOpen(index uint64) bool {
	ordered := s.ordered.Load()
	return ordered != nil && slices.ContainsFunc(*ordered, func(o orderedSkip) bool { return o.at.Index <= index && index < o.by })
}

// Order notes a committed entry that skips a command. It returns which, and reports whether that is new.
func (s *Skips) Order(e *raftpb.Entry) (at raftpb.Position, isNews bool, err error) {
	skip, err := entry.DecodeSkip(e.Data)
	if err != nil || skip.Step != entry.SkipInForce || skip.At.Index >= e.Index {
		return at, false, errors.New("it skips no command before it")
	}
	return skip.At, s.Add(skip.At, e.Index), nil
}

// Add notes a committed entry. It reports whether it is new.
func (s *Skips) Add(at raftpb.Position, by uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Of(at) > 0 {
		return false
	}
	var next []orderedSkip
	if was := s.ordered.Load(); was != nil {
		next = append(next, *was...)
	}
	next = append(next, orderedSkip{at, by})
	slices.SortFunc(next, func(a, b orderedSkip) int { return a.at.Compare(b.at) })
	next = next[max(0, len(next)-entry.MaxSkips):]
	s.ordered.Store(&next)
	s.known.Store(max(s.known.Load(), by))
	return true
}

// Known returns the last entry that skips a command.
func (s *Skips) Known() uint64 { return s.known.Load() }

// Any reports whether a command is skipped.
func (s *Skips) Any() bool { return s.ordered.Load() != nil }
