package wal

import "sync/atomic"

// Stats are totals since Open, except Segments, CachedBytes and IndexBytes, which are what is there now.
type Stats struct {
	Appends         uint64 // calls of Append that wrote something
	AppendedEntries uint64
	AppendedBytes   uint64 // records with their headers
	Syncs           uint64 // fdatasyncs on the append path
	SyncedBytes     uint64
	SyncNanos       uint64 // time inside those fdatasyncs
	Segments        uint64 // files that hold records
	SegmentsWaited  uint64 // segments that an Append had to prepare itself because the helper was late
	Recycled        uint64 // segments made of the files of dropped ones
	Dropped         uint64 // segments that no group needed any more
	MovedEntries    uint64 // copied out of a segment so that it could be dropped
	ZeroedBytes     uint64 // written by the helper ahead of the records
	CachedBytes     uint64
	IndexBytes      uint64
	ColdReads       uint64 // preads for entries that were not in the cache
}

type counters struct {
	appends, appendedEntries, appendedBytes atomic.Uint64
	syncs, syncedBytes, syncNanos           atomic.Uint64
	segments, segmentsWaited, zeroedBytes   atomic.Uint64
	recycled, dropped, movedEntries         atomic.Uint64
	cachedBytes, indexBytes, coldReads      atomic.Uint64
}

// Stats returns the current totals. It never blocks.
func (l *Log) Stats() Stats {
	c := &l.stats
	return Stats{
		Appends:         c.appends.Load(),
		AppendedEntries: c.appendedEntries.Load(),
		AppendedBytes:   c.appendedBytes.Load(),
		Syncs:           c.syncs.Load(),
		SyncedBytes:     c.syncedBytes.Load(),
		SyncNanos:       c.syncNanos.Load(),
		Segments:        c.segments.Load(),
		SegmentsWaited:  c.segmentsWaited.Load(),
		Recycled:        c.recycled.Load(),
		Dropped:         c.dropped.Load(),
		MovedEntries:    c.movedEntries.Load(),
		ZeroedBytes:     c.zeroedBytes.Load(),
		CachedBytes:     c.cachedBytes.Load(),
		IndexBytes:      c.indexBytes.Load(),
		ColdReads:       c.coldReads.Load(),
	}
}
