package wal

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// forged is a segment made by hand. Its checksums are valid, its contents may be wrong.
type forged struct {
	id      uint64
	data    []byte
	chain   uint32
	version uint8 // the version of the next records
	seal    record.Seal
}

func forge(id uint64) *forged { return forgeOf(id, record.FormatVersion) }

// forgedFence is the fence of the log that forged segments belong to.
var forgedFence = fence{generation: 9, log: record.LogID{7, 7}}

// forgeOf returns an empty segment of a version.
func forgeOf(id uint64, version uint8) *forged {
	h := record.SegmentHeader{Version: uint32(version), ID: id, Owner: 7}
	if version >= record.AtomicVersion {
		h.Generation, h.Log, h.Salt, h.Size = 9, forgedFence.log, 0x5a17*id, 4096
	}
	f := &forged{id: id, version: version, seal: h.Seal()}
	f.data, f.chain = record.AppendSegmentHeader(nil, h)
	return f
}

// forgedDir returns the files of a log of forged segments.
func forgedDir(segments ...*forged) map[string][]byte {
	m := map[string][]byte{fenceName: fenceFile(forgedFence)}
	for _, s := range segments {
		m[record.SegmentName(s.id)] = s.file()
	}
	return m
}

// fenceFile returns the contents of FENCE for f.
func fenceFile(f fence) []byte {
	b := make([]byte, fenceCopies*fenceBlock)
	for i := range fenceCopies {
		copy(b[i*fenceBlock:], f.encode())
	}
	return b
}

// as sets the version of the records that follow. It may differ from the version of the segment.
func (f *forged) as(version uint8) *forged {
	f.version = version
	return f
}

// add appends a record. If its kind can be a part of a write, the record is a complete write.
func (f *forged) add(h record.Header, body []byte) *forged {
	if f.version >= record.AtomicVersion && h.Kind.InWrite() {
		h.Edge = record.Whole
	}
	return f.addPart(h, body)
}

// addPart appends a record that begins and ends a write as h.Edge says.
func (f *forged) addPart(h record.Header, body []byte) *forged {
	at := len(f.data)
	b := make([]byte, record.Bytes(len(body)))
	copy(b[record.HeaderBytes:], body)
	h.Length += uint32(len(body)) // a test may have set a wrong length before
	h.BodyCRC = record.ChainBody(f.chain, b[record.HeaderBytes:])
	f.chain = putForged(b, h, f.version, f.seal, int64(at))
	f.data = append(f.data, b...)
	return f
}

// putForged is record.PutHeader for records of any version in a segment of any version.
func putForged(b []byte, h record.Header, version uint8, s record.Seal, off int64) (chain uint32) {
	record.PutHeader(b, h, s, off)
	if b[1] = version; s.Version >= record.AtomicVersion {
		check := s.Sum(b[:record.CheckAt], off)
		binary.LittleEndian.PutUint64(b[record.CheckAt:], check)
		return uint32(check >> 32)
	}
	binary.LittleEndian.PutUint64(b[32:], h.Durable)
	binary.LittleEndian.PutUint32(b[40:], h.BodyCRC)
	chain = record.ChainBody(placeOf(s, off), b[:44])
	binary.LittleEndian.PutUint32(b[44:], chain)
	return chain
}

// placeOf returns the seed of a header's checksum in the older versions. It is the twin of the code in
// package record.
func placeOf(s record.Seal, off int64) uint32 {
	return uint32(s.Segment)*0x9E3779B1 ^ uint32(s.Segment>>32) ^ uint32(off/8)
}

func (f *forged) link(before *forged) *forged {
	if before == nil {
		return f.add(record.Header{Kind: record.KindLink}, make([]byte, record.LinkBytes))
	}
	return f.linkTo(before.id, len(before.data), before.chain)
}

func (f *forged) linkTo(id uint64, end int, chain uint32) *forged {
	return f.add(record.Header{Kind: record.KindLink, Index: id, Term: uint64(end)}, binary.LittleEndian.AppendUint64(nil, uint64(chain)))
}

