package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// The model is the naive twin of a log: for each group a hard state, where its log begins, and a slice of
// entries. It has no durability; the cases keep the states that a crash may leave.

// groupState is a group of the model: entries[i] has index start.Index+1+i. Slices are never changed in
// place, so copies may share them.
type groupState struct {
	hs      raftpb.HardState
	start   wal.Snapshot
	entries []raftpb.Entry
	deleted bool
}

type model map[uint64]groupState

func (s *groupState) last() uint64 { return s.start.Index + uint64(len(s.entries)) }

func (s *groupState) term(i uint64) uint64 {
	if i == s.start.Index {
		return s.start.Term
	}
	return s.entries[i-s.start.Index-1].Term
}

// through returns the entries up to i, with no spare capacity.
func (s *groupState) through(i uint64) []raftpb.Entry {
	n := i - s.start.Index
	return s.entries[:n:n]
}

// typed returns the indexes of the entries in [lo, hi) that have a type.
func (s *groupState) typed(lo, hi uint64) (indexes []uint64) {
	for i := range s.entries {
		if e := &s.entries[i]; !e.Type.HoldsCommands() && e.Index >= lo && e.Index < hi {
			indexes = append(indexes, e.Index)
		}
	}
	return indexes
}

// begin makes the log begin after a snapshot.
func (s *groupState) begin(snap wal.Snapshot) {
	switch {
	case snap.Index <= s.start.Index:
		return
	case snap.Index <= s.last() && s.term(snap.Index) == snap.Term:
		s.entries = s.entries[snap.Index-s.start.Index:]
	default:
		s.entries = nil
	}
	s.start = snap
	s.raiseCommit()
}

// raiseCommit keeps the rule that what was compacted is committed.
func (s *groupState) raiseCommit() {
	if s.hs != (raftpb.HardState{}) {
		s.hs.Commit = max(s.hs.Commit, s.start.Index)
	}
}

// apply applies valid writes.
func (m model) apply(writes ...wal.Write) {
	for i := range writes {
		w := &writes[i]
		s := m[w.Group]
		if w.Delete {
			s = groupState{deleted: true}
		}
		if w.HardState != (raftpb.HardState{}) {
			s.hs = w.HardState
			s.raiseCommit()
		}
		s.begin(w.Snapshot)
		if w.CompactThrough > s.start.Index {
			s.begin(wal.Snapshot{Index: w.CompactThrough, Term: s.term(w.CompactThrough)})
		}
		if w.TruncateFrom != 0 && w.TruncateFrom <= s.last() {
			s.entries = s.through(w.TruncateFrom - 1)
		}
		if len(w.Entries) > 0 {
			s.entries = append(s.through(w.Entries[0].Index-1), w.Entries...)
		}
		m[w.Group] = s
	}
}

