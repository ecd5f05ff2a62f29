package wal

import "sync/atomic"

// Stats are totals since Open. Segments, Spares, TailYoung, PendingBytes, CachedBytes, IndexBytes and
// DeletedGroups are current values.
type Stats struct {
	Appends         uint64 // calls of Append that wrote something
	AppendedEntries uint64
	AppendedBytes   uint64 // records with their headers
	Syncs           uint64 // fdatasyncs on the append path
	SyncedBytes     uint64
	SyncedEntries   uint64                 // that flushes were taken for
	SyncNanos       uint64                 // time inside those fdatasyncs
	SyncTimes       [latencyBuckets]uint64 // how many of them took less than 2^i us, and not less than half of that
	QueueNanos      uint64                 // time between taking a flush and the start of its fdatasync
	PendingBytes    uint64                 // written and not durable
	Backlogged      uint64                 // appends that were refused with ErrBacklog
	Segments        uint64                 // files that hold records
	SegmentsWaited  uint64                 // segments that an Append had to prepare itself because the helper was late
	Recycled        uint64                 // segments made of the files of dropped ones
	YoungTails      uint64                 // segments that became the tail before all their blocks were written: syncs into the others commit metadata
	TailYoung       bool                   // the tail has such blocks
	Spares          uint64                 // files kept for the next segments, the reserve among them
	Dropped         uint64                 // segments that no group needed any more
	MovedEntries    uint64                 // copied out of a segment so that it could be dropped
	ZeroedBytes     uint64                 // written by the helper ahead of the records
	CachedBytes     uint64                 // memory of the recent entries, with all that they take besides their data
	IndexBytes      uint64                 // memory of the index
	ColdReads       uint64                 // preads for entries that were not in the cache
	DeletedGroups   uint64                 // that the log remembers; Log.Deleted names them
	IdleWatermarks  uint64                 // watermark records written because nothing was appended after a flush
}

type counters struct {
	appends, appendedEntries, appendedBytes atomic.Uint64
	syncedEntries, queueNanos, backlogged   atomic.Uint64
	pendingBytes                            atomic.Uint64
	syncTimes                               [latencyBuckets]atomic.Uint64
	syncs, syncedBytes, syncNanos           atomic.Uint64
	segments, segmentsWaited, zeroedBytes   atomic.Uint64
	recycled, dropped, movedEntries         atomic.Uint64
	youngTails                              atomic.Uint64
	tailYoung                               atomic.Bool
	cachedBytes, indexBytes, coldReads      atomic.Uint64
	idleWatermarks, deleted                 atomic.Uint64
}

// Stats returns the current totals. It never blocks.
func (l *Log) Stats() Stats {
	c := l.stats
	s := Stats{
		Appends:         c.appends.Load(),
		AppendedEntries: c.appendedEntries.Load(),
		AppendedBytes:   c.appendedBytes.Load(),
		Syncs:           c.syncs.Load(),
		SyncedBytes:     c.syncedBytes.Load(),
		SyncNanos:       c.syncNanos.Load(),
		SyncedEntries:   c.syncedEntries.Load(),
		QueueNanos:      c.queueNanos.Load(),
		PendingBytes:    c.pendingBytes.Load(),
		Backlogged:      c.backlogged.Load(),
		Segments:        c.segments.Load(),
		SegmentsWaited:  c.segmentsWaited.Load(),
		Recycled:        c.recycled.Load(),
		YoungTails:      c.youngTails.Load(),
		TailYoung:       c.tailYoung.Load(),
		Spares:          l.supply.spareCount.Load(),
		Dropped:         c.dropped.Load(),
		MovedEntries:    c.movedEntries.Load(),
		ZeroedBytes:     c.zeroedBytes.Load(),
		CachedBytes:     c.cachedBytes.Load(),
		IndexBytes:      c.indexBytes.Load(),
		ColdReads:       c.coldReads.Load(),
		DeletedGroups:   c.deleted.Load(),
		IdleWatermarks:  c.idleWatermarks.Load(),
	}
	for i := range s.SyncTimes {
		s.SyncTimes[i] = c.syncTimes[i].Load()
	}
	return s
}

// latencyBuckets is the length of Stats.SyncTimes. The last bucket also counts what took longer than 16 s.
const latencyBuckets = 25
