package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/wal/record"
)

// The decoders trust no input. They return for any bytes, and accept only what an encoder makes.
// FuzzRecover, in crash_test.go, does the same for a whole recovery.

func FuzzRecord(f *testing.F) {
	for _, version := range []uint8{record.FirstVersion, record.FormatVersion} {
		seal := record.Seal{Segment: 1, Version: uint32(version)} // the salt is 0; another one would test nothing more
		for _, k := range []record.Kind{record.KindLink, record.KindMoved} {
			rec := make([]byte, record.Bytes(8))
			h := record.Header{Kind: k, Index: 1, Length: 8, BodyCRC: record.ChainBody(7, rec[record.HeaderBytes:])}
			putForged(rec, h, max(version, 2), seal, record.SegmentHeaderBytes)
			f.Add(rec, uint64(1), int64(record.SegmentHeaderBytes), uint32(7))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, segment uint64, off int64, chain uint32) {
		for _, version := range []uint32{record.FirstVersion, record.FormatVersion} {
			s := record.Seal{Segment: segment, Version: version}
			h, body, why := record.Parse(data, s, off, chain)
			if why != record.FlawNone {
				continue
			}
			again := make([]byte, record.HeaderBytes+len(body))
			if putForged(again, h, h.Version, s, off); !bytes.Equal(again[:record.HeaderBytes], data[:record.HeaderBytes]) {
				t.Errorf("header %x is encoded as %x", data[:record.HeaderBytes], again[:record.HeaderBytes])
			}
			if int64(len(data)) < h.Bytes() || len(body) != int(h.Length) {
				t.Errorf("a body of %d bytes for a length of %d in %d bytes", len(body), h.Length, len(data))
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	store, _ := smallStore(f)
	for _, name := range []string{record.SegmentName(1), record.SegmentName(2)} {
		f.Add(store[name], uint64(1))
	}
	f.Add(forge(5).linkTo(4, 999, 1).entry(7).add(record.Header{Kind: record.KindTruncation, Group: 1, Index: 7}, nil).data, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, id uint64) {
		data = data[:len(data)&^(record.Alignment-1)]
		sc := newScan(Options{Owner: 7, SegmentBytes: minSegmentBytes, Logger: slog.New(slog.DiscardHandler)}, nil)
		tr := &trace{seg: &segment{id: id, path: "fuzz", size: int64(len(data))}}
		tr.check(data)
		if err := sc.apply(contents{trace: tr, data: data}); err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrOwner) {
				t.Error(err)
			}
			return
		}
		if tr.records > 0 && (tr.end > int64(len(data)) || tr.written > int64(len(data)) || tr.watermark > tr.end) {
			t.Errorf("%d records end at %d of %d, to be overwritten to %d, with a watermark at %d", tr.records, tr.end, len(data), tr.written, tr.watermark)
		}
		for _, g := range sc.table.groups {
			end := uint64(0)
			for _, m := range g.index.runs {
				if m.n == 0 || m.lo < end {
					t.Errorf("runs %+v", g.index.runs)
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

// TestWriteFuzzCorpus adds inputs of the present format to the committed corpus, if
// MILLRACE_WRITE_CORPUS=1. The inputs of earlier formats stay.
func TestWriteFuzzCorpus(t *testing.T) {
	if os.Getenv("MILLRACE_WRITE_CORPUS") == "" {
		t.Skip("set MILLRACE_WRITE_CORPUS=1 to rewrite testdata")
	}
	store, _ := smallStore(t)
	good := store[record.SegmentName(1)]
	torn := append([]byte(nil), good...)
	clear(torn[512:])
	flipped := append([]byte(nil), good...)
	flipped[300] ^= 1
	stale := append(append([]byte(nil), good[:400]...), store[record.SegmentName(2)][400:]...) // a recycled file
	story := readGolden(t, "version3.hex")
	for name, data := range map[string][]byte{"good": good, "torn": torn, "flipped": flipped, "cut": good[:333], "stale": stale, "story": story} {
		quoted := fmt.Sprintf("[]byte(%q)\n", data)
		writeCorpus(t, "FuzzRecover", name, quoted)
		writeCorpus(t, "FuzzSegment", name, quoted+"uint64(1)\n")
	}
	for off := int64(record.SegmentHeaderBytes); off < int64(len(story)); {
		chain := binary.LittleEndian.Uint32(story[60:])
		if off > record.SegmentHeaderBytes {
			chain = lastChain(story, off)
		}
		head, _ := record.ParseSegmentHeader(story)
		h, _ := record.ParseHeader(story[off:], head.Seal(), off)
		rec := bytes.Clone(story[off:][:h.Bytes()])
		putForged(rec, h, h.Version, record.Seal{Segment: 1, Version: record.FormatVersion}, off) // FuzzRecord uses no salt
		writeCorpus(t, "FuzzRecord", h.Kind.String(), fmt.Sprintf("[]byte(%q)\nuint64(1)\nint64(%d)\nuint32(%d)\n", rec, off, chain))
		off += h.Bytes()
	}
	writeCorpus(t, "FuzzFence", "dirty", fmt.Sprintf("[]byte(%q)\n", readGolden(t, "fence2.hex")))
}

// lastChain returns the chain before the record at off.
func lastChain(segment []byte, off int64) (chain uint32) {
	head, _ := record.ParseSegmentHeader(segment)
	for at := int64(record.SegmentHeaderBytes); at < off; {
		h, _ := record.ParseHeader(segment[at:], head.Seal(), at)
		chain = h.Chain
		at += h.Bytes()
	}
	return chain
}

func writeCorpus(t *testing.T, target, name, values string) {
	dir := filepath.Join("testdata", "fuzz", target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, strings.ReplaceAll(fmt.Sprintf("v%d-%s", record.FormatVersion, name), " ", "-"))
	if err := os.WriteFile(path, []byte("go test fuzz v1\n"+values), 0o644); err != nil {
		t.Fatal(err)
	}
}
