package raft

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// storageTwin is a naive MemoryStorage: the term of each index about which something is known, and which of
// those are whole entries.
type storageTwin struct {
	terms       map[uint64]uint64
	first, last uint64
	snapshot    raftpb.Snapshot
}

func newStorageTwin() *storageTwin {
	return &storageTwin{terms: map[uint64]uint64{0: 0}, first: 1}
}

func (w *storageTwin) append(entries []raftpb.Entry) error {
	if len(entries) > 0 && entries[0].Index > w.last+1 {
		return ErrUnavailable
	}
	for _, e := range entries {
		if e.Index >= w.first {
			w.terms[e.Index], w.last = e.Term, e.Index
		}
	}
	maps.DeleteFunc(w.terms, func(i, _ uint64) bool { return i > w.last })
	return nil
}

func (w *storageTwin) compact(i uint64) error {
	if _, err := w.term(i); err != nil || i < w.first {
		return cmp.Or(err, ErrCompacted)
	}
	w.first = i + 1
	maps.DeleteFunc(w.terms, func(j, _ uint64) bool { return j < i })
	return nil
}

func (w *storageTwin) create(i uint64, data []byte) error {
	if i <= w.snapshot.Metadata.Index {
		return ErrSnapOutOfDate
	}
	term, err := w.term(i)
	if err == nil {
		w.snapshot.Data, w.snapshot.Metadata.Index, w.snapshot.Metadata.Term = data, i, term
	}
	return err
}

func (w *storageTwin) apply(snap raftpb.Snapshot) error {
	i := snap.Metadata.Index
	if i <= w.snapshot.Metadata.Index || i+1 < w.first {
		return ErrSnapOutOfDate
	}
	w.snapshot, w.first, w.last = snap, i+1, i
	w.terms = map[uint64]uint64{i: snap.Metadata.Term}
	return nil
}

func (w *storageTwin) term(i uint64) (uint64, error) {
	term, known := w.terms[i]
	switch {
	case known:
		return term, nil
	case i < w.first:
		return 0, ErrCompacted
	}
	return 0, ErrUnavailable
}

func (w *storageTwin) entries(lo, hi uint64) (string, error) {
	switch {
	case lo < w.first:
		return "", ErrCompacted
	case lo >= hi || hi > w.last+1:
		return "", ErrUnavailable
	}
	var entries []raftpb.Entry
	for i := lo; i < hi; i++ {
		entries = append(entries, raftpb.Entry{Term: w.terms[i], Index: i})
	}
	return describeEntries(entries), nil
}

