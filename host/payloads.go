package host

import (
	"bytes"

	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// The memory of small commands on a follower, from the connection to the machine. A command is copied out of
// the connection's buffer into a block (package arena), and is not allocated. These places hold its block:
//
//	inbox            until the turn that steps the message
//	core             until the log has the entries (heldBlocks)
//	append lane      until it has written them        host/internal/appendlane/queue.go
//	cache of the log until it drops them              wal/cache.go
//	apply lane       while the machine is called      host/internal/apply/round.go
//
// Only commands are in blocks, and only of a group whose machine keeps none (statemachine.Borrower). It
// applies what is in the log. All else is in arrays of its own. The core knows of no blocks: it neither
// changes nor copies data. What the core hands out in another way than to the append lane keeps the blocks
// for good.

// intake copies what is received and lent.
type intake struct {
	mu       lock.Mutex
	pool     *arena.Pool
	maxBytes int64        // of blocks that are held, before data gets arrays of its own
	brief    arena.Filler // data that the log copies into its cache
	cached   arena.Filler // data that the cache shows as it is
}

func (in *intake) init(p *arena.Pool, maxBytes int64) {
	in.pool, in.maxBytes = p, maxBytes
	in.brief, in.cached = arena.NewFiller(p), arena.NewFiller(p)
}

// own gives the lent data of a message memory of this host. It appends the blocks for the caller to hold.
func (in *intake) own(m *raftpb.Message, borrows bool, blocks []arena.Ref) []arena.Ref {
	if len(m.Entries) == 0 {
		return blocks
	}
	borrows = borrows && m.Type == raftpb.MsgApp && in.pool.UsedBytes() < in.maxBytes
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range m.Entries {
		switch e := &m.Entries[i]; {
		case len(e.Data) == 0, len(e.Data) >= transport.LentBytes: // not lent
		case !borrows || !e.Type.HoldsCommands():
			e.Data = bytes.Clone(e.Data)
		case len(e.Data) < wal.LargeBytes:
			e.Data, blocks = in.brief.Copy(e.Data, blocks)
		default:
			e.Data, blocks = in.cached.Copy(e.Data, blocks)
		}
	}
	return blocks
}

// close releases what is being filled. Nothing is received any more.
func (in *intake) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.brief.Close()
	in.cached.Close()
}

// blockHold is a block with entries up to an index.
type blockHold struct {
	block arena.Ref
	last  uint64
}

// blocksThrough are blocks with entries up to an index.
type blocksThrough struct {
	refs []arena.Ref
	last uint64
}

// retainHolds retains more for another holder, and appends it to holds.
func retainHolds(holds, more []blockHold) []blockHold {
	for i := range more {
		more[i].block.Retain()
	}
	return append(holds, more...)
}

// heldBlocks are the blocks with entries that the core may have. The turn owns them.
type heldBlocks struct {
	list []blockHold // as the messages were stepped
	refs []arena.Ref // scratch
}

// maxHeldBlocks bounds how many blocks wait for the core. Above it all are left to the garbage collector.
const maxHeldBlocks = 1 << 10

// add takes over blocks of messages that are about to be stepped. Neighbours with one block are joined: many
// messages fill two blocks in turn.
func (h *heldBlocks) add(blocks []blockHold) {
	for _, b := range blocks {
		if same := h.lately(b.block); same != nil {
			same.last = max(same.last, b.last)
			b.block.Release()
			continue
		}
		h.list = append(h.list, b)
	}
	if len(h.list) > maxHeldBlocks {
		h.keep()
	}
}

// lately returns the hold of a block that is among the last two.
func (h *heldBlocks) lately(block arena.Ref) *blockHold {
	for i := len(h.list) - 1; i >= max(0, len(h.list)-2); i-- {
		if h.list[i].block == block {
			return &h.list[i]
		}
	}
	return nil
}

// release releases the blocks of entries that the core has no more, because the log has them. An index behind
// the durable ones may be of a message that was refused. If everything is durable, the core has nothing.
//
// Each message of list was stepped. So what is at an index now cannot become an entry of the list again.
func (h *heldBlocks) release(st raft.BasicStatus) {
	n := 0
	for n < len(h.list) && (h.list[n].last <= st.Durable || st.LastIndex == st.Durable) {
		h.list[n].block.Release()
		n++
	}
	h.drop(n)
}

// keep leaves all blocks to the garbage collector: something besides the append lane has entries of them.
func (h *heldBlocks) keep() {
	for i := range h.list {
		h.list[i].block.Keep()
	}
	h.drop(len(h.list))
}

// drop forgets the first n.
func (h *heldBlocks) drop(n int) {
	if n == 0 {
		return
	}
	left := copy(h.list, h.list[n:])
	clear(h.list[left:])
	if h.list = h.list[:left]; left == 0 && cap(h.list) > maxIdleBlocks {
		h.list = nil
	}
}

// maxIdleBlocks bounds the scratch of a group.
const maxIdleBlocks = 64

// all returns the blocks. They are valid until the next call.
func (h *heldBlocks) all() []arena.Ref {
	h.refs = h.refs[:0]
	for i := range h.list {
		h.refs = append(h.refs, h.list[i].block)
	}
	return h.refs
}

// handsOut keeps the blocks if messages of the core have entries in them.
func (h *heldBlocks) handsOut(messages ...raftpb.Message) {
	for i := range messages {
		if len(h.list) > 0 && len(messages[i].Entries) > 0 {
			h.keep()
		}
	}
}
