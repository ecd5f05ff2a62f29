package wal

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// A client that proposes commands chooses bytes of the log, and may know the format, the segment and the
// offset. But it does not know the salt. So a header in a command stays data, whatever happens to the
// record around it.

// guesses returns the seals of an attacker that knows everything about a log except its salts.
func guesses(l *Log) map[string]record.Seal {
	s := l.tail.seg.head.Seal()
	id := l.ID()
	with := func(salt uint64) record.Seal { return record.Seal{Segment: s.Segment, Salt: salt, Version: s.Version} }
	return map[string]record.Seal{
		"no salt":                {Segment: s.Segment, Version: s.Version},
		"the log's id":           with(binary.LittleEndian.Uint64(id[:])),
		"the log's id, its rest": with(binary.LittleEndian.Uint64(id[8:])),
		"the segment's crc":      with(uint64(l.tail.seg.head.CRC)<<32 | uint64(l.tail.seg.head.CRC)),
		"version 2":              {Segment: s.Segment, Version: 2},
	}
}

// forgedEntry returns the data of an entry that will be at off. It contains a header that is made for its own
// place in the segment.
func forgedEntry(s record.Seal, off int64, h record.Header) []byte {
	data := make([]byte, 3000)
	for i := range data {
		data[i] = 'A'
	}
	at := off + record.HeaderBytes + 1600
	if h.Kind == record.KindWatermark {
		h.Durable = uint64(at)
	}
	putForged(data[1600:], h, uint8(s.Version), s, at)
	return data
}

func saltOptions(fs *crashfs.FS) Options {
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes = 64 << 10
	return opts
}

// A command contains a watermark record that says more is durable than is. No power cut may make the log
// refuse to open because of it.
func TestForgedWatermark(t *testing.T) {
	for name := range guesses(mustOpen(t, saltOptions(crashfs.New()))) {
		fs := crashfs.New()
		l := mustOpen(t, saltOptions(fs))
		mustAppend(t, l, add(1, 5, 1))
		mustSync(t, l)
		data := forgedEntry(guesses(l)[name], l.tail.seg.end, record.Header{Kind: record.KindWatermark})
		mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{{Index: 5, Term: 1, Data: data}}})
		torn := 0
		for what, image := range fs.Images(288, 1) {
			again, err := Open(saltOptions(image))
			if err != nil {
				t.Fatalf("%s, a power cut that leaves %s: %v", name, what, err)
			}
			if again.Group(1).LastIndex() == 4 {
				torn++
			}
		}
		if torn == 0 {
			t.Errorf("%s: no power cut tore the entry", name)
		}
	}
}

// A command contains a header whose length covers everything after it. A flipped bit in the header of the
// entry with that command must still be damage, because durable records follow it.
func TestForgedLength(t *testing.T) {
	for name := range guesses(mustOpen(t, saltOptions(crashfs.New()))) {
		fs := crashfs.New()
		l := mustOpen(t, saltOptions(fs))
		mustAppend(t, l, add(1, 5, 1))
		mustSync(t, l)
		at := l.tail.seg.end
		huge := record.Header{Kind: record.KindEntry, Group: 1, Index: 6, Term: 1, Length: uint32(l.tail.seg.size - at - 4000)}
		mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{{Index: 5, Term: 1, Data: forgedEntry(guesses(l)[name], at, huge)}}})
		for i := uint64(6); i < 60; i++ {
			mustSync(t, l)
			mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 9, Vote: 3}, Entries: entries(i, i+1, 1, 300)})
		}
		mustSync(t, l)
		fs.Crash(crashfs.LoseNothing, nil)
		if err := fs.FlipBit(l.tail.seg.path, at+20, 3); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, err := Open(saltOptions(fs)); !errors.As(err, &corrupt) || corrupt.Offset != at {
			t.Errorf("%s: have %v, want damage at %d", name, err, at)
		}
	}
}

// Each segment has its own salt, a reused file gets a new one, and no salt is the log's id.
func TestSaltsDiffer(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l := mustOpen(t, opts)
	seen := map[uint64]uint64{}
	for i := uint64(1); l.Stats().Recycled < 3; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 500)}, Write{Group: 1, CompactThrough: i})
		sched.runIdle()
		head := l.tail.seg.head
		if id, ok := seen[head.Salt]; ok && id != head.ID {
			t.Fatalf("segments %d and %d have the same salt", id, head.ID)
		}
		seen[head.Salt] = head.ID
		if id := l.ID(); head.Log != record.LogID(id) || binary.LittleEndian.Uint64(id[:]) == head.Salt || binary.LittleEndian.Uint64(id[8:]) == head.Salt {
			t.Fatalf("%+v", head)
		}
	}
	opts = testOptions(crashfs.New(), &manual{})
	opts.Rand = io.LimitReader(seeded(1), 20) // the id, and half a salt
	if _, err := Open(opts); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "random numbers for the salt") {
		t.Error(err)
	}
	opts = testOptions(crashfs.New(), &manual{})
	opts.Rand = strings.NewReader("")
	if _, err := Open(opts); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "id of the log") {
		t.Error(err)
	}
}