func (f *forged) entry(index uint64) *forged {
	return f.add(record.Header{Kind: record.KindEntry, Group: 1, Index: index, Term: 1}, []byte("12345678"))
}

// part appends an entry that is one part of a larger write.
func (f *forged) part(e record.Edge, index uint64) *forged {
	return f.addPart(record.Header{Kind: record.KindEntry, Edge: e, Group: 1, Index: index, Term: 1}, []byte("12345678"))
}

func (f *forged) void(group uint64) *forged {
	return f.add(record.Header{Kind: record.KindVoid, Group: group}, nil)
}

func (f *forged) file() []byte { return append(f.data, make([]byte, 4096-len(f.data))...) }

// Checksums prove that something was written. The rules of wal/record/format.go say that it makes sense. Each
// rule is broken by a log that is correct in all other respects, and the error must name what is wrong.
func TestRulesAreTold(t *testing.T) {
	one := forge(1).link(nil).entry(1).entry(2)
	half := forge(1).link(nil).entry(1).part(record.Begins, 2) // a write that continues in the next segment
	shortOfLink := one.data[:len(one.data)-1]
	for name, row := range map[string]struct {
		segments []*forged
		is       error
		says     string
	}{
		"sound":                  {[]*forged{one, forge(2).link(one).entry(3)}, nil, ""},
		"R2 record version":      {[]*forged{forge(1).link(nil).as(4).add(record.Header{Kind: record.KindEntry, Index: 1}, nil)}, ErrVersion, "record at offset 120 of another version than 1 to 3"},
		"R3 old record":          {[]*forged{forge(1).link(nil).entry(1).as(2).entry(2)}, ErrCorrupt, "a record of version 2 is in a segment with the rules of another version"},
		"R3 new record":          {[]*forged{forgeOf(1, 2).link(nil).entry(1).as(3).entry(2)}, ErrCorrupt, "a record of version 3 is in a segment with the rules of another version"},
		"R3 watermark begins":    {[]*forged{one, forge(2).link(one).addPart(record.Header{Kind: record.KindWatermark, Edge: record.Begins}, nil).add(record.Header{Kind: record.KindWatermark, Durable: 160}, nil)}, ErrCorrupt, "contradicts itself"},
		"R3 old record ends":     {[]*forged{forgeOf(1, 2).link(nil).addPart(record.Header{Kind: record.KindEntry, Index: 1, Edge: record.Ends}, nil).add(record.Header{Kind: record.KindWatermark, Durable: 160}, nil)}, ErrCorrupt, "contradicts itself"},
		"R3 unknown kind":        {[]*forged{one, forge(2).link(one).add(record.Header{Kind: record.LastKind(record.FormatVersion) + 1}, nil).add(record.Header{Kind: record.KindWatermark, Durable: 160}, nil)}, ErrCorrupt, "contradicts itself"},
		"R3 length":              {[]*forged{one, forge(2).link(one).add(record.Header{Kind: record.KindEntry, Index: 3, Length: 1 << 20}, nil).add(record.Header{Kind: record.KindWatermark, Durable: 160}, nil)}, ErrCorrupt, "the file ends inside a record"},
		"R5 link in the middle":  {[]*forged{forge(1).link(nil).entry(1).link(nil)}, ErrCorrupt, "a link record must not stand here"},
		"R5 no link":             {[]*forged{forge(1).entry(1)}, ErrCorrupt, "a entry record must not stand here"},
		"R7 front missing":       {[]*forged{forge(3).linkTo(2, 999, 1).entry(1)}, ErrCorrupt, "which is missing"},
		"R7 front allowed":       {[]*forged{forge(3).linkTo(2, 999, 1).entry(1).add(record.Header{Kind: record.KindFront, Index: 3}, nil)}, nil, ""},
		"R8 wrong segment":       {[]*forged{one, forge(2).linkTo(9, len(one.data), one.chain).entry(3)}, ErrCorrupt, "its link names segment 9"},
		"R8 wrong end":           {[]*forged{one, forge(2).linkTo(1, len(shortOfLink)-55, one.chain).entry(3)}, ErrCorrupt, "its link names segment 1 with end"},
		"R8 lost records":        {[]*forged{one, forge(2).linkTo(1, len(one.data)+56, one.chain).entry(3).add(record.Header{Kind: record.KindWatermark, Durable: record.SegmentHeaderBytes}, nil)}, ErrCorrupt, "says that valid records reached"},
		"R8 wrong chain":         {[]*forged{one, forge(2).linkTo(1, len(one.data), one.chain+1).entry(3)}, ErrCorrupt, "its link carries chain"},
		"R11 other write":        {[]*forged{one, forge(2).link(one).part(record.Begins, 3).entry(3)}, ErrCorrupt, "a write of group 1 has no end, and a entry record follows it"},
		"R11 watermark inside":   {[]*forged{one, forge(2).link(one).part(record.Begins, 3).add(record.Header{Kind: record.KindWatermark}, nil).part(record.Ends, 4)}, ErrCorrupt, "a mark record follows it"},
		"R11 other group":        {[]*forged{one, forge(2).link(one).part(record.Begins, 3).addPart(record.Header{Kind: record.KindEntry, Group: 2, Index: 1, Edge: record.Ends}, nil)}, ErrCorrupt, "that is no part of it"},
		"R11 no beginning":       {[]*forged{one, forge(2).link(one).part(record.Ends, 3)}, ErrCorrupt, "continues a write that did not begin"},
		"R11 void of nothing":    {[]*forged{one, forge(2).link(one).void(1)}, ErrCorrupt, "is where no write is unfinished"},
		"R11 void of another":    {[]*forged{one, forge(2).link(one).part(record.Begins, 3).void(2)}, ErrCorrupt, "follows an unfinished write of group 1"},
		"R11 over a roll":        {[]*forged{half, forge(2).link(half).part(record.Ends, 3)}, nil, ""},
		"R11 void after a roll":  {[]*forged{half, forge(2).link(half).void(1).entry(2)}, nil, ""},
		"R11 lost by a roll":     {[]*forged{half, forge(2).link(half).entry(3)}, ErrCorrupt, "a write of group 1 has no end"},
		"R11 older rules":        {[]*forged{half, forgeOf(2, 2).link(half).entry(2)}, ErrCorrupt, "a write of group 1 has no end"},
		"R11 torn":               {[]*forged{one, forge(2).link(one).part(record.Begins, 3).part(0, 4)}, nil, ""},
		"R11 voided":             {[]*forged{one, forge(2).link(one).part(record.Begins, 3).part(0, 4).void(1).entry(3)}, nil, ""},
		"R11 dropped beginning":  {[]*forged{forge(3).linkTo(2, 999, 1).part(0, 1).part(record.Ends, 2).add(record.Header{Kind: record.KindFront, Index: 3}, nil)}, nil, ""},
		"R11 dropped, voided":    {[]*forged{forge(3).linkTo(2, 999, 1).part(0, 8).void(1).entry(1).add(record.Header{Kind: record.KindFront, Index: 3}, nil)}, nil, ""},
		"R11 dropped, only void": {[]*forged{forge(3).linkTo(2, 999, 1).void(1).entry(1).add(record.Header{Kind: record.KindFront, Index: 3}, nil)}, nil, ""},
		"R11 dropped too late":   {[]*forged{forge(3).linkTo(2, 999, 1).entry(1).part(record.Ends, 2).add(record.Header{Kind: record.KindFront, Index: 3}, nil)}, ErrCorrupt, "did not begin"},
		"R9 gap":                 {[]*forged{forge(1).link(nil).entry(1).entry(5)}, ErrCorrupt, "(group 1, index 2 through 4)"},
		"R9 gap after a base":    {[]*forged{forge(1).link(nil).add(record.Header{Kind: record.KindBase, Group: 1, Index: 9, Term: 1}, nil).entry(11)}, ErrCorrupt, "(group 1, index 10)"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(diskOf(t, forgedDir(row.segments...)), &manual{})
			l, err := Open(opts)
			if !errors.Is(err, row.is) || err != nil && !strings.Contains(err.Error(), row.says) {
				t.Fatalf("%v; want %v, %q", err, row.is, row.says)
			}
			if err == nil {
				mustClose(t, l)
			}
			if row.is == ErrCorrupt {
				opts.Salvage = true
				mustClose(t, mustOpen(t, opts))
				opts.Salvage = false
				mustClose(t, mustOpen(t, opts))
			}
		})
	}
}

