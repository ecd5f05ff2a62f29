package raft

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// Committed entries are handed out for apply in batches. The apply worker, which may be slow, acknowledges
// them. At most maxBytes may be unacknowledged, in encoded bytes plus the overhead of each entry. When this
// limit is reached, or when a batch had to be cut, no more is handed out until the next acknowledgement.
//
// A batch is measured when it is handed out, and its size waits in a queue until it is acknowledged. The
// entries, or the last index of a range, come back with the acknowledgement and are not walked again. An
// acknowledgement also covers the batches before it, so an acknowledgement that was overtaken, or that comes
// twice, changes nothing.
type applying struct {
	batches  fifo[applyBatch]
	bytes    uint64 // of the batches: encoded bytes and overhead
	maxBytes uint64
	paused   bool
	reading  bool // storage is reading the next entries; see storageread.go
}

// applyBatch describes a batch that was handed out.
type applyBatch struct {
	through uint64 // the last entry
	bytes   uint64 // encoded bytes and overhead
	own     uint64 // payload and overhead of this node's proposals, in the last entry's term
}

// applyWork is what is handed out for apply at once: the entries of (after, through]. entries is nil for a
// range that the apply worker reads itself.
type applyWork struct {
	after, through uint64
	entries        []raftpb.Entry
}

func (w applyWork) isEmpty() bool { return w.through == w.after }

// nextApplyWork returns what to hand out for apply now. Where ranges are wanted, what storage holds is handed
// out as a range, and what only memory holds as entries; no message has both.
func (l *raftLog) nextApplyWork(allowUnstable bool) applyWork {
	if l.applyRanges && l.applying+1 < l.unstable.offset {
		return l.nextRange(allowUnstable)
	}
	entries := l.nextToApply(allowUnstable)
	return applyWork{after: l.applying, through: l.applying + uint64(len(entries)), entries: entries}
}

// nextRange returns the durable part of what may be handed out, as far as there is space for it.
func (l *raftLog) nextRange(allowUnstable bool) applyWork {
	w := applyWork{after: l.applying, through: l.applying}
	if !l.hasNextToApply(allowUnstable) {
		return w
	}
	lo, hi := l.applying+1, min(l.applyBound(allowUnstable)+1, l.unstable.offset)
	space := l.apply.maxBytes - l.apply.bytes
	if first := l.unstable.sizes.first; lo < first {
		w.through += min(min(hi, first)-lo, max(space/l.guessedBytes(), 1))
	} else {
		w.through += l.unstable.sizes.fit(lo, hi, space, l.overheadBytes)
	}
	return w
}

// guessedBytes is what an entry counts whose size is not remembered.
func (l *raftLog) guessedBytes() uint64 { return max(l.overheadBytes, entryBytes) }

// acceptApplyWork records that w has been handed out.
func (l *raftLog) acceptApplyWork(w applyWork, termStart uint64, allowUnstable bool) {
	if w.entries != nil {
		l.acceptApplying(w.entries, termStart, allowUnstable)
		return
	}
	lo, hi := w.after+1, w.through+1
	batch := applyBatch{through: w.through}
	if all, known := l.unstable.sizes.between(lo, hi); known {
		batch.bytes = all.encoded + l.overhead(int(hi-lo))
		if own := max(lo, termStart); own < hi {
			ours, _ := l.unstable.sizes.between(own, hi)
			batch.own = ours.payload + l.overhead(int(hi-own))
		}
	} else {
		if w.through >= termStart {
			invariant(false, "the sizes of a leader's entries, from %d on, are remembered until they are handed out (through %d)", termStart, w.through)
		}
		batch.bytes = (hi - lo) * l.guessedBytes()
	}
	l.acceptBatch(batch, min(l.applyBound(allowUnstable), l.unstable.offset-1))
}

// nextToApply returns the committed entries to hand out now. The synchronous emulation passes allowUnstable,
// because its caller saves before it applies.
func (l *raftLog) nextToApply(allowUnstable bool) []raftpb.Entry {
	if !l.hasNextToApply(allowUnstable) {
		return nil
	}
	space := l.apply.maxBytes - l.apply.bytes
	lo, hi := l.applying+1, l.applyBound(allowUnstable)+1
	if l.overheadBytes > 0 {
		// More entries do not fit, and of tiny entries storage would read many more.
		hi = lo + min(hi-lo, max(space/l.overheadBytes, 1))
	}
	ents, err := l.entries(LocalApplyThread, lo, hi, space)
	if pending(err) {
		l.apply.reading = true
		return nil
	}
	if err != nil {
		l.fail(err) // entries that are not applied must not be compacted
		return nil
	}
	return l.limitHeld(ents, space)
}

// limitHeld returns the longest prefix of at most maxBytes, overhead included, and at least one entry.
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
	return !l.apply.paused && !l.apply.reading && l.failure == nil && l.unstable.snapshot == nil && l.applyBound(allowUnstable) > l.applying
}

// applyBound returns the last entry that may be handed out for apply. In asynchronous mode only durable
// entries are handed out. If the state machine is volatile (applyUnstable), only a membership entry must be
// durable, and so must one that is followed by what is handed out: a node that has applied a change holds it
// durably, on which the argument in membership.go rests. A crash takes other entries and their effects
// together; committed entries are durable on a quorum, from which they come back.
func (l *raftLog) applyBound(allowUnstable bool) uint64 {
	switch {
	case allowUnstable:
		return l.committed
	case l.applyUnstable:
		return min(l.committed, l.changes.next(l.durable()+1)-1)
	}
	return min(l.committed, l.durable())
}

// acceptApplying records that entries have been handed out for apply. This node proposed the entries at and
// after termStart.
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
	l.acceptBatch(batch, l.applyBound(allowUnstable))
}

// acceptBatch records a batch of what could be handed out through bound.
func (l *raftLog) acceptBatch(batch applyBatch, bound uint64) {
	l.apply.batches.push(batch)
	l.apply.bytes += batch.bytes
	l.applying = batch.through
	l.apply.paused = l.apply.bytes >= l.apply.maxBytes || l.applying < bound
	l.forgetSizes()
}

// appliedTo handles the apply worker's acknowledgement through index. It returns the bytes of this node's own
// entries, those at and after termStart, that it covers. (A batch with an entry of this term was handed out
// in this term.)
func (l *raftLog) appliedTo(index, termStart uint64) (own uint64) {
	if index > l.applying {
		invariant(false, "applied %d was handed out (through %d)", index, l.applying)
	}
	l.applied = max(l.applied, index)
	l.changes.forget(min(l.applied, l.durable()))
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
