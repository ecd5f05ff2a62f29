package host

// compactLog asks the append lane to compact the log through an index. It is part of a turn. What the core
// has not seen applied stays, until it has.
func (g *Group) compactLog(through, applied uint64) {
	if may := min(through, applied); may >= g.writes.storage.log.FirstIndex() {
		g.host.storage.lane.Compact(g.writes.append, may)
	}
	if through <= applied {
		g.snapshots.Compacted(through)
	}
}
