package raft

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// The sizes that are remembered equal those that a walk over the entries finds, for every range and every
// limit.
func TestSizesAreTheirEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := uint64(rapid.SampledFrom([]int{1, 120, 1 << 14}).Draw(t, "first"))
		s := sizes{first: first}
		var log []raftpb.Entry // starting at first
		for range 30 {
			switch n := uint64(len(log)); rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				lo := rapid.Uint64Range(0, n).Draw(t, "truncate")
				if first+lo < s.first {
					log, first = nil, first+lo
				} else {
					log = log[:lo]
				}
				s.truncate(first + uint64(len(log)))
			case 1:
				s.forget(first + rapid.Uint64Range(0, n).Draw(t, "forget"))
			default:
				var added []raftpb.Entry
				for i := range uint64(rapid.IntRange(1, 20).Draw(t, "entries")) {
					data := make([]byte, rapid.SampledFrom([]int{0, 1, 127, 128, 300}).Draw(t, "bytes"))
					added = append(added, raftpb.Entry{
						Term:  rapid.SampledFrom([]uint64{1, 200}).Draw(t, "term"),
						Index: first + n + i,
						Type:  rapid.SampledFrom([]raftpb.EntryType{raftpb.EntryNormal, raftpb.EntryConfChangeV2, 1 << 20}).Draw(t, "type"),
						Data:  rapid.SampledFrom([][]byte{nil, data}).Draw(t, "data"),
					})
				}
				s.add(added)
				log = append(log, added...)
			}
			end := first + uint64(len(log))
			if s.end() != end {
				t.Fatalf("remembers [%d,%d), the log ends at %d", s.first, s.end(), end)
			}
			lo := rapid.Uint64Range(first, end).Draw(t, "lo")
			hi := rapid.Uint64Range(lo, end).Draw(t, "hi")
			entries := log[lo-first : hi-first]
			have, known := s.between(lo, hi)
			if known != (lo >= s.first) {
				t.Fatalf("knows [%d,%d): %t, it remembers from %d on", lo, hi, known, s.first)
			}
			if want := (size{entriesSize(entries), payloadSize(entries)}); known && have != want {
				t.Fatalf("[%d,%d) has %+v, want %+v", lo, hi, have, want)
			}
			maxBytes := rapid.SampledFrom([]uint64{0, have.encoded / 2, have.encoded - 1, have.encoded, noLimit}).Draw(t, "max bytes")
			if known && lo < hi {
				if have, want := s.cut(lo, hi, maxBytes), lo+uint64(len(limitSize(entries, maxBytes))); have != want {
					t.Fatalf("[%d,%d) is cut at %d to have %d bytes, want %d", lo, hi, have, maxBytes, want)
				}
				overhead := rapid.SampledFrom([]uint64{0, 1, 64}).Draw(t, "overhead")
				most := rapid.Uint64Range(1, hi-lo).Draw(t, "most")
				limit := entriesSize(entries[:most]) + most*overhead - rapid.Uint64Range(0, 1).Draw(t, "less")
				want, taken := uint64(1), uint64(0)
				for i, e := range entries {
					if taken += entriesSize([]raftpb.Entry{e}) + overhead; taken <= limit {
						want = uint64(i) + 1
					}
				}
				if have := s.fit(lo, hi, limit, overhead); have != want {
					t.Fatalf("%d entries of [%d,%d) fit into %d bytes with an overhead of %d each, want %d", have, lo, hi, limit, overhead, want)
				}
			}
		}
	})
}

// However far apart the disk and the state machine are, the number of sizes that are remembered for both is
// bounded.
func TestSizesOfWhatIsDurableAreBounded(t *testing.T) {
	u := newUnstable(0)
	for range 3 * maxSizesOfDurable {
		u.appendOwn(noop(), 1)
		u.acceptNext()
		u.stableInProgress()
	}
	if have := uint64(len(u.sizes.totals.items())); have > maxSizesOfDurable+1 {
		t.Errorf("remembers %d sizes, want at most %d", have, maxSizesOfDurable+1)
	}
	if have := cap(u.sizes.totals.array); have > 4*maxSizesOfDurable {
		t.Errorf("their array has length %d", have)
	}
}