// In whatever order entries are appended, compacted, snapshotted and restored, and however wrong the
// arguments are, a MemoryStorage answers every question like its twin, and what it has handed out never
// changes.
func TestMemoryStorageIsItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, w := NewMemoryStorage(), newStorageTwin()
		var handedOut []*handout
		index := func(name string) uint64 {
			return rapid.Uint64Range(w.first-min(w.first, 3), w.last+3).Draw(t, name)
		}
		agree := func(what string, have, want error) {
			if (have == nil) != (want == nil) || !errors.Is(have, want) {
				t.Fatalf("%s: have %v, want %v", what, have, want)
			}
		}
		term := uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			term += rapid.Uint64Range(0, 1).Draw(t, "newer term")
			switch i := index("index"); rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				entries := make([]raftpb.Entry, rapid.IntRange(0, 5).Draw(t, "entries"))
				for n := range entries {
					entries[n] = raftpb.Entry{Term: term, Index: i + uint64(n)}
				}
				agree("append", s.Append(entries), w.append(entries))
				clear(entries) // it belongs to the caller again
			case 3:
				agree("compact", s.Compact(i), w.compact(i))
			case 4:
				data := fmt.Append(nil, "state at ", i)
				snap, err := s.CreateSnapshot(i, nil, data)
				agree("create snapshot", err, w.create(i, data))
				if err == nil && !reflect.DeepEqual(snap, w.snapshot) {
					t.Fatalf("created %+v, want %+v", snap, w.snapshot)
				}
			case 5:
				snap := raftpb.Snapshot{Data: fmt.Append(nil, "a leader's at ", i), Metadata: raftpb.SnapshotMetadata{
					Index: i, Term: term, ConfState: raftpb.ConfState{Voters: []uint64{i}}}}
				agree("apply snapshot", s.ApplySnapshot(snap), w.apply(snap))
			}

			if first, _ := s.FirstIndex(); first != w.first {
				t.Fatalf("begins at %d, want %d", first, w.first)
			}
			if last, _ := s.LastIndex(); last != w.last {
				t.Fatalf("ends at %d, want %d", last, w.last)
			}
			if snap, err := s.Snapshot(); err != nil || !reflect.DeepEqual(snap, w.snapshot) {
				t.Fatalf("snapshot %+v, %v; want %+v", snap, err, w.snapshot)
			}
			if _, cs, _ := s.InitialState(); !reflect.DeepEqual(cs, w.snapshot.Metadata.ConfState) {
				t.Fatalf("configuration %+v, want %+v", cs, w.snapshot.Metadata.ConfState)
			}
			for i := w.first - min(w.first, 3); i <= w.last+2; i++ {
				have, err := s.Term(i)
				want, wantErr := w.term(i)
				agree(fmt.Sprintf("term of %d", i), err, wantErr)
				if have != want {
					t.Fatalf("term of %d is %d, want %d", i, have, want)
				}
			}
			lo, hi := index("lo"), index("hi")
			have, err := s.Entries(lo, hi, noLimit)
			want, wantErr := w.entries(lo, hi)
			agree(fmt.Sprintf("entries [%d,%d)", lo, hi), err, wantErr)
			if err == nil {
				if describeEntries(have) != want {
					t.Fatalf("entries [%d,%d): have %s, want %s", lo, hi, describeEntries(have), want)
				}
				handedOut = append(handedOut, newHandout(have))
				_ = append(have, raftpb.Entry{Term: 1 << 40}) // must go to another array
			}
			for _, h := range handedOut {
				h.check(t)
			}
		}
	})
}

// A wrong argument is answered with a sentence with its numbers, and changes nothing.
func TestMemoryStorageRefuses(t *testing.T) {
	s := NewMemoryStorage()
	must(t, s.Append(logOfTerms(1, 1, 1, 2, 2, 2)))
	must(t, s.Compact(3))
	_, err := s.CreateSnapshot(5, &raftpb.ConfState{Voters: []uint64{1}}, nil)
	must(t, err)
	create := func(i uint64) error { _, err := s.CreateSnapshot(i, nil, nil); return err }
	entries := func(lo, hi uint64) error { _, err := s.Entries(lo, hi, noLimit); return err }
	for _, c := range []struct {
		name string
		err  error
		want error
		says string
	}{
		{"a hole after the log", s.Append([]raftpb.Entry{{Index: 8}}), ErrUnavailable, "starting at 8 leaves a gap after the last entry, 6"},
		{"a hole in what is appended", s.Append([]raftpb.Entry{{Index: 5}, {Index: 7}}), ErrUnavailable, "have index 7, want 6"},
		{"a hole in what is skipped", s.Append([]raftpb.Entry{{Index: 1}, {Index: 3}}), ErrUnavailable, "have index 3, want 2"},
		{"compact again", s.Compact(3), ErrCompacted, "compacted"},
		{"compact beyond the log", s.Compact(7), ErrUnavailable, "through 7, but the log ends at 6"},
		{"the same snapshot again", create(5), ErrSnapOutOfDate, "at least as new"},
		{"a snapshot beyond the log", create(7), ErrUnavailable, "entry 7, but the log has [4,6]"},
		{"entries beyond the log", entries(4, 8), ErrUnavailable, "[4,8), but the log has [4,6]"},
		{"no entries", entries(4, 4), ErrUnavailable, "[4,4), but the log has [4,6]"},
		{"compacted entries", entries(3, 5), ErrCompacted, "compacted"},
	} {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: have %q, want %q that says %q", c.name, c.err, c.want, c.says)
		}
	}
	if have, err := s.Entries(4, 7, noLimit); err != nil || describeEntries(have) != "[4@2 5@2 6@2]" {
		t.Errorf("after all this: %s, %v", describeEntries(have), err)
	}
}

