package wal

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Whoever may propose a command decides what stands in the log, and may know the format, the segment and the offset. Without
// the salt a header in a command is data, whatever happens to the record that it is in.

// guesses are the seals that somebody tries who knows all of a log but its salts.
func guesses(l *Log) map[string]seal {
	s := l.tail.head.seal()
	id := l.ID()
	with := func(salt uint64) seal { return seal{segment: s.segment, salt: salt, version: s.version} }
	return map[string]seal{
		"no salt":                {segment: s.segment, version: s.version},
		"the log's id":           with(binary.LittleEndian.Uint64(id[:])),
		"the log's id, its rest": with(binary.LittleEndian.Uint64(id[8:])),
		"the segment's crc":      with(uint64(l.tail.head.crc)<<32 | uint64(l.tail.head.crc)),
		"version 2":              {segment: s.segment, version: 2},
	}
}

// forgedEntry is the data of an entry that will stand at off: a header for its own place is in it.
func forgedEntry(s seal, off int64, h header) []byte {
	data := make([]byte, 3000)
	for i := range data {
		data[i] = 'A'
	}
	at := off + recordHead + 1600
	if h.kind == kindMark {
		h.durable = uint64(at)
	}
	putForged(data[1600:], h, uint8(s.version), s, at)
	return data
}

func saltOptions(fs *crashfs.FS) Options {
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes = 64 << 10
	return opts
}

// A header in a command that says that more was durable than was: no power cut makes the log refuse to open.
func TestForgedWatermark(t *testing.T) {
	for name := range guesses(mustOpen(t, saltOptions(crashfs.New()))) {
		fs := crashfs.New()
		l := mustOpen(t, saltOptions(fs))
		mustAppend(t, l, add(1, 5, 1))
		mustSync(t, l)
		data := forgedEntry(guesses(l)[name], l.tail.end, header{kind: kindMark})
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

// A header in a command that claims all that stands behind it as its data: a bit that is turned over in the command's own header is
// damage, as more was durable behind it.
func TestForgedLength(t *testing.T) {
	for name := range guesses(mustOpen(t, saltOptions(crashfs.New()))) {
		fs := crashfs.New()
		l := mustOpen(t, saltOptions(fs))
		mustAppend(t, l, add(1, 5, 1))
		mustSync(t, l)
		at := l.tail.end
		huge := header{kind: kindEntry, group: 1, index: 6, term: 1, length: uint32(l.tail.size - at - 4000)}
		mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{{Index: 5, Term: 1, Data: forgedEntry(guesses(l)[name], at, huge)}}})
		for i := uint64(6); i < 60; i++ {
			mustSync(t, l)
			mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 9, Vote: 3}, Entries: entries(i, i+1, 1, 300)})
		}
		mustSync(t, l)
		fs.Crash(crashfs.LoseNothing, nil)
		if err := fs.FlipBit(l.tail.path, at+20, 3); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, err := Open(saltOptions(fs)); !errors.As(err, &corrupt) || corrupt.Offset != at {
			t.Errorf("%s: have %v, want damage at %d", name, err, at)
		}
	}
}

// sprays counts what of many commands of 8 MiB, full of headers whose checks are guessed, is valid where it lands: by 16
// bits of the check, and by all. No guess is better than another one.
func sprays(n int) (few, all int64) {
	const headers = 8 << 20 / recordHead
	var hits [2]atomic.Int64
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for k := next.Add(1); k <= int64(n); k = next.Add(1) {
				rng := rand.New(rand.NewPCG(uint64(k), 9))
				s := seal{segment: uint64(k), salt: rng.Uint64(), version: formatVersion}
				off := rng.Int64N(56<<20) &^ (recordAlign - 1)
				var b [recordHead]byte
				putHeader(b[:], header{kind: kindMark, durable: uint64(off)}, s, 0)
				for range headers {
					binary.LittleEndian.PutUint64(b[checkAt:], rng.Uint64())
					if s.proves(b[:], off, 0xFFFF) {
						hits[0].Add(1)
						if s.proves(b[:], off, allBits) {
							hits[1].Add(1)
						}
					}
					off += recordHead
				}
			}
		})
	}
	workers.Wait()
	return hits[0].Load(), hits[1].Load()
}

func TestSpraysOfHeaders(t *testing.T) {
	n := 1000
	if testing.Short() || raceEnabled {
		n = 60
	}
	want := float64(n) * (8 << 20 / recordHead) / (1 << 16)
	few, all := sprays(n)
	if float64(few) < 0.8*want || float64(few) > 1.2*want { // 60 commands: 2.5 standard deviations
		t.Errorf("with 16 bits %d headers of %d commands are valid, want about %.0f", few, n, want)
	}
	if all > 0 {
		t.Errorf("with 64 bits %d headers of %d commands are valid", all, n)
	}
}

// Each segment has a salt of its own, a file that is used again gets a new one, and it is not the log's id.
func TestSaltsDiffer(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l := mustOpen(t, opts)
	seen := map[uint64]uint64{}
	for i := uint64(1); l.Stats().Recycled < 3; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 500)}, Write{Group: 1, CompactThrough: i})
		sched.settle()
		head := l.tail.head
		if id, ok := seen[head.salt]; ok && id != head.id {
			t.Fatalf("segments %d and %d have one salt", id, head.id)
		}
		seen[head.salt] = head.id
		if id := l.ID(); head.log != logID(id) || binary.LittleEndian.Uint64(id[:]) == head.salt || binary.LittleEndian.Uint64(id[8:]) == head.salt {
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
