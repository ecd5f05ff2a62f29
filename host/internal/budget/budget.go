// Package budget counts the bytes that the groups of a host hold for one use, and bounds them. Package host
// owns the budgets. A part takes from one before it lets something wait. There is no lock.
package budget

import "sync/atomic"

// Budget bounds the bytes that all groups of a host hold for one use.
//
// A group gets what it asks for as long as it then holds no more than is left for others. So a group that
// cannot work holds about half. If two fill at the same time, each holds a third. If they fill one after the
// other, each holds half of what the others left. Rejected: a fixed part for each group. With a thousand
// groups it would be too small for a busy group.
type Budget struct {
	Max  int64 // set before the first call
	used atomic.Int64
}

// Reserve reserves n bytes for a group that holds own already, and reports whether it did.
func (b *Budget) Reserve(own, n int64) bool {
	for {
		used := b.used.Load()
		if own+n > b.Max-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// ReserveLarge reserves n bytes if that is more than a group alone gets, while no more than the budget is
// held. So what is larger than the budget gets through. It may be a message of a host with more memory, or
// an entry that was legal under earlier settings. It may be an append of tiny entries: each takes twenty
// times its encoded bytes. What is held is then the budget and one such thing at most.
func (b *Budget) ReserveLarge(n int64) bool {
	for n > b.Max/2 {
		used := b.used.Load()
		if used > b.Max {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
	return false
}

// Fits reports whether Take would reserve n bytes.
func (b *Budget) Fits(own, n int64) bool { return own+n <= b.Max-b.used.Load() }

// Hold counts n bytes that exist already, however many there are.
func (b *Budget) Hold(n int64) { b.used.Add(n) }

// Give gives bytes back.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used returns how many bytes are held.
func (b *Budget) Used() int64 { return b.used.Load() }
