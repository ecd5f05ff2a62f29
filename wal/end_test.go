package wal

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// The table in recover.go, row by row: what ended the records, whether something durable follows it,
// whether the machine stayed up, and the verdict of Open. last is the last entry that the log shows.
func TestVerdictOnTheEnd(t *testing.T) {
	whole := func() *forged { return forge(1).link(nil).entry(1).entry(2) }
	direct := func() *forged { return forgeDirect(1).link(nil).entry(1).entry(2) }
	spoiled := func(s *forged) *forged { // flips a bit in the last byte of the last record
		s = &forged{id: s.id, data: slices.Clone(s.data)}
		s.data[len(s.data)-1] ^= 1
		return s
	}
	zeros := func(s *forged) *forged { return &forged{id: s.id, data: s.data[:len(s.data)-56]} } // without entry 2
	addWatermark := func(s *forged, durable int) *forged {
		return s.add(record.Header{Kind: record.KindWatermark, Durable: uint64(durable)}, nil)
	}
	after := func(s *forged) *forged { return forge(2).link(s).entry(3) }
	synced := func(s *forged) *forged { return addWatermark(after(s), record.SegmentHeaderBytes) }
	watermarked := func() *forged { // the body of entry 2 is spoiled, and a watermark says that entry 2 is durable
		s := whole()
		n := len(s.data)
		addWatermark(s, n)
		s.data[n-1] ^= 1
		return s
	}
	full := forge(1).link(nil)
	full.add(record.Header{Kind: record.KindEntry, Group: 1, Index: 1, Term: 1}, make([]byte, 4096-len(full.data)-record.HeaderBytes))
	reached := record.End{Segment: 1, Offset: int64(len(whole().data)), Chain: whole().chain}

	for _, row := range []struct {
		name     string
		segments []*forged
		end      record.End // the end that FENCE knows
		sameBoot bool
		verdict  string
		last     uint64
	}{
		{name: "zeros, nothing behind", segments: []*forged{whole()}, verdict: "end", last: 2},
		{name: "zeros, nothing behind, same boot", segments: []*forged{direct()}, sameBoot: true, verdict: "end", last: 2},
		{name: "end of the file, nothing behind", segments: []*forged{full}, verdict: "end", last: 1},
		{name: "anything else, nothing behind", segments: []*forged{spoiled(whole())}, verdict: "torn", last: 1},
		{name: "anything else, nothing behind, same boot, not direct", segments: []*forged{spoiled(whole())}, sameBoot: true, verdict: "torn", last: 1},
		{name: "no kill can leave it", segments: []*forged{spoiled(direct())}, sameBoot: true, verdict: "corrupt"},
		{name: "a later watermark above it", segments: []*forged{watermarked()}, verdict: "corrupt"},
		{name: "a link, and it was synced", segments: []*forged{spoiled(whole()), synced(whole())}, verdict: "corrupt"},
		{name: "a link, zeros before its end, and it was synced", segments: []*forged{zeros(whole()), synced(whole())}, verdict: "corrupt"},
		{name: "a link, and nothing says it was synced", segments: []*forged{spoiled(whole()), after(whole())}, verdict: "torn", last: 1},
		{name: "FENCE knows a later end", segments: []*forged{zeros(whole())}, end: reached, verdict: "corrupt"},
		{name: "FENCE knows a later end, torn", segments: []*forged{spoiled(whole())}, end: reached, verdict: "corrupt"},
		{name: "FENCE knows this end", segments: []*forged{whole()}, end: reached, verdict: "end", last: 2},
		{name: "a write without its end", segments: []*forged{forge(1).link(nil).entry(1).part(record.Begins, 2)}, verdict: "voided", last: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			disk := diskOf(t, forgedDir(row.segments...))
			f := forgedFence
			f.owner = 7
			if f.end = row.end; f.end.Segment != 0 {
				f.flags |= flagMade
			}
			if row.sameBoot {
				f.boot, _ = disk.BootID()
				f.mount = vfs.MountID(disk, testDir)
			}
			putFile(t, disk, fenceName, fenceFile(f))
			if verdict, last := verdictOnTheEnd(t, disk); verdict != row.verdict || last != row.last {
				t.Errorf("%s, with entries through %d; want %s, through %d", verdict, last, row.verdict, row.last)
			}
		})
	}
}

// verdictOnTheEnd opens a log and returns how Open judged its end.
func verdictOnTheEnd(t *testing.T, disk *crashfs.FS) (verdict string, last uint64) {
	saw := &warnings{}
	opts := testOptions(disk, &manual{})
	opts.Logger = slog.New(saw)
	l, err := Open(opts)
	switch {
	case errors.Is(err, ErrCorrupt):
		return "corrupt", 0
	case err != nil:
		t.Fatal(err)
	}
	defer mustClose(t, l)
	last = l.Group(1).LastIndex()
	switch {
	case slices.Contains(saw.messages, TornTail):
		return "torn", last
	case slices.ContainsFunc(saw.messages, func(m string) bool { return strings.Contains(m, "voided") }):
		return "voided", last
	}
	return "end", last
}

// forgeDirect is forge for a segment with direct writes.
func forgeDirect(id uint64) *forged {
	h := record.SegmentHeader{
		Version: record.FormatVersion, ID: id, Owner: 7, Generation: 9, Log: forgedFence.log, Salt: 0x5a17 * id, Size: 4096, Direct: true,
	}
	f := &forged{id: id, version: record.FormatVersion, seal: h.Seal()}
	f.data, f.chain = record.AppendSegmentHeader(nil, h)
	return f
}
