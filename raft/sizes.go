package raft

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// size is the size of entries in two measures: encoded, which bounds messages and batches, and payload alone,
// which bounds windows and quotas.
type size struct{ encoded, payload uint64 }

func (s size) minus(t size) size { return size{s.encoded - t.encoded, s.payload - t.payload} }

// sizes remembers the sizes of the last part of the log, so that an entry is measured once, when it arrives,
// and not again for every follower, every batch to apply and every acknowledgement. It holds running totals:
// the size of a range is the difference of two totals, and a binary search finds where to cut a range.
//
// Invariant: sizes describes the entries that the log has now, for all of [first, end). Entries before that
// range are measured by walking them; they had to be read from storage anyway.
type sizes struct {
	first  uint64
	before size       // the total before first
	totals fifo[size] // totals[i] is the total through entry first+i
}

// maxSizesOfDurable bounds the number of durable entries whose sizes are remembered until the entries are
// handed out for apply. The sizes of a leader's own entries are all remembered where entries are handed out
// as ranges, because nothing else says what MaxUncommittedEntriesSize gets back.
const maxSizesOfDurable = 1 << 12

func (s *sizes) end() uint64 { return s.first + uint64(len(s.totals.items())) }

// add measures entries that are appended.
func (s *sizes) add(entries []raftpb.Entry) {
	total := s.total(s.end())
	added := s.totals.extend(len(entries))
	var header int // encoded bytes of an entry beside its data
	for i := range entries {
		e := &entries[i]
		if i == 0 || e.Term != entries[i-1].Term || e.Type != entries[i-1].Type || isPowerOfTwo(e.Index) {
			header = e.Size() - e.DataSize()
		}
		total.encoded += uint64(header + e.DataSize())
		total.payload += uint64(len(e.Data))
		added[i] = total
	}
}

// isPowerOfTwo reports whether index is a power of two. Only there can the encoding of an index be longer
// than that of the index before.
func isPowerOfTwo(index uint64) bool { return index&(index-1) == 0 }

// total returns the total before an index in [first, end].
func (s *sizes) total(index uint64) size {
	if index == s.first {
		return s.before
	}
	return s.totals.items()[index-s.first-1]
}

// between returns the size of the entries in [lo, hi), if it is remembered.
func (s *sizes) between(lo, hi uint64) (total size, known bool) {
	if lo < s.first || hi > s.end() {
		return size{}, false
	}
	return s.total(hi).minus(s.total(lo)), true
}

// cut returns the end of the longest prefix of [lo, hi) with at most maxBytes encoded bytes, and at least one
// entry. The sizes of [lo, hi) must be remembered.
func (s *sizes) cut(lo, hi, maxBytes uint64) uint64 {
	before := s.total(lo).encoded
	if maxBytes == noLimit || hi <= lo+1 || s.total(hi).encoded-before <= maxBytes {
		return hi
	}
	totals := s.totals.items()[lo-s.first : hi-s.first]
	fit := sort.Search(len(totals), func(i int) bool { return totals[i].encoded-before > maxBytes })
	return lo + uint64(max(fit, 1))
}

// fit returns the number of entries of [lo, hi), at least one, that take at most maxBytes in encoded bytes
// and an overhead for each. The sizes of [lo, hi) must be remembered, and hi is above lo.
func (s *sizes) fit(lo, hi, maxBytes, overhead uint64) uint64 {
	before := s.total(lo).encoded
	totals := s.totals.items()[lo-s.first : hi-s.first]
	fit := sort.Search(len(totals), func(i int) bool {
		return totals[i].encoded-before+uint64(i+1)*overhead > maxBytes
	})
	return uint64(max(fit, 1))
}

// truncate forgets index and everything after it. Other entries will follow there.
func (s *sizes) truncate(index uint64) {
	if index <= s.first {
		s.reset(index)
		return
	}
	s.totals.keep(int(index - s.first))
}

// reset forgets everything. The next entry is index.
func (s *sizes) reset(index uint64) {
	s.first, s.before = index, size{}
	s.totals.drop(len(s.totals.items()))
}

// forget forgets everything before index, which is not beyond the end.
func (s *sizes) forget(index uint64) {
	if index > s.first {
		s.before = s.total(index)
		s.totals.drop(int(index - s.first))
		s.first = index
	}
}
