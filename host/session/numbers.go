package session

import (
	"slices"
	"time"
)

// session is what the table has of one session. Its numbers are a sorted queue: they come nearly in order at
// its end, and leave in order at its front. A bitmap over the range would be smaller, but a client that skips
// numbers could make it as large as it likes.
type session struct {
	id         ID
	used       time.Duration // the log time of its last command
	low        uint64        // the numbers below are forgotten
	numbers    []number      // ascending; those before head have left
	head       int
	prev, next *session // in the order of use
}

// number is an applied number.
type number struct {
	value, index, term uint64
	pos                uint32
	refused            bool    // its command was not applied, and never will be
	result             *result // nil if results are not kept
}

func (n *number) record() Record {
	r := Record{Index: n.index, Term: n.term, Pos: n.pos, Refused: n.refused}
	if n.result != nil && n.result.state == resultKept {
		r.Result, r.Kept = n.result.bytes, true
	}
	return r
}

// maxIdleNumbers bounds the array that a session keeps when it is empty.
const maxIdleNumbers = 256

func (s *session) bytes() int64 { return SessionBytes + NumberBytes*int64(len(s.numbers)-s.head) }

// search returns where value is in numbers, or where it belongs.
func (s *session) search(value uint64) (at int, found bool) {
	n := len(s.numbers)
	if n == s.head || s.numbers[n-1].value < value {
		return n, false
	}
	at, found = slices.BinarySearchFunc(s.numbers[s.head:], value, func(n number, value uint64) int {
		switch {
		case n.value < value:
			return -1
		case n.value > value:
			return 1
		}
		return 0
	})
	return s.head + at, found
}

// insert adds n where search says, and returns where it is.
func (s *session) insert(at int, n number) int {
	if len(s.numbers) == cap(s.numbers) && s.head > len(s.numbers)/2 {
		kept := copy(s.numbers, s.numbers[s.head:])
		clear(s.numbers[kept:])
		s.numbers, at, s.head = s.numbers[:kept], at-s.head, 0
	}
	s.numbers = slices.Insert(s.numbers, at, n)
	return at
}

// forgetBelow forgets the numbers below low, and returns the bytes that this frees.
func (s *session) forgetBelow(low uint64, r *results) (freed int64) {
	s.low = low
	for s.head < len(s.numbers) && s.numbers[s.head].value < low {
		r.free(s.numbers[s.head].result)
		s.numbers[s.head] = number{}
		s.head++
		freed += NumberBytes
	}
	if s.head == len(s.numbers) {
		s.numbers, s.head = s.numbers[:0], 0
		if cap(s.numbers) > maxIdleNumbers {
			s.numbers = nil
		}
	}
	return freed
}

// before puts s into a ring, and unlink takes it out.
func (s *session) before(next *session) {
	s.prev, s.next = next.prev, next
	s.prev.next, s.next.prev = s, s
}

func (s *session) unlink() {
	s.prev.next, s.next.prev = s.next, s.prev
	s.prev, s.next = nil, nil
}
