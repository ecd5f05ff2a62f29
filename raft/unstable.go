package raft

import "github.com/millrace/millrace/raft/raftpb"

// unstable holds the tail of the log that is not yet known to be durable: entry i of array.live has index
// offset+i. Entries below inProgress have been handed out for writing.
//
// Invariant: offset <= inProgress <= offset+len(array.live).
//
// The acknowledgement of a write carries an index and the ackTerm at the time of the write: the term of the
// leader whose append last changed this log. It counts only if ackTerm is still the same, for two reasons.
//
//   - While ackTerm stays the same, the log only grows: a term has one leader, and a leader never rewrites
//     its log. So the acknowledged entries are still there.
//   - After ackTerm has changed, the acknowledged entries may have been replaced, even by entries of the same
//     index and term (the ABA race: the leader of term 1 writes 12@1, the leader of term 2 replaces it by
//     12@2, and the first leader returns in term 3 with its old 12@1). Ignoring the stale acknowledgement
//     costs nothing: the append that changed ackTerm wrote entries too, and their acknowledgement will come.
//
// Before the entries there may be a snapshot that is not yet known to be durable. Then storage still holds
// the log that the snapshot replaces, offset is the index after the snapshot, and nothing below it is read.
//
// A slice that was handed out is never written to again. array says how entries are stored with few copies:
// the leader copies each entry once, and a follower adopts the slice of a MsgApp if the tail is empty.
type unstable struct {
	offset     uint64
	inProgress uint64
	array      entryArray
	ackTerm    uint64
	beforeTerm uint64 // the term of the entry before offset; 0: ask storage
	sizes      sizes  // of all entries that are held here, and of some durable ones
	keepSizes  uint64 // sizes from here on are kept until the entries are handed out for apply

	snapshot           *raftpb.Snapshot // nil: none is pending
	snapshotInProgress bool             // it has been handed out
}

// newUnstable returns the empty tail of a log in storage that ends at entry last.
func newUnstable(last uint64) unstable {
	return unstable{offset: last + 1, inProgress: last + 1, sizes: sizes{first: last + 1}, keepSizes: noLimit}
}

func (u *unstable) end() uint64 { return u.offset + uint64(len(u.array.live)) }

// term returns the term of entry i if it is held here, or if it is the last entry of the pending snapshot.
func (u *unstable) term(i uint64) (uint64, bool) {
	if u.snapshot != nil && i == u.snapshot.Metadata.Index {
		return u.snapshot.Metadata.Term, true
	}
	if i+1 == u.offset {
		return u.beforeTerm, u.beforeTerm != 0
	}
	if i < u.offset || i >= u.end() {
		return 0, false
	}
	return u.array.live[i-u.offset].Term, true
}

// slice returns the entries in [lo, hi), which must be held here.
func (u *unstable) slice(lo, hi uint64) []raftpb.Entry {
	if lo < u.offset || hi < lo || hi > u.end() {
		invariant(false, "unstable [%d,%d) holds [%d,%d)", u.offset, u.end(), lo, hi)
	}
	return u.array.live[lo-u.offset : hi-u.offset : hi-u.offset]
}

// next returns the entries that have not been handed out for writing.
func (u *unstable) next() []raftpb.Entry {
	if u.inProgress == u.end() {
		return nil
	}
	return u.slice(u.inProgress, u.end())
}

// nextSnapshot returns the pending snapshot if it has not been handed out.
func (u *unstable) nextSnapshot() *raftpb.Snapshot {
	if u.snapshotInProgress {
		return nil
	}
	return u.snapshot
}

// acceptNext records that the results of next and nextSnapshot have been handed out.
func (u *unstable) acceptNext() {
	u.inProgress = u.end()
	u.snapshotInProgress = u.snapshot != nil
}

// restore replaces the whole log, the part in storage included, by a snapshot from the leader of the given
// term.
func (u *unstable) restore(s *raftpb.Snapshot, leaderTerm uint64) {
	u.offset = s.Metadata.Index + 1
	u.inProgress = u.offset
	u.array.reset()
	u.beforeTerm = s.Metadata.Term
	u.sizes.reset(u.offset)
	u.ackTerm = leaderTerm
	u.snapshot, u.snapshotInProgress = s, false
}