// deleted returns the deleted groups, in order.
func (m model) deleted() []uint64 {
	ids := []uint64{}
	for id, s := range m {
		if s.deleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// append appends writes to the log and to the model.
func (x *exam) append(writes ...wal.Write) {
	if err := x.log.Append(slices.Clone(writes)); err != nil {
		x.fatalf("append of %s: %v", describe(writes), err)
	}
	x.want.apply(writes...)
}

// check compares all groups with the model.
func (x *exam) check() {
	if why := x.want.diff(x.log); why != "" {
		x.fatalf("%s", why)
	}
}

// diff returns how a log differs from the model, or "".
func (m model) diff(l host.Log) string {
	if have, want := l.Deleted(), m.deleted(); !slices.Equal(have, want) {
		return fmt.Sprintf("the log says that groups %d were deleted, want %d", have, want)
	}
	known := l.Groups()
	slices.Sort(known)
	if len(slices.Compact(slices.Clone(known))) != len(known) {
		return fmt.Sprintf("Groups names a group twice: %d", known)
	}
	for _, id := range slices.Sorted(maps.Keys(m)) {
		s := m[id]
		empty := s.hs == raftpb.HardState{} && s.start == wal.Snapshot{} && len(s.entries) == 0
		switch _, found := slices.BinarySearch(known, id); {
		case found && s.deleted:
			return fmt.Sprintf("Groups names group %d, which was deleted", id)
		case !found && !empty:
			return fmt.Sprintf("Groups does not name group %d, which was written to", id)
		}
		if why := s.diff(l.Group(id)); why != "" {
			return fmt.Sprintf("group %d: %s", id, why)
		}
	}
	for _, id := range known {
		if _, ok := m[id]; !ok {
			if why := (&groupState{}).diff(l.Group(id)); why != "" {
				return fmt.Sprintf("group %d, which was never written to: %s", id, why)
			}
		}
	}
	return ""
}

// diff returns how a group of a log differs from the model, or "".
func (s *groupState) diff(g host.GroupLog) string {
	if hs := g.HardState(); hs != s.hs {
		return fmt.Sprintf("hard state %+v, want %+v", hs, s.hs)
	}
	first, last := s.start.Index+1, s.last()
	if g.FirstIndex() != first || g.LastIndex() != last || g.Snapshot() != s.start {
		return fmt.Sprintf("entries %d to %d after %+v, want %d to %d after %+v", g.FirstIndex(), g.LastIndex(), g.Snapshot(), first, last, s.start)
	}
	for i := s.start.Index; i <= last; i++ {
		if term, err := g.Term(i); err != nil || term != s.term(i) {
			return fmt.Sprintf("term of entry %d is %d, %v; want %d", i, term, err, s.term(i))
		}
	}
	if s.start.Index > 0 {
		if term, err := g.Term(s.start.Index - 1); !errors.Is(err, wal.ErrCompacted) {
			return fmt.Sprintf("term of the compacted entry %d: %d, %v; want wal.ErrCompacted", s.start.Index-1, term, err)
		}
		if es, err := g.Entries(s.start.Index, s.start.Index+1, 100); !errors.Is(err, wal.ErrCompacted) {
			return fmt.Sprintf("read of the compacted entry %d: %d entries, %v; want wal.ErrCompacted", s.start.Index, len(es), err)
		}
	}
	if term, err := g.Term(last + 1); !errors.Is(err, wal.ErrUnavailable) {
		return fmt.Sprintf("term of entry %d, above the last: %d, %v; want wal.ErrUnavailable", last+1, term, err)
	}
	if es, err := g.Entries(max(1, last), last+2, 1<<20); err == nil {
		return fmt.Sprintf("read of entry %d, above the last: %d entries and no error", last+1, len(es))
	}
	for _, lo := range []uint64{first, first + 3} {
		if typed := g.Typed(lo, last+1); !slices.Equal(typed, s.typed(lo, last+1)) {
			return fmt.Sprintf("from entry %d on, entries %v have a type, want %v", lo, typed, s.typed(lo, last+1))
		}
	}
	es, err := g.Entries(first, last+1, ^uint64(0))
	if err != nil {
		return fmt.Sprintf("read of entries %d to %d: %v", first, last, err)
	}
	if len(es) != len(s.entries) {
		return fmt.Sprintf("read of entries %d to %d: %d of them", first, last, len(es))
	}
	return s.compare(es, first)
}

// compare returns how entries that were read, starting at lo, differ from the model, or "".
func (s *groupState) compare(es []raftpb.Entry, lo uint64) string {
	for i := range es {
		at := lo + uint64(i)
		if at <= s.start.Index || at > s.last() {
			return fmt.Sprintf("there is an entry %d, and the log holds %d to %d", at, s.start.Index+1, s.last())
		}
		if e, want := &es[i], &s.entries[at-s.start.Index-1]; !same(e, want) {
			return fmt.Sprintf("entry %d is (index %d, term %d, type %d, %d bytes that begin with %.8x), want (%d, %d, %d, %d, %.8x)", at,
				e.Index, e.Term, e.Type, len(e.Data), e.Data, want.Index, want.Term, want.Type, len(want.Data), want.Data)
		}
	}
	return ""
}

func same(a, b *raftpb.Entry) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
}

// describe says what writes are, for messages.
func describe(writes []wal.Write) string {
	var b bytes.Buffer
	for i := range writes {
		w := &writes[i]
		fmt.Fprintf(&b, "{group %d", w.Group)
		if w.Delete {
			b.WriteString(", deleted")
		}
		if w.HardState != (raftpb.HardState{}) {
			fmt.Fprintf(&b, ", hard state %+v", w.HardState)
		}
		if w.Snapshot != (wal.Snapshot{}) {
			fmt.Fprintf(&b, ", snapshot %+v", w.Snapshot)
		}
		if w.CompactThrough > 0 {
			fmt.Fprintf(&b, ", compacted through %d", w.CompactThrough)
		}
		if w.TruncateFrom > 0 {
			fmt.Fprintf(&b, ", truncated from %d", w.TruncateFrom)
		}
		if n := len(w.Entries); n > 0 {
			fmt.Fprintf(&b, ", entries %d to %d", w.Entries[0].Index, w.Entries[n-1].Index)
		}
		b.WriteString("} ")
	}
	return b.String()
}

// entries returns the entries [lo, hi) of a term, each with n bytes that depend on index and term.
func entries(lo, hi, term uint64, n int) (es []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		es = append(es, entry(i, term, n))
	}
	return es
}

