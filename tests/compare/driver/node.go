// Package driver is one workload for several Raft libraries: what is asked of them, how it is measured and how it is
// checked. It imports none of them. Each library comes as a Node, which a program of its own (peers/millrace,
// peers/etcdraft36, peers/etcdraft37) hands to Serve: two versions of one module cannot be linked into one binary, and
// a program for each keeps their garbage apart.
//
// Invariant: what a figure counts is the library's. The loops here and the Nodes allocate nothing in the measured
// part (driver_test.go shows it for the loops): messages to be stepped are made before and stepped again and again with
// another index, entries are kept in a Ring, and nothing of what a library sends is copied.
package driver

// PayloadBytes is the size of one proposal.
const PayloadBytes = 128

// What every library is configured with, beside what Options says. None of the bounds is reached.
const (
	ElectionTicks = 10
	MessageBytes  = 1 << 20
	InflightMsgs  = 256
)

// Options says which node a workload wants.
type Options struct {
	ID     uint64
	Voters int  // ids 1 to Voters
	Async  bool // asynchronous storage writes; otherwise Ready and Advance
	Batch  int  // commands in one Propose
}

// VoterIDs returns the ids 1 to Voters.
func (o Options) VoterIDs() []uint64 {
	ids := make([]uint64, o.Voters)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	return ids
}

// Cursors is where a node's log has got to. Handed is what its caller was given to apply, in order and without a gap;
// the others are the library's own words.
type Cursors struct {
	Last, Committed, Applied, Handed uint64
}

// Node is one node of a library, whose messages are of type M, with its storage (a Ring). It is used by one goroutine.
type Node[M any] interface {
	Campaign() error
	Tick()
	// Propose steps a message with the prepared batch of commands.
	Propose() error
	// Vote and Acknowledge step a prepared answer of another voter: that it votes for this node, in term 1; that it holds
	// everything this node's storage holds.
	Vote(from uint64) error
	Acknowledge(from uint64) error
	Step(*M) error
	// Work does what is ready until nothing is: saves entries, notes what is to be applied, and answers for both
	// storage workers. What is for peers goes to the wire, if there is one.
	Work(*Wire[M]) error
	// Cursors may allocate; it is called outside of what is measured.
	Cursors() Cursors
}

// ringSize is more than is ever under way, and so few that warming up overwrites some.
const ringSize = 1 << 12

// Ring is a storage that keeps the last few thousand entries, so that it costs the same however long a run is.
type Ring[E any] struct {
	slots [ringSize]E
	last  uint64
}

// Save keeps entries, the first of them at index, and forgets what it held from there on. There are fewer than it has
// room for.
func (r *Ring[E]) Save(index uint64, entries []E) {
	if len(entries) == 0 {
		return
	}
	n := copy(r.slots[index%ringSize:], entries)
	copy(r.slots[:], entries[n:])
	r.last = index + uint64(len(entries)) - 1
}

// Last is the index of the last entry kept; 0 at the start.
func (r *Ring[E]) Last() uint64 { return r.last }

// At returns an entry, which must be among the last.
func (r *Ring[E]) At(index uint64) E { return r.slots[index%ringSize] }

// Slice returns entries from lo on, at most through hi-1, without a copy: fewer where the ring's end cuts them, as every
// library lets its storage do. What is appended to it goes elsewhere.
func (r *Ring[E]) Slice(lo, hi uint64) []E {
	at := lo % ringSize
	end := min(at+hi-lo, ringSize)
	return r.slots[at:end:end]
}
