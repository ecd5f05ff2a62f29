// Package driver is one workload for several Raft libraries: what they must do, how it is measured and how it
// is checked. It imports none of them. Each library is a Node, which a program of its own (../millrace,
// ../etcdraft36, ../etcdraft37) hands to Serve: two versions of one module cannot be linked into one binary,
// and a program for each keeps their garbage apart.
//
// Invariant: a figure counts only what the library does. The loops here and the Nodes allocate nothing in the
// measured part (driver_test.go shows it for the loops): messages are made before, and stepped again and
// again with another index; entries are kept in a Ring; and no message that a library sends is copied.
package driver

// PayloadBytes is the size of one proposal.
const PayloadBytes = 128

// The configuration of every library, beside Options. No bound is reached.
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

// Cursors are the indexes that a node's log has reached. Handed counts the entries that the caller was given
// to apply, in order and without a gap; the others are what the library reports.
type Cursors struct {
	Last, Committed, Applied, Handed uint64
}

// Node is one node of a library, whose messages are of type M, with its storage (a Ring). One goroutine uses
// it.
type Node[M any] interface {
	Campaign() error
	Tick()
	// Propose steps a message with the prepared batch of commands.
	Propose() error
	// Vote steps the prepared answer of another voter that votes for this node, in term 1.
	Vote(from uint64) error
	// Acknowledge steps the prepared answer of another voter that holds everything that this node's storage
	// holds.
	Acknowledge(from uint64) error
	Step(*M) error
	// Work does what is ready until nothing is: it saves entries, records the entries to apply, and answers for
	// both storage workers. Messages to peers go to the wire, if there is one.
	Work(*Wire[M]) error
	// Cursors may allocate: it is called outside of the measured part.
	Cursors() Cursors
}

// ringSize is more entries than are ever under way, and few enough that the warm-up overwrites some.
const ringSize = 1 << 12

// Ring is a storage that keeps the last few thousand entries, so that it costs the same for runs of any
// length.
type Ring[E any] struct {
	slots [ringSize]E
	last  uint64
}

// Save keeps entries, the first of them at index, and forgets the ones it held from there on. There must be
// fewer than ringSize.
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

// At returns an entry, which must be among the last ringSize.
func (r *Ring[E]) At(index uint64) E { return r.slots[index%ringSize] }

// Slice returns the entries [lo, hi), without a copy. It returns fewer if the ring's end cuts them, which
// every library allows its storage. Appending to the slice does not write to the ring.
func (r *Ring[E]) Slice(lo, hi uint64) []E {
	at := lo % ringSize
	end := min(at+hi-lo, ringSize)
	return r.slots[at:end:end]
}