// The version of a segment is in its header.
func TestNewerSegmentIsRefused(t *testing.T) {
	s := forge(1).link(nil)
	binary.LittleEndian.PutUint32(s.data[8:], 4)
	binary.LittleEndian.PutUint32(s.data[60:], record.Checksum(s.data[:60]))
	if _, err := Open(testOptions(diskOf(t, forgedDir(s)), &manual{})); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "has version 4, this program knows 1 to 3") {
		t.Error(err)
	}
}

// A segment with a torn link does not say where the segment before it ended. If it has a watermark record,
// the segment before it was synced, and must look whole by itself. Without one, the same crash may have
// torn both segments.
func TestTornLinkDoesNotHideDamage(t *testing.T) {
	one, two := forge(1).link(nil).entry(1).entry(2), forge(2)
	two.link(one).entry(3)
	unproven := two.file()
	proven := two.add(record.Header{Kind: record.KindWatermark, Durable: record.SegmentHeaderBytes}, nil).file()
	unproven[record.SegmentHeaderBytes+record.HeaderBytes] ^= 1
	proven[record.SegmentHeaderBytes+record.HeaderBytes] ^= 1
	spoiled := one.file()
	spoiled[len(one.data)-1] ^= 1
	for _, row := range []struct {
		first, second []byte
		last          uint64
		err           error
	}{
		{one.file(), proven, 2, nil},
		{one.file(), unproven, 2, nil},
		{spoiled, unproven, 1, nil},
		{spoiled, proven, 0, ErrCorrupt},
	} {
		dir := forgedDir(one)
		dir[record.SegmentName(1)], dir[record.SegmentName(2)] = row.first, row.second
		l, err := Open(testOptions(diskOf(t, dir), &manual{}))
		if !errors.Is(err, row.err) || err != nil && !strings.Contains(err.Error(), record.SegmentName(1)) {
			t.Error(err)
		} else if err == nil && l.Group(1).LastIndex() != row.last {
			t.Errorf("last index %d, want %d", l.Group(1).LastIndex(), row.last)
		}
	}
}

