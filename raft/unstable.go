package raft

import "github.com/millrace/millrace/raft/raftpb"

// unstable holds the tail of the log that is not yet known to be durable: entries[i] has index offset+i. Entries below
// inProgress have been handed out for writing.
//
// Invariant: offset <= inProgress <= offset+len(entries).
//
// A write is acknowledged by a mark: the term of the leader whose append last changed this log, and an index. Within one
// mark the log only grows — there is one leader in a term and it never rewrites its log — so an acknowledgement that
// carries the present mark speaks of entries that are still there. After a change of mark it may speak of entries that
// have been replaced since, even by ones of equal index and term once more (the ABA race: leader of term 1 writes
// 12@1, leader of term 2 replaces it by 12@2, the first returns in term 3 with its old 12@1), and is ignored; the
// change itself wrote entries whose acknowledgement will come. A mark is therefore never lost for good.
//
// Before the entries there may be a snapshot that is not yet known to be durable either: then what storage holds is on its
// way out, offset is the index after the snapshot, and nothing below it is to be read.
//
// Slices handed out are never written to again: truncation copies. But an array has room behind what was handed out, so
// that a leader's entries are copied once, to where they stay, and one array serves batch after batch; see room. A follower's
// append is not copied at all where it meets an empty tail: the slice that it came in belongs to nobody else.
type unstable struct {
	offset     uint64
	inProgress uint64
	entries    []raftpb.Entry
	dead       uint64 // weight of what has been forgotten of entries' array
	length     int    // of the last array that was made
	mark       uint64
	beforeTerm uint64 // the term of the entry before offset; 0: ask storage
	sizes      sizes  // of all that is here, and of some that is durable

	snapshot           *raftpb.Snapshot // nil: none is pending
	snapshotInProgress bool             // it has been handed out
}

// newUnstable follows a log in storage whose last entry is given.
func newUnstable(last uint64) unstable {
	return unstable{offset: last + 1, inProgress: last + 1, sizes: sizes{first: last + 1}}
}

func (u *unstable) end() uint64 { return u.offset + uint64(len(u.entries)) }

// term returns the term of entry i if it is held here, or if it is the last one in the pending snapshot.
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
	return u.entries[i-u.offset].Term, true
}

