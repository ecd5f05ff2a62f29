package wal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// cutStore is a log whose last write has a hard state, replaces entries, and crosses the ends of two
// segments. A crash can cut that write off at each of its records.
type cutStore struct {
	files  map[string][]byte
	before twin     // the state without the write
	after  twin     // the state with it
	cuts   []placed // the records of the write, in order
}

func newCutStore(t *testing.T) cutStore {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes = 1024
	l, want := mustOpen(t, opts), twin{}
	for _, w := range []Write{
		{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 1, Commit: 1}, Entries: entries(1, 7, 1, 20)},
		{Group: 2, HardState: raftpb.HardState{Term: 4, Vote: 2}, Entries: entries(1, 3, 4, 20)},
	} {
		mustAppend(t, l, w)
		want.apply([]Write{w})
	}
	mustSync(t, l)
	s := cutStore{before: want.clone(), after: want}
	w := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3, Commit: 9}}
	for i := uint64(3); i <= 24; i++ { // the same term as the replaced entries, so that only the data differs
		w.Entries = append(w.Entries, raftpb.Entry{Index: i, Term: 1, Data: bytes.Repeat([]byte{0xEE}, 20)})
	}
	from := position{l.tail.seg.id, l.tail.seg.end}
	mustAppend(t, l, w)
	s.after.apply([]Write{w})
	if l.tail.seg.id < 3 {
		t.Fatalf("the write ends in segment %d", l.tail.seg.id)
	}
	fs.Crash(crashfs.LoseNothing, nil)
	s.files = files(t, fs)
	err := readRecords(t, fs, func(r placed) error {
		if at := (position{r.Segment, r.Offset}); !at.before(from) {
			s.cuts = append(s.cuts, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cut returns a disk on which record r and everything after it were not written.
func (s *cutStore) cut(t *testing.T, r placed) *crashfs.FS {
	kept := map[string][]byte{}
	for name, data := range s.files {
		id, ok := record.ParseSegmentName(name)
		switch {
		case ok && id > r.Segment:
			continue
		case ok && id == r.Segment:
			data = bytes.Clone(data)
			clear(data[r.Offset:])
		}
		kept[name] = data
	}
	return diskOf(t, kept)
}

// Wherever a write is cut off, its group shows nothing of it, even on a full disk. The entries that the write
// would have replaced remain, its own entries cannot be read, and entries appended later in their place can.
func TestUnfinishedWriteCountsForNothing(t *testing.T) {
	s := newCutStore(t)
	if len(s.cuts) < 25 { // 23 records and two links
		t.Fatalf("%d records", len(s.cuts))
	}
	for i, r := range s.cuts {
		t.Run(fmt.Sprintf("%d %s at %d %d", i, r.Kind, r.Segment, r.Offset), func(t *testing.T) {
			fs := s.cut(t, r)
			opts := testOptions(fs, &manual{})
			opts.SegmentBytes, opts.CacheBytes = 1024, -1
			in := mustInspect(t, fs)
			if open := i > 0; open != (in.worst() == TornEnd) || open && in.Findings[0].Rule != "R11" {
				t.Errorf("inspected: %+v", in.Findings)
			}
			fs.SetCapacity(fs.UsedBytes())
			for range 2 { // the second one opens the log that the first one has repaired
				l := mustOpen(t, opts)
				s.before.check(t, l)
				fs.Crash(crashfs.LoseAll, nil)
			}
			if in := mustInspect(t, fs); len(in.Findings) > 0 {
				t.Errorf("mended: %+v", in.Findings)
			}
			voids := 0
			if err := readRecords(t, fs, func(r placed) error {
				if r.Kind == record.KindVoid {
					voids++
				}
				return nil
			}); err != nil || voids != min(i, 1) {
				t.Errorf("%d void records, %v", voids, err)
			}

			fs.SetCapacity(0)
			l, want := mustOpen(t, opts), s.before.clone()
			w := Write{Group: 1, Entries: entries(7, 30, 1, 20)}
			mustAppend(t, l, w)
			want.apply([]Write{w})
			want.check(t, l)
			mustSync(t, l)
			fs.Crash(crashfs.LoseAll, nil)
			want.check(t, mustOpen(t, opts))
		})
	}
	fs := diskOf(t, s.files)
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes, opts.CacheBytes = 1024, -1
	s.after.check(t, mustOpen(t, opts))
}

// A group whose only write is unfinished does not exist.
func TestUnfinishedWriteFoundsNoGroup(t *testing.T) {
	s := forge(1).link(nil).entry(1).addPart(record.Header{Kind: record.KindEntry, Edge: record.Begins, Group: 2, Index: 1, Term: 1}, nil)
	fs := diskOf(t, forgedDir(s))
	for range 2 { // the second one reads the void record
		if in := mustInspect(t, fs); len(in.Groups) != 1 {
			t.Errorf("%+v", in.Groups)
		}
		l := mustOpen(t, testOptions(fs, &manual{}))
		if ids := l.Groups(); len(ids) != 1 || ids[0] != 1 {
			t.Errorf("groups %v", ids)
		}
		mustClose(t, l)
	}
}

// If damage follows an unfinished write, the write is lost, not torn.
func TestDamageTakesTheWriteThatItCutsThrough(t *testing.T) {
	one := forge(1).link(nil).entry(1).part(record.Begins, 2)
	bad := one.part(0, 3).file()
	bad[len(one.data)-1] ^= 1 // the last byte of the data of entry 3
	first := forge(1).link(nil).entry(1).part(record.Begins, 2)
	for name, m := range map[string]map[string][]byte{
		"in the middle":   {record.SegmentName(1): bad, record.SegmentName(2): forge(2).link(one).part(record.Ends, 4).file()},
		"a foreign write": {record.SegmentName(1): first.file(), record.SegmentName(2): forge(2).link(first).entry(9).file()},
	} {
		in := mustInspect(t, diskOf(t, m))
		lost := false
		for _, f := range in.Findings {
			lost = lost || f.Kind == Damaged && len(f.Lost) > 0 && f.Lost[0].First == 2
		}
		if in.worst() != Damaged || !lost {
			t.Errorf("%s: %+v", name, in.Findings)
		}
		if es, err := in.Group(1).Entries(2, 3, 1<<20); err == nil {
			t.Errorf("%s: the inspection shows %+v", name, es)
		}
	}
}

// A term or vote that is a part of a cut write is lost with it, so the member may have voted: the loss names
// its group. (Survived a judge's plants.)
func TestDamageTakesTheVoteOfAWrite(t *testing.T) {
	state := record.Header{Kind: record.KindHardState, Edge: record.Begins, Group: 1, Term: 2}
	one := forge(1).link(nil).entry(1).addPart(state, make([]byte, record.HardStateBytes)).part(0, 2)
	bad := one.file()
	bad[len(one.data)-1] ^= 1 // the last byte of the data of entry 2
	in := mustInspect(t, diskOf(t, map[string][]byte{record.SegmentName(1): bad, record.SegmentName(2): forge(2).link(one).part(record.Ends, 3).file()}))
	if !slices.ContainsFunc(in.Findings, func(f Finding) bool { return f.Kind == Damaged && slices.Contains(f.LostStates, 1) }) {
		t.Errorf("no finding says that the state of group 1 is lost: %+v", in.Findings)
	}
}

// Damage in the middle of a write takes all of it: no recovery shows a part, before the damage or behind it.
// Either the log does not open, or it shows what was before the write, and does so again.
func TestNoPartOfADamagedWriteCounts(t *testing.T) {
	s := newCutStore(t)
	opened := 0
	for i, r := range s.cuts {
		if r.Kind == record.KindLink {
			continue
		}
		name := record.SegmentName(r.Segment)
		for _, at := range []int64{0, 8, r.Bytes() - 1} {
			damaged := maps.Clone(s.files)
			damaged[name] = bytes.Clone(damaged[name])
			damaged[name][r.Offset+at] ^= 4
			fs := diskOf(t, damaged)
			opts := testOptions(fs, &manual{})
			opts.SegmentBytes, opts.CacheBytes = 1024, -1
			for range 2 {
				l, err := Open(opts)
				if err != nil {
					break
				}
				opened++
				if wrong := matches(l, s.before); wrong != "" {
					t.Fatalf("record %d (%s) is damaged at byte %d: %s", i, r.Kind, at, wrong)
				}
				fs.Crash(crashfs.LoseAll, nil)
			}
		}
	}
	if opened == 0 {
		t.Error("no log was opened")
	}
}

// The cleaner moves entries of a slow group: some before and some after a void, whose write had entries of
// the same indexes. A coarse index must not join the two parts across the voided entries.
func TestReadersDoNotWalkOverAVoid(t *testing.T) {
	data := func(i byte) []byte { return []byte{i, i, i, i} }
	s := forge(3).linkTo(2, 999, 1)
	moved := func(i uint64) {
		s.add(record.Header{Kind: record.KindMoved, Group: 1, Index: i, Term: 1}, data(byte(i)))
	}
	s.add(record.Header{Kind: record.KindFront, Index: 3}, nil)
	moved(1)
	moved(2)
	s.addPart(record.Header{Kind: record.KindEntry, Edge: record.Begins, Group: 1, Index: 3, Term: 1}, data(0xEE))
	s.addPart(record.Header{Kind: record.KindEntry, Group: 1, Index: 4, Term: 1}, data(0xEE))
	s.add(record.Header{Kind: record.KindVoid, Group: 1}, nil)
	moved(3)
	moved(4)
	s.add(record.Header{Kind: record.KindEntry, Group: 2, Index: 1, Term: 1}, nil)
	opts := testOptions(diskOf(t, forgedDir(s)), &manual{})
	opts.CacheBytes, opts.IndexBytes = -1, 1
	l := mustOpen(t, opts)
	es, err := l.Group(1).Entries(1, 5, 1<<20)
	if err != nil || len(es) != 4 {
		t.Fatalf("%d entries, %v", len(es), err)
	}
	for i, e := range es {
		if want := data(byte(i + 1)); !bytes.Equal(e.Data, want) {
			t.Errorf("entry %d is % x, want % x", e.Index, e.Data, want)
		}
	}
}

// Atomic writes take no more bytes and records than the writes before them did: the numbers in the table are
// from the commit before atomic writes.
func TestWriteTakesNoMoreThanItsRecords(t *testing.T) {
	for _, row := range []struct {
		name    string
		write   Write
		bytes   uint64
		records int
	}{
		{"an entry", Write{Group: 1, Entries: entries(1, 2, 1, 100)}, 152, 1},
		{"an empty entry", Write{Group: 1, Entries: entries(1, 2, 1, 0)}, 48, 1},
		{"a hard state", Write{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 1}}, 64, 1},
		{"an entry and its commit index", Write{Group: 1, HardState: raftpb.HardState{Term: 1, Commit: 1}, Entries: entries(1, 2, 1, 1024)}, 1136, 2},
		{"a batch", Write{Group: 1, HardState: raftpb.HardState{Term: 1, Commit: 1}, Entries: entries(1, 65, 1, 16)}, 4160, 65},
		{"a snapshot", Write{Group: 1, HardState: raftpb.HardState{Term: 3, Commit: 9}, Snapshot: Snapshot{9, 3}, Entries: entries(10, 12, 3, 8)}, 224, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			fs := crashfs.New()
			opts := testOptions(fs, &manual{})
			opts.SegmentBytes = 64 << 10
			l := mustOpen(t, opts)
			mustAppend(t, l, Write{Group: 9, Entries: entries(1, 2, 1, 1)}) // writes the segment's link record too
			before := l.Stats().AppendedBytes
			mustAppend(t, l, row.write)
			if n := l.Stats().AppendedBytes - before; n != row.bytes {
				t.Errorf("%d bytes, want %d", n, row.bytes)
			}
			records := -2 // the link and the first entry
			if err := readRecords(t, fs, func(placed) error { records++; return nil }); err != nil || records != row.records {
				t.Errorf("%d records, want %d; %v", records, row.records, err)
			}
		})
	}
}