func TestMoreInvalidWrites(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 9, 1, 10)}, Write{Group: 1, CompactThrough: 4})
	for says, w := range map[string]Write{
		"may carry a snapshot (index 6) or a compaction": {Group: 1, Snapshot: Snapshot{6, 1}, CompactThrough: 5},
		"needs an index of at least 1":                   {Group: 1, Snapshot: Snapshot{0, 1}},
		"compaction through index 12, but the last":      {Group: 1, CompactThrough: 12},
		"truncation from index 3, but the log begins":    {Group: 1, TruncateFrom: 3},
		"it is compacted; the log holds (4, 8]":          {Group: 1, Entries: entries(4, 6, 1, 1)},
	} {
		if err := l.Append([]Write{w}); !errors.Is(err, ErrInvalidWrite) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	before := l.Stats()
	mustAppend(t, l, Write{Group: 1, Snapshot: Snapshot{4, 1}}, Write{Group: 1, CompactThrough: 2}, Write{Group: 1, TruncateFrom: 9}) // the log is in this state already
	if l.Stats() != before {
		t.Error("the log wrote records for writes that change nothing")
	}
}

// Each write of an append sees the effects of the writes before it.
func TestWritesOfOneAppendFollowOneAnother(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l, want := mustOpen(t, opts), twin{}
	for _, w := range [][]Write{
		{{Group: 1, Entries: entries(1, 9, 1, 10)}, {Group: 1, Entries: entries(5, 12, 2, 10)}, {Group: 1, CompactThrough: 6}},
		{{Group: 1, TruncateFrom: 9}, {Group: 1, Entries: entries(9, 15, 4, 10)}, {Group: 1, Snapshot: Snapshot{10, 4}}},
		{{Group: 1, Entries: entries(12, 20, 5, 10)}, {Group: 1, Snapshot: Snapshot{14, 4}}, {Group: 1, Entries: entries(15, 17, 6, 10)}, {Group: 1, CompactThrough: 16}},
	} {
		mustAppend(t, l, w...)
		want.apply(w)
		want.check(t, l)
	}
	mustClose(t, l)
	want.check(t, mustOpen(t, opts))
}

