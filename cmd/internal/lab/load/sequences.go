package load

import "math/bits"

// sequences is a growing set of sequences. A client's writes arrive in order, except those whose outcome it
// does not know. So nearly always all are below next, and an add touches one word, beside those of other
// clients. With a thousand clients a bitmap for each, two more cache lines away, took a twentieth of the
// processor time.
type sequences struct {
	next  uint64   // all below are in the set
	ahead []uint64 // bitmap of what was added while next was missing; bits below next mean nothing
}

// add reports whether i was new.
func (s *sequences) add(i uint64) bool {
	if i == s.next && s.ahead == nil {
		s.next++
		return true
	}
	if i < s.next {
		return false
	}
	for i/64 >= uint64(len(s.ahead)) {
		s.ahead = append(s.ahead, 0)
	}
	word, bit := &s.ahead[i/64], uint64(1)<<(i%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	for s.next/64 < uint64(len(s.ahead)) && s.ahead[s.next/64]&(1<<(s.next%64)) != 0 {
		s.next++
	}
	if s.next >= uint64(len(s.ahead))*64 {
		s.ahead = nil
	}
	return true
}

// words returns the length of the set as a bitmap.
func (s *sequences) words() int {
	last, ok := s.last()
	if !ok {
		return 0
	}
	return int(last/64) + 1
}

// word returns sequences 64w and following as bits.
func (s *sequences) word(w int) (set uint64) {
	if w < len(s.ahead) {
		set = s.ahead[w]
	}
	switch from := uint64(w) * 64; {
	case s.next >= from+64:
		set = ^uint64(0)
	case s.next > from:
		set |= 1<<(s.next-from) - 1
	}
	return set
}

// bitmap returns the set in a form that sequencesOf reads.
func (s *sequences) bitmap() []uint64 {
	words := make([]uint64, s.words())
	for w := range words {
		words[w] = s.word(w)
	}
	return words
}

// sequencesOf returns the set that a bitmap describes.
func sequencesOf(bitmap []uint64) (s sequences) {
	for w, set := range bitmap {
		for ; set != 0; set &= set - 1 {
			s.add(uint64(w*64 + bits.TrailingZeros64(set)))
		}
	}
	return s
}

// count returns the size of the set.
func (s *sequences) count() uint64 {
	n := s.next / 64 * 64
	for w := int(s.next / 64); w < s.words(); w++ {
		n += uint64(bits.OnesCount64(s.word(w)))
	}
	return n
}

// span returns the largest sequence of the set + 1; 0 if it is empty.
func (s *sequences) span() uint64 {
	last, ok := s.last()
	if !ok {
		return 0
	}
	return last + 1
}

// last returns the largest sequence of the set, or false if the set is empty.
func (s *sequences) last() (uint64, bool) {
	for w := len(s.ahead) - 1; w >= int(s.next/64); w-- {
		if word := s.word(w); word != 0 {
			return uint64(w*64 + 63 - bits.LeadingZeros64(word)), true
		}
	}
	return s.next - 1, s.next > 0
}
