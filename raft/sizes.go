package raft

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// size is how large entries are: encoded, by which messages and batches are bounded, and their payloads alone, by which
// windows and quotas are.
type size struct{ encoded, payload uint64 }

func (s size) minus(t size) size { return size{s.encoded - t.encoded, s.payload - t.payload} }

// sizes remembers how large the last part of the log is, so that an entry is measured once, when it comes, and not again for
// every follower, for every batch to apply and for its acknowledgement. It holds running totals: the size of a range is the
// difference of two, and where a range is to be cut is found by halving.
//
// Invariant: it describes the entries that the log has now, at all of [first, end). What it has forgotten is measured by
// walking entries that had to be read from storage anyway.
type sizes struct {
	first  uint64
	before size         // the total before first
	totals window[size] // totals[i] is the total through entry first+i
}

// maxSizesOfDurable bounds what is remembered of entries that are in storage, and not handed out for apply yet.
const maxSizesOfDurable = 1 << 12

func (s *sizes) end() uint64 { return s.first + uint64(len(s.totals.items())) }

// add measures entries that come at the end.
func (s *sizes) add(entries []raftpb.Entry) {
	total := s.total(s.end())
	added := s.totals.extend(len(entries))
	var rest int // of an encoded entry, beside its data
	for i := range entries {
		e := &entries[i]
		if i == 0 || e.Term != entries[i-1].Term || e.Type != entries[i-1].Type || isPowerOfTwo(e.Index) {
			rest = e.Size() - e.DataSize()
		}
		total.encoded += uint64(rest + e.DataSize())
		total.payload += uint64(len(e.Data))
		added[i] = total
	}
}

// isPowerOfTwo: only there can an index be longer, encoded, than the one before.
func isPowerOfTwo(index uint64) bool { return index&(index-1) == 0 }

// total is what comes before an index in [first, end].
func (s *sizes) total(index uint64) size {
	if index == s.first {
		return s.before
	}
	return s.totals.items()[index-s.first-1]
}

// between returns the size of [lo, hi), if it is remembered.
func (s *sizes) between(lo, hi uint64) (total size, known bool) {
	if lo < s.first || hi > s.end() {
		return size{}, false
	}
	return s.total(hi).minus(s.total(lo)), true
}

// cut returns where [lo, hi), which must be remembered, ends if it may have maxBytes encoded bytes, but has one entry at
// least.
func (s *sizes) cut(lo, hi, maxBytes uint64) uint64 {
	before := s.total(lo).encoded
	if maxBytes == noLimit || hi <= lo+1 || s.total(hi).encoded-before <= maxBytes {
		return hi
	}
	totals := s.totals.items()[lo-s.first : hi-s.first]
	fit := sort.Search(len(totals), func(i int) bool { return totals[i].encoded-before > maxBytes })
	return lo + uint64(max(fit, 1))
}

// truncate forgets everything from an index on, where other entries will follow.
func (s *sizes) truncate(index uint64) {
	if index <= s.first {
		s.reset(index)
		return
	}
	s.totals.keep(int(index - s.first))
}

// reset forgets everything; index comes next.
func (s *sizes) reset(index uint64) {
	s.first, s.before = index, size{}
	s.totals.drop(len(s.totals.items()))
}

// forget forgets everything before an index, at most to the end.
func (s *sizes) forget(index uint64) {
	if index > s.first {
		s.before = s.total(index)
		s.totals.drop(int(index - s.first))
		s.first = index
	}
}