// shortDisk writes only half of the bytes and returns no error.
type shortDisk struct {
	vfs.FS
	short *bool
}

type shortFile struct {
	vfs.File
	short *bool
}

func (s shortDisk) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	return shortFile{f, s.short}, err
}

func (s shortDisk) OpenDirect(string) (vfs.BlockWriter, error) { return nil, errors.ErrUnsupported }

func (f shortFile) WriteAt(p []byte, off int64) (int, error) {
	if *f.short {
		p = p[:len(p)/2]
	}
	return f.File.WriteAt(p, off)
}

func TestShortWriteIsAFailure(t *testing.T) {
	short := false
	l := mustOpen(t, testOptions(shortDisk{crashfs.New(), &short}, &manual{}))
	short = true
	if err := l.Append([]Write{add(1, 2, 1)}); !errors.Is(err, ErrDiskFailed) || !strings.Contains(err.Error(), "short write") {
		t.Error(err)
	}
	if err := l.CaughtUp(); !errors.Is(err, ErrDiskFailed) {
		t.Error(err)
	}
}

// If the fence cannot be written, the log stops. A fence of a newer version is not salvaged.
func TestFenceFailures(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.Mode = ModeUnsafeOS
	mustOpen(t, opts)
	fs.Crash(crashfs.LoseAll, nil)
	l := mustOpen(t, opts)
	fs.SetHook(crashfs.FailNth(crashfs.OpWrite, 1, errDisk))
	var failed *FailedError
	if err := l.CaughtUp(); !errors.As(err, &failed) || !strings.HasSuffix(failed.File, fenceName) {
		t.Error(err)
	}
	if err := l.changeFence(func(f *fence) { f.generation++ }); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	store, _ := smallStore(t)
	copy(store[fenceName], readGolden(t, "fence-newer.hex"))
	opts = testOptions(diskOf(t, store), &manual{})
	opts.SegmentBytes, opts.Salvage = 1024, true
	if _, err := Open(opts); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), fenceName) {
		t.Error(err)
	}
}

// Errors and names read as sentences.
func TestWords(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	if l.Group(5).ID() != 5 || l.Holes() != nil {
		t.Error("a new log has holes, or group 5 another number")
	}
	if record.KindMoved.String() != "moved entry" || record.Kind(77).String() != "kind 77" {
		t.Errorf("%s, %s", record.KindMoved, record.Kind(77))
	}
	for _, row := range []struct {
		err  error
		says string
	}{
		{&DiskFullError{Op: "write", Dir: "/d", Bytes: 9, Err: errNoSpace}, "no space for 9 bytes; nothing was written"},
		{&FailedError{Op: "sync", File: "/f", Offset: 3, Err: errDisk}, "sync of /f at offset 3 failed"},
		{&CorruptError{File: "/f", Offset: 3, Group: 1, Index: 2, Through: 8, Reason: "why"}, "/f at offset 3 (group 1, index 2 through 8) is corrupt: why"},
	} {
		if !strings.Contains(row.err.Error(), row.says) {
			t.Error(row.err)
		}
	}
	opts := testOptions(crashfs.New(), &manual{})
	opts.IndexBytes = -1
	if err := opts.Validate(); err == nil || !strings.Contains(err.Error(), "IndexBytes") {
		t.Error(err)
	}
	opts.IndexBytes, opts.MaxPendingBytes = 0, -1
	if err := opts.Validate(); err == nil || !strings.Contains(err.Error(), "MaxPendingBytes") {
		t.Error(err)
	}
}

