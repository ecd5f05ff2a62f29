package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The decoders believe nothing: whatever they are given, they return, and what they accept is what an encoder makes.
// FuzzRecover, in crash_test.go, does the same for all of a recovery.

func FuzzRecord(f *testing.F) {
	for _, version := range []uint8{firstVersion, formatVersion} {
		seal := seal{segment: 1, version: uint32(version)} // a salt adds nothing here
		for _, k := range []kind{kindLink, kindMoved} {
			record := make([]byte, recordBytes(8))
			h := header{kind: k, index: 1, length: 8, bodyCRC: crc32.Update(7, castagnoli, record[recordHead:])}
			putForged(record, h, max(version, 2), seal, segmentHead)
			f.Add(record, uint64(1), int64(segmentHead), uint32(7))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, segment uint64, off int64, chain uint32) {
		for _, version := range []uint32{firstVersion, formatVersion} {
			s := seal{segment: segment, version: version}
			h, body, why := parseRecord(data, s, off, chain)
			if why != flawNone {
				continue
			}
			again := make([]byte, recordHead+len(body))
			if putForged(again, h, h.version, s, off); !bytes.Equal(again[:recordHead], data[:recordHead]) {
				t.Errorf("header %x is encoded as %x", data[:recordHead], again[:recordHead])
			}
			if int64(len(data)) < h.bytes() || len(body) != int(h.length) {
				t.Errorf("a body of %d bytes for a length of %d in %d bytes", len(body), h.length, len(data))
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	store, _ := smallStore(f)
	for _, name := range []string{segmentName(1), segmentName(2)} {
		f.Add(store[name], uint64(1))
	}
	f.Add(forge(5).linkTo(4, 999, 1).entry(7).add(header{kind: kindTruncate, group: 1, index: 7}, nil).data, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, id uint64) {
		data = data[:len(data)&^(recordAlign-1)]
		l := &Log{opts: Options{Owner: 7}, groups: map[uint64]*Group{}, indexes: newIndexes(minSegmentBytes)}
		tr := &trace{seg: &segment{id: id, path: "fuzz", size: int64(len(data))}}
		tr.check(data)
		if err := l.apply(contents{trace: tr, data: data}); err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrOwner) {
				t.Error(err)
			}
			return
		}
		if tr.records > 0 && (tr.end > int64(len(data)) || tr.written > int64(len(data)) || tr.marked > tr.end) {
			t.Errorf("%d records end at %d of %d, to be overwritten to %d, marked to %d", tr.records, tr.end, len(data), tr.written, tr.marked)
		}
		for _, g := range l.groups {
			end := uint64(0)
			for _, m := range g.index.marks {
				if m.n == 0 || m.lo < end {
					t.Errorf("marks %+v", g.index.marks)
				}
				end = m.hi()
			}
		}
	})
}

func FuzzFence(f *testing.F) {
	f.Add(readGolden(f, "fence.hex"))
	f.Add(readGolden(f, "fence2.hex"))
	f.Add(readGolden(f, "fence-newer.hex"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := decodeFence(data, "F"); err == nil && d.version == fenceVersion && !bytes.Equal(d.encode()[:104], data[:104]) {
			t.Errorf("%x is encoded as %x", data, d.encode())
		}
	})
}

// TestWriteFuzzCorpus adds to the committed corpus what the present format makes: MILLRACE_WRITE_CORPUS=1 writes it.
// What earlier formats made stays.
func TestWriteFuzzCorpus(t *testing.T) {
	if os.Getenv("MILLRACE_WRITE_CORPUS") == "" {
		t.Skip("set MILLRACE_WRITE_CORPUS=1 to rewrite testdata")
	}
	store, _ := smallStore(t)
	good := store[segmentName(1)]
	torn := append([]byte(nil), good...)
	clear(torn[512:])
	flipped := append([]byte(nil), good...)
	flipped[300] ^= 1
	stale := append(append([]byte(nil), good[:400]...), store[segmentName(2)][400:]...) // a recycled file
	story := readGolden(t, "version3.hex")
	for name, data := range map[string][]byte{"good": good, "torn": torn, "flipped": flipped, "cut": good[:333], "stale": stale, "story": story} {
		quoted := fmt.Sprintf("[]byte(%q)\n", data)
		writeCorpus(t, "FuzzRecover", name, quoted)
		writeCorpus(t, "FuzzSegment", name, quoted+"uint64(1)\n")
	}
	for off := int64(segmentHead); off < int64(len(story)); {
		chain := binary.LittleEndian.Uint32(story[60:])
		if off > segmentHead {
			chain = lastChain(story, off)
		}
		head, _ := parseSegmentHead(story)
		h, _ := parseHeader(story[off:], head.seal(), off)
		record := bytes.Clone(story[off:][:h.bytes()])
		putForged(record, h, h.version, seal{segment: 1, version: formatVersion}, off) // as FuzzRecord knows no salt
		writeCorpus(t, "FuzzRecord", h.kind.String(), fmt.Sprintf("[]byte(%q)\nuint64(1)\nint64(%d)\nuint32(%d)\n", record, off, chain))
		off += h.bytes()
	}
	writeCorpus(t, "FuzzFence", "dirty", fmt.Sprintf("[]byte(%q)\n", readGolden(t, "fence2.hex")))
}

// lastChain returns the chain before the record at off.
func lastChain(segment []byte, off int64) (chain uint32) {
	head, _ := parseSegmentHead(segment)
	for at := int64(segmentHead); at < off; {
		h, _ := parseHeader(segment[at:], head.seal(), at)
		chain = h.chain
		at += h.bytes()
	}
	return chain
}

func writeCorpus(t *testing.T, target, name, values string) {
	dir := filepath.Join("testdata", "fuzz", target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, strings.ReplaceAll(fmt.Sprintf("v%d-%s", formatVersion, name), " ", "-"))
	if err := os.WriteFile(path, []byte("go test fuzz v1\n"+values), 0o644); err != nil {
		t.Fatal(err)
	}
}
