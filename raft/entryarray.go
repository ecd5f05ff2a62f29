package raft

import "github.com/millrace/millrace/raft/raftpb"

// entryArray holds the entries of the unstable log, in an array with space behind them, so that a leader
// copies each entry once, to its final place, and one array serves many appends.
//
// Invariant: an entry that was handed out is never written to again. Appending writes only behind all entries
// that were ever handed out; truncation clips the capacity, so that the next append goes to another array.
//
// A reader that keeps one entry keeps its whole array alive; reserve bounds how much that is.
type entryArray struct {
	live   []raftpb.Entry
	dead   uint64 // bytes of the array's entries that were dropped in front of live
	length int    // of the array that was made last
}

const (
	minArray  = 16
	fullArray = 256 // entries, 12 KiB
)

// reserve makes space for n more entries behind the live ones. It moves the live entries to a new array when
// the old one is full, and also when mostlyDead says that the dropped entries outweigh the live ones: then
// moving costs less than the entries that were dropped since the last move.
func (a *entryArray) reserve(n int, mostlyDead bool) {
	count := len(a.live)
	switch {
	case count+n > cap(a.live):
		a.length = min(2*a.length, fullArray)
	case mostlyDead:
		a.length /= 2
	default:
		return
	}
	a.length = max(a.length, minArray, 2*(count+n))
	a.live = append(make([]raftpb.Entry, 0, a.length), a.live...)
	a.dead = 0
}

// extend adds n empty entries, for which the caller has reserved space, and returns them.
func (a *entryArray) extend(n int) []raftpb.Entry {
	count := len(a.live)
	a.live = a.live[:count+n]
	return a.live[count:]
}

// adopt makes entries that came from a peer the live ones, without a copy. Their array has no space behind
// them: it belongs to the message.
func (a *entryArray) adopt(entries []raftpb.Entry) {
	a.live, a.dead = entries[:len(entries):len(entries)], 0
}

// keep drops all but the first n live entries. A reader may hold the dropped ones, so the next append goes to
// another array.
func (a *entryArray) keep(n uint64) {
	if a.live = a.live[:n:n]; n == 0 {
		a.reset()
	}
}

// drop drops the first n live entries, which weigh the given number of bytes.
func (a *entryArray) drop(n, bytes uint64) {
	a.dead += bytes
	if a.live = a.live[n:]; cap(a.live) == 0 {
		a.reset() // the array has no space left
	}
}

// reset drops all entries and the array.
func (a *entryArray) reset() { a.live, a.dead = nil, 0 }

// shrink releases the space behind the live entries and in front of them, where there is much of it. The next
// array is a short one again.
func (a *entryArray) shrink() {
	a.length = 0
	if cap(a.live) > 2*len(a.live) || a.dead > 0 {
		a.live, a.dead = append([]raftpb.Entry(nil), a.live...), 0
	}
}