// If a recovery has to write, and both the tail and the disk are full, Open returns a DiskFullError.
func TestRecoveryOnAFullDisk(t *testing.T) {
	s := forgeOf(1, 2).link(nil).add(record.Header{Kind: record.KindHardState, Group: 1, Term: 1}, binary.LittleEndian.AppendUint64(make([]byte, 8), 9))
	fs := diskOf(t, map[string][]byte{record.SegmentName(1): s.data[:len(s.data):len(s.data)]})
	fs.SetHook(full)
	var refused *DiskFullError
	if _, err := Open(testOptions(fs, &manual{})); !errors.As(err, &refused) {
		t.Error(err)
	}
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpPreallocate {
			return errNoSpace
		}
		return nil
	})
	if _, err := Open(testOptions(fs, &manual{})); !errors.Is(err, ErrDiskFull) {
		t.Error(err)
	}
	fs.SetHook(nil)
	if l := mustOpen(t, testOptions(fs, &manual{})); l.Group(1).HardState().Commit != 0 {
		t.Errorf("%+v", l.Group(1).HardState())
	}
}

// Open removes a spare whose size is not the current segment size. If it cannot, it returns the error.
func TestSparesThatDoNotFit(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l := mustOpen(t, opts)
	sched.runIdle()
	mustAppend(t, l, add(1, 2, 1))
	mustClose(t, l)
	opts.SegmentBytes *= 2
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRemove && strings.HasSuffix(op.Name, spareSuffix) {
			return errDisk
		}
		return nil
	})
	if _, err := Open(opts); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	fs.SetHook(nil)
	l = mustOpen(t, opts)
	if len(l.supply.spares) != 0 {
		t.Errorf("spares %v", l.supply.spares)
	}
}

// If the reserve was used up, and an error other than a full disk prevents a new one, the disk has failed.
func TestReserveThatCannotBeMade(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, &manual{}))
	l.supply.starved.Store(true)
	fs.SetHook(crashfs.FailNth(crashfs.OpCreate, 1, errDisk))
	if err := l.Append([]Write{add(1, 2, 1)}); !errors.Is(err, ErrDiskFailed) || !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if err := l.syncSegment(l.tail.seg); !errors.Is(err, errDisk) {
		t.Errorf("a sync after the failure: %v", err)
	}
}

// The cleaner does not copy entries that were compacted after it had read them. A reader whose segment is
// gone gets errDropped, and looks up the entry again.
func TestCompactionOvertakesTheCleaner(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 5, 1, 10)})
	for i := uint64(1); l.tail.seg.id < 4; i++ {
		mustAppend(t, l, Write{Group: 2, Entries: entries(i, i+1, 1, 500)}, Write{Group: 2, CompactThrough: i})
	}
	overtaken := false
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && !overtaken {
			overtaken = true
			mustAppend(t, l, Write{Group: 1, CompactThrough: 3})
		}
		return nil
	})
	sched.runIdle()
	if s := l.Stats(); !overtaken || s.MovedEntries != 1 || s.Dropped == 0 || l.Group(1).LastIndex() != 4 {
		t.Errorf("overtaken %v, %+v", overtaken, s)
	}
	if err := (&reading{group: l.Group(1)}).walk(run{}, bookmark{segment: 99}); !errors.Is(err, errDropped) {
		t.Error(err)
	}
}

