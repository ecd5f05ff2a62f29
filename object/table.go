package object

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Table is the sets of a group, as one member has applied them. A Table is used by one goroutine at a time.
//
// For each entry that is applied, in log order: Advance with its log time, if it has one; then what it says.
type Table struct {
	options Options
	now     time.Duration
	bytes   int64
	sets    map[ID]*Set
	next    time.Duration // no set expires before it
}

// New returns an empty table. o must be valid.
func New(o Options) *Table {
	return &Table{options: o.WithDefaults(), sets: map[ID]*Set{}, next: math.MaxInt64}
}

// Now returns the log time: the highest that an entry has named.
func (t *Table) Now() time.Duration { return t.now }

// Next returns the log time at which the next set goes, if no command keeps it before; the highest time if
// none will. It may be too early.
func (t *Table) Next() time.Duration { return t.next }

// Len returns the number of sets, and the length of their contents.
func (t *Table) Len() (sets int, contents int64) { return len(t.sets), t.bytes }

// Get returns a set. Its Holders must not be changed.
func (t *Table) Get(id ID) (s Set, ok bool) {
	if found := t.sets[id]; found != nil {
		return *found, true
	}
	return s, false
}

// All returns the sets, in the order of their opening.
func (t *Table) All() []Set {
	all := make([]Set, 0, len(t.sets))
	for _, s := range t.sets {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Set) int { return cmp.Compare(a.Opened, b.Opened) })
	return all
}

// Advance moves the log time to that of the entry index, and returns the sets that are not there any more, by
// id. A time that is behind changes nothing.
func (t *Table) Advance(index uint64, now time.Duration) (gone []Gone) {
	if t.now = max(t.now, now); t.now < t.next {
		return nil
	}
	t.next = math.MaxInt64
	for id, s := range t.sets {
		switch {
		case s.Kept:
		case s.Expires <= t.now:
			t.bytes -= s.Bytes
			delete(t.sets, id)
			gone = append(gone, Gone{id, index})
		default:
			t.next = min(t.next, s.Expires)
		}
	}
	slices.SortFunc(gone, func(a, b Gone) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return gone
}

// expire makes a set go in its life from now on.
func (t *Table) expire(s *Set) {
	s.Kept, s.Expires = false, later(t.now, s.Life)
	t.next = min(t.next, s.Expires)
}

// later returns a time and a span after it, at most the highest time.
func later(at, by time.Duration) time.Duration {
	if at > math.MaxInt64-by {
		return math.MaxInt64
	}
	return at + by
}

// Open makes a set, with the entry index. An entry that comes again changes nothing, and is no error.
func (t *Table) Open(index uint64, o Opening) error {
	if err := o.reject(); err != nil {
		return err
	}
	switch s := t.sets[o.ID]; {
	case s != nil && s.opening() == o:
		return nil
	case s != nil:
		return fmt.Errorf("%w: %v is there already; draw another id", ErrRefused, o.ID)
	case len(t.sets) >= t.options.MaxSets:
		return fmt.Errorf("%w: the group has %d, the most that it may have; release some, or wait until some expire", ErrRefused, len(t.sets))
	case o.Bytes > t.options.MaxBytes-t.bytes:
		return fmt.Errorf("%w: %d bytes are too many: the group has %d of at most %d; release some, or wait until some expire", ErrRefused, o.Bytes, t.bytes, t.options.MaxBytes)
	}
	s := &Set{ID: o.ID, Bytes: o.Bytes, Hash: o.Hash, Manifest: o.Manifest, Uploader: o.Uploader, Opened: index, Life: o.Life}
	t.expire(s)
	t.sets[o.ID] = s
	t.bytes += o.Bytes
	return nil
}

// opening returns the entry that made the set.
func (s *Set) opening() Opening {
	return Opening{ID: s.ID, Bytes: s.Bytes, Hash: s.Hash, Manifest: s.Manifest, Uploader: s.Uploader, Life: s.Life}
}

// Hold notes, with the entry index, which members hold a set. isQuorum says whether some members, with these
// directories, are a quorum of the configuration in force at that entry: of both halves, if it is joint.
func (t *Table) Hold(index uint64, h Holding, isQuorum func([]Holder) bool) error {
	if err := h.reject(); err != nil {
		return err
	}
	s := t.sets[h.ID]
	switch {
	case s == nil:
		return fmt.Errorf("%w: %v", ErrUnknown, h.ID)
	case !isQuorum(h.Holders):
		return fmt.Errorf("%w %v: members %v are none of the configuration in force at entry %d", ErrNotHeld, h.ID, ids(h.Holders), index)
	}
	s.Held, s.Holders = index, slices.Clone(h.Holders)
	return nil
}

func ids(holders []Holder) (all []uint64) {
	for _, h := range holders {
		all = append(all, h.ID)
	}
	return all
}

// Name returns a set that a command names, or why the command must be refused.
func (t *Table) Name(id ID) (Set, error) {
	switch s := t.sets[id]; {
	case s == nil:
		return Set{}, fmt.Errorf("%w: %v was never opened, or it has expired by log time %v", ErrUnknown, id, t.now)
	case s.Held == 0:
		return Set{}, fmt.Errorf("%w: %v was opened by entry %d; wait until it is held", ErrNotHeld, id, s.Opened)
	default:
		return *s, nil
	}
}

// Keep makes a set stay until it is released. Of a set that is kept it changes nothing.
func (t *Table) Keep(id ID) error {
	if _, err := t.Name(id); err != nil {
		return err
	}
	s := t.sets[id]
	s.Kept, s.Expires = true, 0
	return nil
}

// Release makes a set go when its life has passed, unless a command keeps it before. Of a set that is not
// kept it changes nothing.
func (t *Table) Release(id ID) error {
	s := t.sets[id]
	switch {
	case s == nil:
		return fmt.Errorf("%w: %v was never opened, or it has expired by log time %v", ErrUnknown, id, t.now)
	case s.Kept:
		t.expire(s)
	}
	return nil
}
