package apply

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A command waits at a member while its log has an entry that may lead to a skip, and this is not decided. So
// a member that has such an entry, and has not applied the command, does not apply it meanwhile: not after a
// restart either. A leader that knows this of a majority may skip the command.
//
// The machine is halted in front of the command then, and works again when it is decided. It was not called
// with the command, so its state is whole.

// Hold is a command that waits.
type Hold struct {
	ID   [16]byte // of the skip
	At   raftpb.Position
	By   uint64 // the entry that says so,
	Term uint64 // and its term
}

// AddHold makes a command wait. A turn calls it, when the entry is in the log.
func (s *Skips) AddHold(h Hold) {
	if slices.Contains(s.Holds(), h) {
		return
	}
	holds := append(slices.Clone(s.Holds()), h)
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.By, b.By)) })
	s.holds.Store(&holds)
}

// Holds returns what waits. The caller must not change it.
func (s *Skips) Holds() []Hold {
	if holds := s.holds.Load(); holds != nil {
		return *holds
	}
	return nil
}

// EndHolds ends those for which a function returns true, and reports whether there were any. A turn calls it,
// and wakes the queue.
func (s *Skips) EndHolds(isOver func(Hold) bool) bool {
	was := s.Holds()
	left := slices.DeleteFunc(slices.Clone(was), isOver)
	switch {
	case len(left) == len(was):
		return false
	case len(left) == 0:
		s.holds.Store(nil)
	default:
		s.holds.Store(&left)
	}
	return true
}

// HeldBy returns the entry for which a command waits, or 0.
func (s *Skips) HeldBy(at raftpb.Position) (by uint64) {
	for _, h := range s.Holds() {
		if h.At == at {
			by = max(by, h.By)
		}
	}
	return by
}

// free returns how many of the first commands do not wait. If that is none, held is why. All commands of an
// entry wait together: what is applied ends with an entry.
func (q *Queue) free(commands []statemachine.Entry) (n int, held *outcome.HaltedError) {
	q.trying.Store(commands[len(commands)-1].Index) // before it looks: MayHaveApplied
	holds := q.Skips.Holds()
	if holds == nil || q.rebuilding || q.inTurn {
		return len(commands), nil // what is applied again was applied
	}
	for n = range commands {
		at := commands[n].Position()
		i := slices.IndexFunc(holds, func(h Hold) bool { return h.At.Index == at.Index })
		if i < 0 || at.Index <= q.kept.Load() || q.Skips.Of(holds[i].At) > 0 {
			continue
		}
		if n == 0 {
			held = q.heldAt(holds[i])
		}
		return n, held
	}
	return len(commands), nil
}

// heldAt returns the halt in front of a command that waits.
func (q *Queue) heldAt(h Hold) *outcome.HaltedError {
	return &outcome.HaltedError{
		Group: q.Group, First: h.At.Index, FirstPos: h.At.Pos, Last: h.At.Index, LastPos: h.At.Pos, Held: h.By,
		Cause: fmt.Errorf("millrace: it waits until the group has decided whether it is skipped (entry %d)", h.By),
	}
}

// endHold makes a machine work again that has waited in front of a command, if that is decided.
func (q *Queue) endHold(h *outcome.HaltedError) (works bool) {
	at, _ := h.Command()
	if q.Skips.HeldBy(at) > 0 && q.Skips.Of(at) == 0 {
		return false
	}
	q.resume()
	return true
}

// MayHaveApplied reports whether this member may have applied a command, or may be in the middle of it. If it
// is false, and the command waits, then this member does not apply it. What a machine on disk has kept
// counts, also if it was halted later in the same round; a state in memory is made again then.
func (q *Queue) MayHaveApplied(index uint64) bool {
	if q.applied.Load() >= index || q.through.Load() >= index || q.kept.Load() >= index {
		return true
	}
	return q.trying.Load() >= index && q.Halted() == nil
}

// holdOf returns what waits for an entry.
func holdOf(e *raftpb.Entry) (Hold, bool) {
	if !entry.IsSkip(e.Type, e.Data) {
		return Hold{}, false
	}
	s, err := entry.DecodeSkip(e.Data)
	return Hold{[16]byte(s.ID), s.At, e.Index, e.Term}, err == nil && s.Step == entry.SkipHeld && s.At.Index < e.Index
}

// HoldBack makes the command of an entry wait that was appended to the log, if it says so and the machine has
// not applied it.
func (q *Queue) HoldBack(e *raftpb.Entry) {
	if h, is := holdOf(e); is && q.applied.Load() < h.At.Index {
		q.Skips.AddHold(h)
	}
}

// Release ends the waiting of a command for which a committed entry says so, and reports whether it waited.
func (q *Queue) Release(e *raftpb.Entry) bool {
	s, err := entry.DecodeSkip(e.Data)
	return err == nil && s.Step == entry.SkipReleased && q.Skips.EndHolds(func(h Hold) bool { return h.At == s.At && h.By < e.Index })
}

// MayApplyHeld reports whether this member may be in the middle of a command that waits: then it does not say
// what it has applied.
func (q *Queue) MayApplyHeld() bool {
	return slices.ContainsFunc(q.Skips.Holds(), func(h Hold) bool {
		return q.applied.Load() < h.At.Index && q.MayHaveApplied(h.At.Index)
	})
}
