package raft

import pb "github.com/millrace/millrace/raft/raftpb"

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
// Slices handed out are never written to again: truncation copies.
type unstable struct {
	offset     uint64
	inProgress uint64
	entries    []pb.Entry
	mark       uint64

	snapshot           *pb.Snapshot // nil: none is pending
	snapshotInProgress bool         // it has been handed out
}

func (u *unstable) end() uint64 { return u.offset + uint64(len(u.entries)) }

// term returns the term of entry i if it is held here, or if it is the last one in the pending snapshot.
func (u *unstable) term(i uint64) (uint64, bool) {
	if u.snapshot != nil && i == u.snapshot.Metadata.Index {
		return u.snapshot.Metadata.Term, true
	}
	if i < u.offset || i >= u.end() {
		return 0, false
	}
	return u.entries[i-u.offset].Term, true
}

// slice returns entries in [lo, hi), which must be held here.
func (u *unstable) slice(lo, hi uint64) []pb.Entry {
	if lo < u.offset || hi < lo || hi > u.end() {
		invariant(false, "unstable [%d,%d) holds [%d,%d)", u.offset, u.end(), lo, hi)
	}
	return u.entries[lo-u.offset : hi-u.offset : hi-u.offset]
}

// next returns the entries that have not been handed out for writing.
func (u *unstable) next() []pb.Entry {
	if u.inProgress == u.end() {
		return nil
	}
	return u.slice(u.inProgress, u.end())
}

// nextSnapshot returns the pending snapshot if it has not been handed out.
func (u *unstable) nextSnapshot() *pb.Snapshot {
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
func (u *unstable) restore(s *pb.Snapshot, leaderTerm uint64) {
	u.offset = s.Metadata.Index + 1
	u.inProgress = u.offset
	u.entries = nil
	u.mark = leaderTerm
	u.snapshot, u.snapshotInProgress = s, false
}

// snapshotStable takes an acknowledgement that the snapshot through index is durable. A later one may be pending by now.
func (u *unstable) snapshotStable(index uint64) {
	if u.snapshot != nil && u.snapshot.Metadata.Index == index {
		u.snapshot, u.snapshotInProgress = nil, false
	}
}

// replaceFrom puts entries in, by order of the leader of the given term, in place of everything from the first one's
// index on. That index may lie below offset: then the durable log is to be truncated too, which is the work of whoever
// writes these entries.
func (u *unstable) replaceFrom(entries []pb.Entry, leaderTerm uint64) {
	u.mark = leaderTerm
	switch first := entries[0].Index; {
	case first == u.end():
		u.entries = append(u.entries, entries...)
	case first <= u.offset:
		u.entries = append([]pb.Entry(nil), entries...)
		u.offset, u.inProgress = first, first
	default:
		kept := u.slice(u.offset, first)
		u.entries = append(kept, entries...) // kept is full: this copies
		u.inProgress = min(u.inProgress, first)
	}
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
	u.entries = u.entries[n:]
	u.offset = index + 1
	u.inProgress = max(u.inProgress, u.offset)
	// Let the array go once the live part is a small rest of it, or a steady stream would pin every payload.
	switch {
	case len(u.entries) == 0:
		u.entries = nil
	case cap(u.entries) > 4*len(u.entries)+64:
		u.entries = append(make([]pb.Entry, 0, 2*len(u.entries)), u.entries...)
	}
}
