package wal

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Recent shows what the twin has, from the first entry asked for and without a gap, or nothing. It does no
// disk operation, and neither does Term, on a disk that fails every one. What it shows obeys maxBytes as
// Entries does. Entries that were just appended are there, as long as the cache is large enough for them.
func TestRecentTwin(t *testing.T) {
	found, absent, short := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		fs, sched := crashfs.New(), &manual{}
		opts := testOptions(fs, sched)
		opts.FS = fs.Mount()
		opts.CacheBytes = rapid.SampledFrom([]int64{-1, 3000, 20_000, 1 << 20}).Draw(t, "cache")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		w := &workload{draw: rng.IntN, term: map[uint64]uint64{}, deletes: true}
		l, want := mustOpenIn(t, opts), twin{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rng.IntN(10) {
			case 0:
				fs.Crash(crashfs.LoseNothing, nil)
				opts.FS = fs.Mount()
				l = mustOpenIn(t, opts)
			case 1:
				sched.step()
			default:
				writes := w.next(want)
				if err := l.Append(writes); err != nil {
					t.Fatal(err)
				}
				want.apply(writes)
				if n := len(writes) - 1; opts.CacheBytes == 1<<20 && len(writes[n].Entries) > 0 {
					es := writes[n].Entries
					got, ok := l.Group(writes[n].Group).Recent(es[0].Index, es[0].Index+uint64(len(es)), 1<<20)
					if !ok || len(got) != len(es) {
						t.Fatalf("of %d entries just appended %d are in memory (%v)", len(es), len(got), ok)
					}
				}
			}
			operations := 0
			fs.SetHook(func(crashfs.Op) error { operations++; return errDisk })
			for id := range want {
				s, g := want[id], l.Group(id)
				lo := uint64(rng.IntN(int(s.last()) + 3))
				hi := lo + uint64(rng.IntN(int(s.last())+3))
				maxBytes := uint64(rng.IntN(4000))
				got, ok := g.Recent(lo, hi, maxBytes)
				if why := s.rejectRecent(got, ok, lo, hi, maxBytes); why != "" {
					t.Fatalf("group %d, %d to %d, at most %d bytes: %s", id, lo, hi, maxBytes, why)
				}
				switch {
				case len(got) > 0 && len(got) < int(hi-lo):
					short++
				case len(got) > 0:
					found++
				case !ok:
					absent++
				}
				if term, err := g.Term(lo); lo >= s.start.Index && lo <= s.last() && (err != nil || term != s.term(lo)) {
					t.Fatalf("term of %d: %d, %v", lo, term, err)
				}
			}
			if fs.SetHook(nil); operations > 0 {
				t.Fatalf("%d disk operations", operations)
			}
		}
	})
	if found == 0 || absent == 0 || short == 0 {
		t.Errorf("found %d times, not %d times, partly %d times", found, absent, short)
	}
}

// rejectRecent returns how the answer of Recent is wrong, or "".
func (s groupState) rejectRecent(got []raftpb.Entry, ok bool, lo, hi, maxBytes uint64) string {
	switch {
	case lo >= hi && (!ok || len(got) > 0):
		return "an empty range is not there"
	case lo >= hi:
		return ""
	case !ok && len(got) > 0:
		return "entries, and they are not there"
	case !ok:
		return ""
	case lo <= s.start.Index || hi > s.last()+1 || len(got) == 0 || len(got) > int(hi-lo):
		return "more is there than the log has, or nothing"
	}
	bytes := uint64(0)
	for i, e := range got {
		if !sameEntry(e, s.entries[lo+uint64(i)-s.start.Index-1]) {
			return "another entry is there"
		}
		bytes += entryBytes(len(e.Data))
	}
	if bytes > maxBytes && len(got) > 1 {
		return "more bytes than allowed"
	}
	return ""
}

// An entry that only the disk has is not recent; the disk then fails the read that Recent leaves to Entries.
func TestRecentLeavesTheDiskAlone(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 4, 1, 100)})
	fs.SetHook(func(crashfs.Op) error { return errDisk })
	defer fs.SetHook(nil)
	if got, ok := l.Group(1).Recent(1, 4, 1<<20); ok || len(got) > 0 {
		t.Errorf("%d entries without a cache", len(got))
	}
	if _, err := l.Group(1).Entries(1, 4, 1<<20); !errors.Is(err, errDisk) {
		t.Errorf("the disk was not read: %v", err)
	}
}

// A reader that goes through the cache, a few entries at a time, sees what was written last. So it does if
// the log was cut before the place where it stopped, and other entries are there now.
func TestReaderGoesOnWhereItStopped(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.CacheBytes = 1 << 20
	l := mustOpen(t, opts)
	rng := rand.New(rand.NewPCG(7, 0))
	var log []raftpb.Entry
	next, term, cuts, read := 0, uint64(1), 0, 0
	for range 3000 {
		if rng.IntN(3) == 0 {
			from := len(log)
			if cut := from - rng.IntN(8); cut >= 0 && cut < from && rng.IntN(4) == 0 {
				from, term = cut, term+1
				cuts++
			}
			fresh := make([]raftpb.Entry, 1+rng.IntN(4))
			for i := range fresh {
				data := make([]byte, []int{0, 9, largeBytes, largeBytes + 50}[rng.IntN(4)])
				for k := range data {
					data[k] = byte(rng.Uint32())
				}
				fresh[i] = raftpb.Entry{Index: uint64(from + i + 1), Term: term, Data: data}
			}
			mustAppend(t, l, Write{Group: 1, Entries: fresh})
			log = append(log[:from:from], fresh...)
			next = min(next, from+rng.IntN(len(fresh)))
		}
		hi := min(next+1+rng.IntN(3), len(log))
		got, ok := l.Group(1).Recent(uint64(next)+1, uint64(hi)+1, 1<<20)
		if next < hi && (!ok || len(got) != hi-next) {
			t.Fatalf("of entries %d to %d there are %d", next+1, hi, len(got))
		}
		for i := range got {
			if !sameEntry(got[i], log[next+i]) {
				t.Fatalf("entry %d of term %d, in place of one of term %d", got[i].Index, got[i].Term, log[next+i].Term)
			}
		}
		read += len(got)
		if next = hi; rng.IntN(20) == 0 {
			next = rng.IntN(len(log) + 1) // another reader
			next = max(next, len(log)-100)
		}
	}
	if cuts < 50 || read < 1000 {
		t.Errorf("%d cuts, %d entries read", cuts, read)
	}
}
