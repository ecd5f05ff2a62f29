package host

import (
	"sync/atomic"

	"github.com/millrace/millrace/transport"
)

// Config.MemoryBytes in sixteenths. Each share bounds one use, for all groups together.
const (
	logCacheShare = 2 // recent entries of the log
	sendShare     = 2 // frames that wait for a peer, over all peers
	waitingShare  = 3 // commands that wait for their turn
	proposedShare = 5 // commands that are proposed and not answered
	receivedShare = 2 // messages of peers that wait for their turn
	writingShare  = 2 // entries that wait for the disk, before more are taken from peers
	allShares     = 16
)

func (c Config) shareOf(sixteenths int64) int64 { return c.MemoryBytes / allShares * sixteenths }

const (
	// minMemoryBytes leaves space for a command of a kilobyte.
	minMemoryBytes = 64 << 10
	// maxMemoryBytes is more than a machine has. The log allocates a table of its share when it is opened.
	maxMemoryBytes = 1 << 40
)

// largestCommand is the largest command that the shares leave space for. A frame to a peer must hold it, and
// a group alone gets half of a share (budget.take).
func (c Config) largestCommand() int {
	return int(min(maxCommandBytes, c.shareOf(waitingShare)/2-overheadBytes, c.shareOf(receivedShare)/2-overheadBytes))
}

// largestAppend is the largest append that fits at both ends: into half of a queue to one peer, and into half
// of the share for messages from peers. What does not fit would be dropped at each try.
func (c Config) largestAppend() int {
	return int(min(maxInflightBytes, c.shareOf(receivedShare)/2, int64(c.queueBytes()/2)))
}

// queueBytes returns the bound on what waits for one peer. One message that is larger comes on top
// (transport.Fits).
func (c Config) queueBytes() int {
	peers := int64(max(len(c.Members)-1, 1))
	return int(min(max(c.shareOf(sendShare)/peers, int64(c.largestCommand())+1<<20), transport.DefaultQueueBytes))
}

// budget bounds the bytes that all groups of a host hold for one use.
//
// A group gets what it asks for as long as it then holds no more than is left for others. So one group that
// cannot work holds about half, and two that fill at the same time hold a third each. If they fill one after
// the other, each holds half of what the others left. Rejected: a fixed part for each group, which with a
// thousand groups would be too small for one of them that is busy.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reserves n bytes for a group that holds own already, and reports whether it did.
func (b *budget) take(own, n int64) bool {
	for {
		used := b.used.Load()
		if own+n > b.max-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// takeLarge reserves n bytes if that is more than a group alone gets, while no more than the budget is held.
// So what is larger than the budget gets through: a message of a host with more memory, an entry that was
// legal under earlier settings, or an append of tiny entries, which take twenty times their encoded bytes.
// What is held is then the budget and one such thing at most.
func (b *budget) takeLarge(n int64) bool {
	for n > b.max/2 {
		used := b.used.Load()
		if used > b.max {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
	return false
}

// fits reports whether take would reserve n bytes.
func (b *budget) fits(own, n int64) bool { return own+n <= b.max-b.used.Load() }

// hold counts n bytes that exist already, however many there are.
func (b *budget) hold(n int64) { b.used.Add(n) }

// give gives bytes back.
func (b *budget) give(n int64) { b.used.Add(-n) }

// memory is the budgets of a host.
type memory struct {
	waiting, proposed, received, writing budget
}

func (m *memory) init(c Config) {
	m.waiting.max = c.shareOf(waitingShare)
	m.proposed.max = c.shareOf(proposedShare)
	m.received.max = c.shareOf(receivedShare)
	m.writing.max = c.shareOf(writingShare)
}

// MemoryStats is what the groups of a host hold at the moment, by use, and the share of Config.MemoryBytes
// for it, in bytes.
type MemoryStats struct {
	Waiting  MemoryUse // commands that wait for their turn
	Proposed MemoryUse // commands that are proposed and not answered
	Received MemoryUse // messages of peers that wait for their turn
	// Writing is entries that wait for the disk. Its share bounds what is taken from peers; this host's own
	// proposals come on top.
	Writing MemoryUse
}

// MemoryUse is one use.
type MemoryUse struct{ Used, Share int64 }

// Memory returns what the groups hold. It never waits.
func (h *Host) Memory() MemoryStats {
	use := func(b *budget) MemoryUse { return MemoryUse{b.used.Load(), b.max} }
	m := &h.memory
	return MemoryStats{Waiting: use(&m.waiting), Proposed: use(&m.proposed), Received: use(&m.received), Writing: use(&m.writing)}
}

// hostMemory is what may wait, in bytes, and who waits.
type hostMemory struct {
	memory
	waiters waiterPool
}