// The short rest of a long log must not pin the array of all its former entries.
func TestMemoryStorageLetsItsArrayGo(t *testing.T) {
	s := NewMemoryStorage()
	must(t, s.Append(logOfTerms(make([]uint64, 1000)...)))
	must(t, s.Compact(999))
	if have := cap(s.entries); len(s.entries) != 1 || have > 16 {
		t.Errorf("%d entries in an array of %d, want 1 in a small one", len(s.entries), have)
	}
}

// A snapshot behind the compacted part of the log would take the log back.
func TestMemoryStorageNeverGoesBack(t *testing.T) {
	s := NewMemoryStorage()
	must(t, s.Append(logOfTerms(1, 1, 1, 1)))
	must(t, s.Compact(3))
	behind := raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 2, Term: 1}}
	if err := s.ApplySnapshot(behind); !errors.Is(err, ErrSnapOutOfDate) {
		t.Errorf("apply: have %v", err)
	}
	if _, err := s.CreateSnapshot(2, nil, nil); !errors.Is(err, ErrCompacted) {
		t.Errorf("create: have %v", err)
	}
	must(t, s.Append(logOfTerms(9, 9))) // skipped: a log that began before 3 cannot say anything new about it
	if last, _ := s.LastIndex(); last != 4 {
		t.Errorf("ends at %d, want 4", last)
	}
}

// The configuration that SetConfState set stays until a snapshot brings another one.
func TestMemoryStorageConfState(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	must(t, s.Append(logOfTerms(1, 1)))
	voters := func() []uint64 { _, cs, _ := s.InitialState(); return cs.Voters }
	snap, err := s.CreateSnapshot(1, nil, nil)
	must(t, err)
	if want := []uint64{1, 2, 3}; !slices.Equal(voters(), want) || !slices.Equal(snap.Metadata.ConfState.Voters, want) {
		t.Errorf("voters %v, in the snapshot %v; want %v", voters(), snap.Metadata.ConfState.Voters, want)
	}
	_, err = s.CreateSnapshot(2, &raftpb.ConfState{Voters: []uint64{4}}, nil)
	must(t, err)
	if want := []uint64{4}; !slices.Equal(voters(), want) {
		t.Errorf("voters %v, want %v", voters(), want)
	}
}

// The append worker writes while the core reads, and a third goroutine compacts: for the race detector, and
// so that no reader sees a log with a gap.
func TestMemoryStorageConcurrently(t *testing.T) {
	s := NewMemoryStorage()
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range uint64(500) {
			_ = s.Append([]raftpb.Entry{{Term: 1, Index: i + 1}})
			_ = s.SetHardState(raftpb.HardState{Term: 1, Commit: i})
		}
	})
	writers.Go(func() {
		for i := range uint64(500) {
			_, _ = s.CreateSnapshot(i, nil, nil)
			_ = s.Compact(i / 2)
		}
	})
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		entries, err := s.Entries(first, last+1, noLimit)
		if err != nil && !errors.Is(err, ErrCompacted) && last >= first {
			t.Fatalf("entries [%d,%d]: %v", first, last, err)
		}
		for i, e := range entries {
			if e.Index != first+uint64(i) {
				t.Fatalf("entry %d of [%d,%d] has index %d", i, first, last, e.Index)
			}
		}
		if _, _, err := s.InitialState(); err != nil {
			t.Fatal(err)
		}
	}
}
