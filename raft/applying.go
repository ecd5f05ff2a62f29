package raft

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// What is committed is handed out for apply in batches, and acknowledged by the apply worker, which may be slow. So much may
// be on its way: maxBytes encoded bytes, each entry's overhead included. At that, or when a batch had to be cut, handing out pauses until the next
// acknowledgement.
//
// A batch is measured when it is handed out, and its measures wait in a queue until it is acknowledged; the entries, which
// come back with the acknowledgement, are not walked again. An acknowledgement covers the batches before it, so that one
// which was overtaken, or comes twice, says nothing new.
type applying struct {
	batches  window[applyBatch]
	bytes    uint64 // in batches: encoded bytes and overheads
	maxBytes uint64
	paused   bool
}

// applyBatch is a batch that was handed out.
type applyBatch struct {
	through uint64 // its last entry
	bytes   uint64 // encoded bytes and overheads
	own     uint64 // payload and overhead of what this node proposed, in the term of its last entry
}

// nextToApply returns the committed entries to hand out now. In asynchronous mode only durable ones go; the synchronous
// emulation passes allowUnstable, as its caller saves before it applies.
func (l *raftLog) nextToApply(allowUnstable bool) []raftpb.Entry {
	if !l.hasNextToApply(allowUnstable) {
		return nil
	}
	room := l.apply.maxBytes - l.apply.bytes
	lo, hi := l.applying+1, l.applyBound(allowUnstable)+1
	if l.overheadBytes > 0 {
		hi = lo + min(hi-lo, max(room/l.overheadBytes, 1)) // no more have room, and of tiny ones storage would read many more
	}
	ents, err := l.entries(lo, hi, room)
	if err != nil {
		l.fail(err) // what is not applied must not be compacted
		return nil
	}
	return l.limitHeld(ents, room)
}

// limitHeld returns the longest prefix that takes at most maxBytes, overheads included, and at least one entry.
func (l *raftLog) limitHeld(entries []raftpb.Entry, maxBytes uint64) []raftpb.Entry {
	if l.overheadBytes == 0 || maxBytes == noLimit {
		return entries
	}
	fit := sort.Search(len(entries), func(i int) bool {
		return l.sizeOf(entries[:i+1]).encoded+l.overhead(i+1) > maxBytes
	})
	n := min(max(fit, 1), len(entries))
	return entries[:n:n]
}

func (l *raftLog) hasNextToApply(allowUnstable bool) bool {
	return !l.apply.paused && l.failure == nil && l.unstable.snapshot == nil && l.applyBound(allowUnstable) > l.applying
}

func (l *raftLog) applyBound(allowUnstable bool) uint64 {
	if allowUnstable {
		return l.committed
	}
	return min(l.committed, l.durable())
}

// acceptApplying notes that entries have been handed out for apply. Those from termStart on are this node's own.
func (l *raftLog) acceptApplying(entries []raftpb.Entry, termStart uint64, allowUnstable bool) {
	first, last := entries[0].Index, entries[len(entries)-1].Index
	all := l.sizeOf(entries)
	batch := applyBatch{through: last, bytes: all.encoded + l.overhead(len(entries))}
	switch {
	case first >= termStart:
		batch.own = l.held(entries)
	case last >= termStart:
		batch.own = l.held(entries[termStart-first:])
	}
	l.apply.batches.push(batch)
	l.apply.bytes += batch.bytes
	l.applying = last
	l.apply.paused = l.apply.bytes >= l.apply.maxBytes || l.applying < l.applyBound(allowUnstable)
	l.forgetSizes()
}

// appliedTo takes the apply worker's acknowledgement through index, and returns how many bytes of this node's own it
// covers, of those from termStart on. (A batch with an entry of that term was handed out in that term.)
func (l *raftLog) appliedTo(index, termStart uint64) (own uint64) {
	if index > l.applying {
		invariant(false, "applied %d was handed out (through %d)", index, l.applying)
	}
	l.applied = max(l.applied, index)
	acknowledged := 0
	for _, b := range l.apply.batches.items() {
		if b.through > index {
			break
		}
		acknowledged++
		l.apply.bytes -= b.bytes
		if b.through >= termStart {
			own += b.own
		}
	}
	l.apply.batches.drop(acknowledged)
	l.apply.paused = l.apply.bytes >= l.apply.maxBytes
	return own
}
