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
}

// MemoryUse is one use.
type MemoryUse struct{ Used, Share int64 }

// Memory returns what the groups hold. It never waits.
func (h *Host) Memory() MemoryStats {
	use := func(b *budget.Budget) MemoryUse { return MemoryUse{b.Used(), b.Max} }
	m := &h.memory
	return MemoryStats{Waiting: use(&m.waiting), Proposed: use(&m.proposed), Received: use(&m.received), Writing: use(&m.writing)}
}