// A large batch reuses the buffer of the large batch before it. The log does not keep the buffer of a huge
// batch.
func TestBuffers(t *testing.T) {
	enumerates(t)
	opts := testOptions(vfs.Memory(), &manual{})
	opts.SegmentBytes, opts.CacheBytes = 64<<20, -1
	l, want := mustOpen(t, opts), twin{}
	var large *byte
	for i, bytes := range []int{10, 9 << 20, 100, 9 << 20, 3 << 20, 12 << 20, 10, 40 << 20, 10} {
		w := Write{Group: 1, Entries: entries(uint64(i)+1, uint64(i)+2, 1, bytes)}
		mustAppend(t, l, w)
		want.apply([]Write{w})
		if cap(l.tail.buf) > maxBufferBytes || cap(l.tail.largeBuf) > maxLargeBufferBytes || cap(l.tail.smallBuf) > maxBufferBytes {
			t.Errorf("after %d bytes it keeps buffers of %d, %d and %d", bytes, cap(l.tail.buf), cap(l.tail.largeBuf), cap(l.tail.smallBuf))
		}
		if now := unsafe.SliceData(l.tail.largeBuf); i == 1 {
			large = now
		} else if i == 3 && (now == nil || now != large) {
			t.Error("the second large batch has a buffer of its own")
		}
	}
	want.check(t, l)
	mustClose(t, l)
	want.check(t, mustOpen(t, opts))
}

// A segment whose link names another one than the segment before it was not torn by the same crash as that
// one: something is missing or foreign.
func TestForeignLinkBehindATornSegment(t *testing.T) {
	one := forge(1).link(nil).entry(1).entry(2)
	spoiled := one.file()
	spoiled[len(one.data)-1] ^= 1
	for named, want := range map[uint64]error{1: nil, 9: ErrCorrupt} {
		two := forge(2).linkTo(named, len(one.data), one.chain).entry(3)
		dir := forgedDir(one, two)
		dir[record.SegmentName(1)] = spoiled
		l, err := Open(testOptions(diskOf(t, dir), &manual{}))
		if !errors.Is(err, want) {
			t.Errorf("its link names segment %d: %v, want %v", named, err, want)
		}
		if err == nil {
			mustClose(t, l)
		}
	}
}

// A log without records does not continue in a segment of an older version, which has other rules.
func TestEmptyLogOfAnOlderVersion(t *testing.T) {
	for version := uint8(record.FirstVersion); version <= record.FormatVersion; version++ {
		dir := forgedDir(forgeOf(1, version))
		opts := testOptions(diskOf(t, dir), &manual{})
		l := mustOpen(t, opts)
		if have := l.tail.seg.head.Version; have != record.FormatVersion {
			t.Errorf("version %d: the log continues in a segment of version %d", version, have)
		}
		mustAppend(t, l, add(1, 3, 1))
		mustClose(t, l)
		if l = mustOpen(t, opts); l.Group(1).LastIndex() != 2 {
			t.Errorf("version %d: the last entry is %d", version, l.Group(1).LastIndex())
		}
		mustClose(t, l)
	}
}

// A draft of a repair that cannot be read is no draft that is not there.
func TestDraftThatCannotBeRead(t *testing.T) {
	one := forge(1).link(nil).entry(1)
	dir := forgedDir(one)
	dir[draftName] = one.file()
	disk := diskOf(t, dir)
	d := Options{FS: disk, Dir: testDir}.directory()
	if id, err := d.draftOf([]string{draftName}); id != 1 || err != nil {
		t.Errorf("the draft of segment %d, %v", id, err)
	}
	disk.SetHook(crashfs.When{Kind: crashfs.OpRead}.Do(errDisk))
	if _, err := d.draftOf([]string{draftName}); !errors.Is(err, errDisk) {
		t.Errorf("the draft cannot be read: %v", err)
	}
}

// Options that are 0 are valid, and stand for defaults.
func TestDefaultsAreValid(t *testing.T) {
	o := Options{Dir: testDir, Scheduler: &manual{}}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	for _, size := range []int64{1, minSegmentBytes - 1, maxSegmentBytes + 1} {
		if o.SegmentBytes = size; o.Validate() == nil {
			t.Errorf("segments of %d bytes are valid", size)
		}
	}
}