// slice returns entries in [lo, hi), which must be held here.
func (u *unstable) slice(lo, hi uint64) []raftpb.Entry {
	if lo < u.offset || hi < lo || hi > u.end() {
		invariant(false, "unstable [%d,%d) holds [%d,%d)", u.offset, u.end(), lo, hi)
	}
	return u.entries[lo-u.offset : hi-u.offset : hi-u.offset]
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

// acceptNext notes that what next and nextSnapshot returned has been handed out.
func (u *unstable) acceptNext() {
	u.inProgress = u.end()
	u.snapshotInProgress = u.snapshot != nil
}

// restore replaces everything, what storage holds included, by a snapshot from the leader of the given term.
func (u *unstable) restore(s *raftpb.Snapshot, leaderTerm uint64) {
	u.offset = s.Metadata.Index + 1
	u.inProgress = u.offset
	u.entries, u.dead = nil, 0
	u.beforeTerm = s.Metadata.Term
	u.sizes.reset(u.offset)
	u.mark = leaderTerm
	u.snapshot, u.snapshotInProgress = s, false
}

// snapshotStable takes an acknowledgement that the snapshot through index is durable. A later one may be pending by now.
func (u *unstable) snapshotStable(index uint64) {
	if u.snapshot != nil && u.snapshot.Metadata.Index == index {
		u.snapshot, u.snapshotInProgress = nil, false
	}
}

// appendOwn puts a leader's commands at the end, as entries of its term.
func (u *unstable) appendOwn(commands []raftpb.Entry, term uint64) {
	u.mark = term
	u.room(len(commands))
	n, index := len(u.entries), u.end()
	u.entries = u.entries[:n+len(commands)]
	added := u.entries[n:]
	for i := range added { // the places are empty; the collector sees to single fields faster than to whole entries
		e, c := &added[i], &commands[i]
		e.Term, e.Index, e.Type, e.Data = term, index+uint64(i), c.Type, c.Data
	}
	u.measure(added)
}

// replaceFrom puts entries in, by order of the leader of the given term, in place of everything from the first one's
// index on. That index may lie below offset: then the durable log is to be truncated too, which is the work of whoever
// writes these entries. The slice is kept.
func (u *unstable) replaceFrom(entries []raftpb.Entry, leaderTerm uint64) {
	u.mark = leaderTerm
	if first := entries[0].Index; first < u.end() {
		u.truncate(first)
	}
	if len(u.entries) == 0 && cap(u.entries) < len(entries) {
		u.entries, u.dead = entries[:len(entries):len(entries)], 0
	} else {
		u.room(len(entries))
		u.entries = append(u.entries, entries...)
	}
	u.measure(entries)
}

// truncate forgets everything from an index on, which is not beyond the end. What stays has no room behind it, so that what
// follows goes elsewhere: readers may keep what was there.
func (u *unstable) truncate(first uint64) {
	stays := max(first, u.offset) - u.offset
	if u.entries = u.entries[:stays:stays]; stays == 0 {
		u.entries, u.dead = nil, 0
	}
	if first < u.offset { // the entry before the tail is another one now, and is in storage
		u.offset, u.beforeTerm = first, 0
	}
	u.inProgress = min(u.inProgress, first)
	u.sizes.truncate(first)
}

func (u *unstable) measure(added []raftpb.Entry) {
	u.sizes.add(added)
	u.sizes.forget(max(u.offset, maxSizesOfDurable) - maxSizesOfDurable)
}

const (
	smallArray = 16
	fullArray  = 256 // entries, 12 KiB
	// entryBytes is about what an entry takes, beside its payload.
	entryBytes = 64
)

// EntryOverhead is what an entry of the unstable log takes in memory beside its payload, at most: 48 bytes in an array
// that may be half empty, as much again in smaller arrays that writes still under way hold, 16 for its size in an array
// with room to grow, and the allocator's smallest block for its payload. It is meant for Config.EntryOverheadBytes; a test
// measures it.
const EntryOverhead = 192

// room makes sure that n entries can be appended in place, in a new array if need be. The array is left behind when it is
// full, and also when more of it is dead than maxPinnedBytes and than is alive: who keeps one entry that was handed out
// keeps the others in its array. So that is twice what was unstable at once, or fullArray entries with a MiB of payloads and
// one batch. What is alive moves with it, which costs less than what has died meanwhile.
func (u *unstable) room(n int) {
	alive := len(u.entries)
	switch {
	case alive+n > cap(u.entries):
		u.length = min(2*u.length, fullArray)
	case u.dead > maxPinnedBytes && u.dead > u.weight(u.offset, u.end()):
		u.length /= 2
	default:
		return
	}
	u.length = max(u.length, smallArray, 2*(alive+n))
	u.entries = append(make([]raftpb.Entry, 0, u.length), u.entries...)
	u.dead = 0
}

// weight is about the memory that entries [lo, hi), which must be held here, take.
func (u *unstable) weight(lo, hi uint64) uint64 {
	total, _ := u.sizes.between(lo, hi)
	return total.payload + (hi-lo)*entryBytes
}

// stableTo takes an acknowledgement that everything through index is durable, as of the given mark.
func (u *unstable) stableTo(index, mark uint64) {
	if mark != u.mark || index < u.offset || index >= u.end() {
		return
	}
	u.forgetThrough(index)
}

// stableInProgress takes the word that all handed out for writing is durable. In synchronous mode, where one write is under way
// at a time, that is what Advance says, of whatever has not been replaced since.
func (u *unstable) stableInProgress() {
	if u.inProgress > u.offset {
		u.forgetThrough(u.inProgress - 1)
	}
}

// forgetThrough leaves entries through index to storage.
func (u *unstable) forgetThrough(index uint64) {
	n := index + 1 - u.offset
	u.beforeTerm = u.entries[n-1].Term
	u.dead += u.weight(u.offset, index+1)
	u.entries = u.entries[n:]
	u.offset = index + 1
	u.inProgress = max(u.inProgress, u.offset)
	if cap(u.entries) == 0 {
		u.entries, u.dead = nil, 0 // of no more use
	}
}

// rest lets memory go that a log which takes no entries does not need.
func (u *unstable) rest() {
	u.length = 0
	u.sizes.totals.rest()
	if cap(u.entries) > 2*len(u.entries) || u.dead > 0 {
		u.entries, u.dead = append([]raftpb.Entry(nil), u.entries...), 0
	}
}
