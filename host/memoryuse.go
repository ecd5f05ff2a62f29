package host

import "github.com/millrace/millrace/host/internal/budget"

// MemoryStats is what the groups of a host hold at the moment, by use, and the share of Config.MemoryBytes
// for it, in bytes.
type MemoryStats struct {
	Waiting  MemoryUse // commands that wait for their turn
	Proposed MemoryUse // commands that are proposed and not answered
	Received MemoryUse // messages of peers that wait for their turn
	// Writing is entries that wait for the disk. Its share bounds what is taken from peers; this host's own
	// proposals come on top.
	Writing MemoryUse
	// Blocks is the memory of received commands in blocks. The uses above and the log's cache count
	// these commands. Above the share the commands get memory of their own.
	Blocks MemoryUse
	// IdleBlockBytes are blocks that nothing holds. They are reused, or left to the garbage collector.
	IdleBlockBytes int64
	BlocksMade     uint64 // that were allocated
	BlocksKept     uint64 // that are never reused, because something may refer to them
}

// MemoryUse is one use.
type MemoryUse struct{ Used, Share int64 }

// Memory returns what the groups hold. It never waits.
func (h *Host) Memory() MemoryStats {
	use := func(b *budget.Budget) MemoryUse { return MemoryUse{b.Used(), b.Max} }
	m := &h.memory
	blocks := m.blocks.Stats()
	return MemoryStats{
		Waiting: use(&m.waiting), Proposed: use(&m.proposed), Received: use(&m.received), Writing: use(&m.writing),
		Blocks: MemoryUse{blocks.UsedBytes, h.config.maxBlocks()}, IdleBlockBytes: blocks.IdleBytes,
		BlocksMade: blocks.Made, BlocksKept: blocks.Kept,
	}
}