func entry(i, term uint64, n int) raftpb.Entry {
	e := raftpb.Entry{Index: i, Term: term}
	if n > 0 {
		e.Data = make([]byte, n)
	}
	for k := range e.Data {
		e.Data[k] = byte(i*31 + term*7 + uint64(k)*3 + 1)
	}
	return e
}

// workload draws writes that Raft groups could make: terms never fall, a vote changes only with the term, and
// committed entries are not truncated.
type workload struct {
	rng *rand.Rand
	n   uint64
}

// workloadGroups is how many groups a workload writes to at a time. Where one was deleted, another one takes
// its place.
const workloadGroups = 4

// next draws the writes of one append, some of them of the same group.
func (w *workload) next(now model) (writes []wal.Write) {
	now = maps.Clone(now)
	for range 1 + w.rng.IntN(4) {
		id := uint64(1 + w.rng.IntN(workloadGroups))
		for now[id].deleted {
			id += workloadGroups
		}
		write := w.write(id, now[id])
		now.apply(write)
		writes = append(writes, write)
	}
	return writes
}

func (w *workload) write(id uint64, s groupState) wal.Write {
	draw := w.rng.IntN
	wr := wal.Write{Group: id}
	if draw(40) == 0 {
		wr.Delete = true
		return wr
	}
	term := max(s.hs.Term, 1)
	newTerm := s.hs.Term == 0 || draw(4) == 0
	if newTerm {
		term = s.hs.Term + 1
	}
	switch low := max(s.hs.Commit, s.start.Index); {
	case draw(5) == 0 && s.hs.Commit > s.start.Index && s.hs.Commit <= s.last():
		wr.CompactThrough = s.start.Index + 1 + uint64(draw(int(s.hs.Commit-s.start.Index)))
	case draw(20) == 0:
		wr.Snapshot = wal.Snapshot{Index: s.last() + 1 + uint64(draw(9)), Term: term}
	case draw(20) == 0 && s.hs.Commit > s.start.Index && s.hs.Commit <= s.last():
		wr.Snapshot = wal.Snapshot{Index: s.hs.Commit, Term: s.term(s.hs.Commit)}
	case draw(10) == 0 && s.last() > low:
		wr.TruncateFrom = low + 1 + uint64(draw(int(s.last()-low)))
	}
	now := model{id: s}
	now.apply(wr)
	s = now[id]
	low := max(s.hs.Commit, s.start.Index)
	from := s.last() + 1
	if draw(4) == 0 && s.last() > low {
		from = s.last() - uint64(draw(int(s.last()-low)))
	}
	for i := range uint64(draw(5)) {
		w.n++
		size := draw(100)
		if draw(20) == 0 {
			size = draw(5000)
		}
		e := entry(from+i, term, size)
		e.Type = raftpb.EntryType(draw(3))
		for k := range min(4, len(e.Data)) { // so that entries differ that are at the same place
			e.Data[k] ^= byte(w.n >> (8 * k))
		}
		wr.Entries = append(wr.Entries, e)
	}
	end := s.last()
	if n := len(wr.Entries); n > 0 {
		end = wr.Entries[n-1].Index
	}
	if newTerm || draw(3) == 0 {
		wr.HardState = raftpb.HardState{Term: term, Vote: s.hs.Vote, Commit: low + uint64(draw(1+int(end-low)))}
		if newTerm {
			wr.HardState.Vote = uint64(draw(4))
		}
	}
	return wr
}
