package wal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// summed returns entries of many lengths, with their sums or without.
func summed(known bool) (all []raftpb.Entry) {
	for i := range uint64(40) {
		e := raftpb.Entry{Index: i + 1, Term: 1, Data: bytes.Repeat([]byte{byte(i), 7, byte(3 * i)}, int(i*i)/3)}
		if known {
			e.Sum = crcjoin.Sum(e.Data)
		}
		all = append(all, e)
	}
	return all
}

// A log of entries whose sums are known has the same bytes as one of entries that it sums up itself.
func TestSumsChangeNoByte(t *testing.T) {
	var logs []string
	for _, known := range []bool{false, true} {
		fs := crashfs.New()
		l := mustOpen(t, testOptions(fs, &manual{}))
		mustAppend(t, l, Write{Group: 3, HardState: raftpb.HardState{Term: 1}, Entries: summed(known)})
		mustClose(t, l)
		logs = append(logs, fmt.Sprintf("%x", files(t, fs)))
	}
	if logs[0] != logs[1] {
		t.Error("the files differ")
	}
}

// A byte that has changed since its entry was summed is not sealed as good: the next Open finds it.
func TestRotBehindTheSumIsFound(t *testing.T) {
	for _, n := range []int{1, 7, 8, 100, 5000} {
		for _, known := range []bool{false, true} {
			fs := crashfs.New()
			l := mustOpen(t, testOptions(fs, &manual{}))
			e := raftpb.Entry{Index: 1, Term: 1, Data: make([]byte, n)}
			if known {
				e.Sum = crcjoin.Sum(e.Data)
			}
			e.Data[n/2] ^= 16
			mustAppend(t, l, Write{Group: 3, HardState: raftpb.HardState{Term: 1}, Entries: []raftpb.Entry{e}})
			mustClose(t, l)
			l, err := Open(testOptions(fs, &manual{}))
			if known != errors.Is(err, ErrCorrupt) {
				t.Errorf("%d bytes, summed before they changed: %v; Open says %v", n, known, err)
			}
			if err == nil {
				mustClose(t, l)
			}
		}
	}
}

// The cache keeps the sums of entries, whatever was in its memory before, and whatever was taken back.
func TestCacheKeepsSums(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.CacheBytes = 20_000
	l := mustOpen(t, opts)
	defer mustClose(t, l)
	next := uint64(1)
	for term := range uint64(200) {
		var es []raftpb.Entry
		for i := range 5 {
			e := entry(next+uint64(i), term+1, int(term*37+uint64(i)*211)%1000)
			if e.Sum = 0; i != 2 {
				e.Sum = crcjoin.Sum(e.Data)
			}
			es = append(es, e)
		}
		mustAppend(t, l, Write{Group: 3, Entries: es})
		have, ok := l.Group(3).Recent(next, next+5, 1<<20)
		if !ok || len(have) != len(es) {
			t.Fatalf("%d of %d entries are in memory", len(have), len(es))
		}
		for i := range have {
			if have[i].Sum != es[i].Sum {
				t.Fatalf("entry %d of term %d has sum %08x, want %08x", have[i].Index, term+1, have[i].Sum, es[i].Sum)
			}
		}
		next += 3 // the last two are overwritten
	}
}
