package host

import (
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/internal/arena"
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

// blockBytes is the size of the blocks for small commands (package arena).
const blockBytes = 64 << 10

// blocks returns how a host makes its blocks. Those that wait for another use are a part of the share for
// received messages.
func (c Config) blocks(e env.Blocks) arena.Options {
	o := arena.Options{BlockBytes: blockBytes, IdleBytes: int(min(c.shareOf(receivedShare)/4, 8<<20)), Poison: e.Poison}
	if e.Bytes > 0 {
		o.BlockBytes = e.Bytes
	}
	return o
}

// largestCommand is the largest command that the shares leave space for. A frame to a peer must hold it, and
// a group alone gets half of a share (budget.take).
func (c Config) largestCommand() int {
	return int(min(maxCommandBytes, c.shareOf(waitingShare)/2-proposals.OverheadBytes, c.shareOf(receivedShare)/2-proposals.OverheadBytes))
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

func (m *memory) init(c Config) {
	m.waiting.Max = c.shareOf(waitingShare)
	m.proposed.Max = c.shareOf(proposedShare)
	m.received.Max = c.shareOf(receivedShare)
	m.writing.Max = c.shareOf(writingShare)
}

const (
	// The bounds on what is under way to one follower, and to the state machine. The bound in messages is
	// far above what a round takes, because bytes are what costs memory. A leader that has sent as many
	// small batches as it may waits for a whole sync of its followers (decision 0028).
	maxInflightMsgs  = 4096
	maxInflightBytes = 32 << 20
	maxApplyingBytes = 32 << 20
	// answerTimeouts is for how many election timeouts appends to a quorum may be unanswered before the
	// leader steps down (decision 0014).
	answerTimeouts = 2
	// maxCommandBytes leaves space in a frame for the append around a command.
	maxCommandBytes = transport.DefaultFrameBytes - 1<<10
)