// snapshotStable handles the acknowledgement that the snapshot through index is durable. A later snapshot may
// be pending by then.
func (u *unstable) snapshotStable(index uint64) {
	if u.snapshot != nil && u.snapshot.Metadata.Index == index {
		u.snapshot, u.snapshotInProgress = nil, false
	}
}

// appendOwn appends a leader's commands as entries of its term.
func (u *unstable) appendOwn(commands []raftpb.Entry, term uint64) {
	u.ackTerm = term
	u.reserve(len(commands))
	index := u.end()
	added := u.array.extend(len(commands))
	for i := range added { // single fields: the garbage collector has less to do than for whole entries
		e, c := &added[i], &commands[i]
		e.Term, e.Index, e.Type, e.Sum, e.Data = term, index+uint64(i), c.Type, c.Sum, c.Data
	}
	u.measure(added)
}

// replaceFrom writes entries from the leader of the given term over everything from the first one's index on.
// That index may be below offset: then the write of these entries must also truncate the durable log. The
// core keeps the slice.
func (u *unstable) replaceFrom(entries []raftpb.Entry, leaderTerm uint64) {
	u.ackTerm = leaderTerm
	if first := entries[0].Index; first < u.end() {
		u.truncate(first)
	}
	if len(u.array.live) == 0 && cap(u.array.live) < len(entries) {
		u.array.adopt(entries)
	} else {
		u.reserve(len(entries))
		copy(u.array.extend(len(entries)), entries)
	}
	u.measure(entries)
}

// truncate drops entry first and everything after it. first is not beyond the end.
func (u *unstable) truncate(first uint64) {
	u.array.keep(max(first, u.offset) - u.offset)
	if first < u.offset { // the entry before the tail is now another one, and it is in storage
		u.offset, u.beforeTerm = first, 0
	}
	u.inProgress = min(u.inProgress, first)
	u.sizes.truncate(first)
}

func (u *unstable) measure(added []raftpb.Entry) {
	u.sizes.add(added)
	u.sizes.forget(min(max(u.offset, maxSizesOfDurable)-maxSizesOfDurable, u.keepSizes))
}

// entryBytes is about the memory of one entry beside its payload.
const entryBytes = 64

// EntryOverhead is the most memory that an entry of the unstable log takes beside its payload. It has 48
// bytes in an array that may be half empty, and the same again in smaller arrays that unfinished writes
// hold. Its size takes 16 bytes in an array with space to grow, and its payload at least the allocator's
// smallest block. It is a value for Config.EntryOverheadBytes; a test measures it.
const EntryOverhead = 192

// reserve makes space for n more entries. A reader that keeps one entry pins the whole array, so the live
// entries move to a new array when the dead ones outweigh both maxPinnedBytes and the live ones. Pinned
// memory is thus at most twice the unstable tail, or fullArray entries, maxPinnedBytes of payload and one
// batch.
func (u *unstable) reserve(n int) {
	dead := u.array.dead
	u.array.reserve(n, dead > maxPinnedBytes && dead > u.weight(u.offset, u.end()))
}

// weight is about the memory that the entries in [lo, hi) take. They must be held here.
func (u *unstable) weight(lo, hi uint64) uint64 {
	total, _ := u.sizes.between(lo, hi)
	return total.payload + (hi-lo)*entryBytes
}

// stableTo handles an acknowledgement that everything through index is durable, as of the given ackTerm.
func (u *unstable) stableTo(index, ackTerm uint64) {
	if ackTerm != u.ackTerm || index < u.offset || index >= u.end() {
		return
	}
	u.forgetThrough(index)
}

// stableInProgress handles the acknowledgement that all entries handed out for writing are durable. In
// synchronous mode, with one write under way at a time, Advance says this about every entry that has not been
// replaced since.
func (u *unstable) stableInProgress() {
	if u.inProgress > u.offset {
		u.forgetThrough(u.inProgress - 1)
	}
}

// forgetThrough drops the entries through index, which storage holds.
func (u *unstable) forgetThrough(index uint64) {
	n := index + 1 - u.offset
	u.beforeTerm = u.array.live[n-1].Term
	u.array.drop(n, u.weight(u.offset, index+1))
	u.offset = index + 1
	u.inProgress = max(u.inProgress, u.offset)
}

// shrink releases memory that a log without new entries does not need.
func (u *unstable) shrink() {
	u.sizes.totals.shrink()
	u.array.shrink()
}
