package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// raftLog is the log as the protocol sees it: a durable part that is read from Storage, and an unstable tail
// in memory.
//
// Invariant: applied <= applying <= committed <= lastIndex, and applied <= durable <= lastIndex. With
// applyUnstable there may be entries in (durable, applied], but no membership entry. While a snapshot is
// pending, nothing is handed out for apply.
type raftLog struct {
	storage  Storage
	readers  ReaderStorage // storage, if it wants to know who reads; else nil
	unstable unstable

	first     uint64 // storage holds nothing below; it may have been compacted further since
	committed uint64 // known to be durable on a quorum
	applying  uint64 // handed out for apply
	applied   uint64 // acknowledged by the apply worker

	apply   applying // the batches that are handed out for apply
	changes changes  // the membership entries that are not applied

	applyUnstable bool   // see Config.ApplyUnstable
	applyRanges   bool   // see Config.ApplyRanges
	beforeRestore uint64 // while a snapshot is pending: what was durable before it arrived
	overheadBytes uint64 // of each entry; see Config.EntryOverheadBytes

	// failure is the first storage error that is not a normal answer. It means that storage lost what it was
	// given, and the node must stop.
	failure error
}

func newLog(storage Storage, maxApplyingBytes, overheadBytes uint64) (raftLog, error) {
	first, err := storage.FirstIndex()
	if err != nil {
		return raftLog{}, fmt.Errorf("raft: read first index from storage: %w", err)
	}
	last, err := storage.LastIndex()
	if err != nil {
		return raftLog{}, fmt.Errorf("raft: read last index from storage: %w", err)
	}
	readers, _ := storage.(ReaderStorage)
	return raftLog{
		storage:   storage,
		readers:   readers,
		unstable:  newUnstable(last),
		first:     first,
		committed: first - 1,
		applying:  first - 1,
		applied:   first - 1,
		apply:     applying{maxBytes: maxApplyingBytes},

		overheadBytes: overheadBytes,
	}, nil
}

func (l *raftLog) lastIndex() uint64 { return l.unstable.end() - 1 }

// durable returns the last index that is known to be on this node's disk. While a snapshot is pending that is
// at most what the state machine has, because the snapshot replaces the rest of the old log.
func (l *raftLog) durable() uint64 {
	if l.unstable.snapshot != nil {
		if l.applyUnstable {
			return min(l.applied, l.beforeRestore)
		}
		return l.applied
	}
	return l.unstable.offset - 1
}

// firstIndex returns the first entry that can be read: the one after the last snapshot or compaction.
func (l *raftLog) firstIndex() uint64 {
	if l.unstable.snapshot == nil {
		first, err := l.storage.FirstIndex()
		if err != nil {
			l.fail(err)
		}
		l.first = max(l.first, first)
	}
	return l.first
}

func (l *raftLog) lastEntryID() raftpb.EntryID {
	last := l.lastIndex()
	term, err := l.term(last)
	if err != nil {
		l.fail(err) // even if the error is ErrCompacted
	}
	return raftpb.EntryID{Term: term, Index: last}
}

// committedID returns the last entry that is known to be committed, or the zero value if its term is unknown.
func (l *raftLog) committedID() raftpb.EntryID {
	term, err := l.term(l.committed)
	if err != nil {
		return raftpb.EntryID{}
	}
	return raftpb.EntryID{Term: term, Index: l.committed}
}

// term returns the term of entry i, ErrCompacted below the log, and ErrUnavailable beyond it.
func (l *raftLog) term(i uint64) (uint64, error) {
	if t, ok := l.unstable.term(i); ok {
		return t, nil
	}
	if i+1 < l.first {
		return 0, ErrCompacted
	}
	if i > l.lastIndex() {
		return 0, ErrUnavailable
	}
	t, err := l.storage.Term(i)
	if err != nil {
		l.recordFailure(err)
		return 0, err
	}
	return t, nil
}

// recordFailure keeps an error of storage, unless it only says that the entries are compacted, or are being
// read.
func (l *raftLog) recordFailure(err error) {
	if !errors.Is(err, ErrCompacted) && !pending(err) {
		l.fail(err)
	}
}

func (l *raftLog) fail(err error) {
	if l.failure == nil {
		l.failure = fmt.Errorf("raft: storage cannot return what it was given: %w", err)
	}
}

func (l *raftLog) matches(id raftpb.EntryID) bool {
	t, err := l.term(id.Index)
	return err == nil && t == id.Term
}

// contradictsCommitted reports whether an entry other than id is committed at id's index. Compacted entries
// are trusted.
func (l *raftLog) contradictsCommitted(id raftpb.EntryID) bool {
	if id.Index > l.committed {
		return false
	}
	t, err := l.term(id.Index)
	return err == nil && t != id.Term
}

// fallsBehindCommitted reports whether id would follow the committed entries but has an earlier term, which
// no log has.
func (l *raftLog) fallsBehindCommitted(id raftpb.EntryID) bool {
	return id.Index > l.committed && id.Term < l.committedID().Term
}

// isUpToDate is the election restriction (thesis §3.6.1): another log is at least as complete as this one if
// its last entry has a higher term, or the same term and no lower index.
func (l *raftLog) isUpToDate(theirs raftpb.EntryID) bool {
	ours := l.lastEntryID()
	return theirs.Term > ours.Term || (theirs.Term == ours.Term && theirs.Index >= ours.Index)
}

// append appends entries from the leader of the given term.
func (l *raftLog) append(entries []raftpb.Entry, leaderTerm uint64) {
	if len(entries) > 0 {
		l.unstable.replaceFrom(entries, leaderTerm)
		l.changes.truncate(entries[0].Index)
		l.changes.add(entries)
	}
}

// appendOwn appends the proposals of the leader of the given term, which this node is, and returns their
// entries.
func (l *raftLog) appendOwn(proposals []raftpb.Entry, term uint64) []raftpb.Entry {
	first := l.lastIndex() + 1
	l.unstable.appendOwn(proposals, term)
	entries := l.unstable.slice(first, l.lastIndex()+1)
	l.changes.add(entries)
	return entries
}

// firstConflict returns the position in entries of the first entry that the log does not hold, or
// len(entries) if the log holds them all. Entries of equal index and term are the same entry (thesis §3.5),
// so a stale duplicate of an append finds no conflict and truncates nothing.
func (l *raftLog) firstConflict(entries []raftpb.Entry) int {
	for i := range entries {
		if !l.matches(entries[i].ID()) {
			return i
		}
	}
	return len(entries)
}

// lastNotAfter returns the last entry at or below index whose term is at or below term. It is for the fast
// search of the point where two logs diverge: it skips whole terms that one side cannot have (thesis §3.5). A
// position whose term is unknown, because it is compacted or beyond the log, counts as an entry of term 0.
//
// Terms never decrease along a log, so the entries that fit lie below those that do not. The search goes down
// in steps that double until an entry fits, and then halves the last step. It reads a few terms if the logs
// diverge nearby, and never more than twice 64: index is the word of a peer.
func (l *raftLog) lastNotAfter(index, term uint64) raftpb.EntryID {
	fit, late := l.termFits(index, term)
	for step := uint64(1); late; step *= 2 {
		high := fit.Index // the lowest entry so far whose term is too late
		if high == 0 {
			return raftpb.EntryID{}
		}
		fit, late = l.termFits(high-min(step, high), term)
		for !late && fit.Index+1 < high {
			if middle, late := l.termFits(fit.Index+(high-fit.Index)/2, term); late {
				high = middle.Index
			} else {
				fit = middle
			}
		}
	}
	return fit
}

// termFits returns entry i, and whether its term is later than term.
func (l *raftLog) termFits(i, term uint64) (id raftpb.EntryID, late bool) {
	t, err := l.term(i)
	if err != nil {
		return raftpb.EntryID{Index: i}, false
	}
	return raftpb.EntryID{Term: t, Index: i}, t > term
}

func (l *raftLog) commitTo(index uint64) {
	if index > l.committed {
		if last := l.lastIndex(); index > last {
			invariant(false, "commit %d is within the log, which ends at %d", index, last)
		}
		l.committed = index
	}
}

// entries returns entries of [lo, hi), starting at lo, with about maxBytes in total, for a reader
// (ReaderStorage). A storage failure is kept in failure; ErrCompacted and ErrEntriesPending are no failures.
func (l *raftLog) entries(reader, lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	if lo >= hi {
		return nil, nil
	}
	if lo >= l.unstable.offset {
		return l.unstable.slice(lo, l.unstable.sizes.cut(lo, hi, maxBytes)), nil
	}
	cut := min(hi, l.unstable.offset)
	stored, err := l.stored(reader, lo, cut, maxBytes)
	if err != nil {
		l.recordFailure(err)
		return nil, err
	}
	if cut == hi || uint64(len(stored)) < cut-lo {
		return stored, nil // everything that was asked for, or limited by maxBytes
	}
	bytes := l.sizeOf(stored).encoded
	if bytes >= maxBytes {
		return stored, nil
	}
	tail := l.unstable.slice(cut, l.unstable.sizes.cut(cut, hi, maxBytes-bytes))
	if len(tail) == 1 && bytes+uint64(tail[0].Size()) > maxBytes {
		return stored, nil
	}
	both := make([]raftpb.Entry, 0, len(stored)+len(tail))
	return append(append(both, stored...), tail...), nil
}

// restore replaces the log by a snapshot from the leader of the given term. Everything in it is committed. It
// is applied when the application has installed it, which the append worker's acknowledgement says.
func (l *raftLog) restore(s *raftpb.Snapshot, leaderTerm uint64) {
	if l.unstable.snapshot == nil {
		l.beforeRestore = l.durable()
	}
	l.unstable.restore(s, leaderTerm)
	l.changes.truncate(0)
	l.first = s.Metadata.Index + 1
	l.committed = s.Metadata.Index
}

// snapshotStable handles the acknowledgement that the snapshot through index is durable and installed.
func (l *raftLog) snapshotStable(index uint64) {
	l.unstable.snapshotStable(index)
	if index > l.committed {
		invariant(false, "an installed snapshot (through %d) is committed (through %d)", index, l.committed)
	}
	l.beforeRestore = max(l.beforeRestore, index) // a later snapshot may be pending
	if index > l.applying {
		l.apply.reading = false // the entries that are being read are no longer needed
	}
	l.applied, l.applying = max(l.applied, index), max(l.applying, index)
}

// sizeOf returns the size of entries of this log.
func (l *raftLog) sizeOf(entries []raftpb.Entry) size {
	if len(entries) == 0 {
		return size{}
	}
	first := entries[0].Index
	if total, known := l.unstable.sizes.between(first, first+uint64(len(entries))); known {
		return total
	}
	return size{encoded: entriesSize(entries), payload: payloadSize(entries)}
}

// held returns what entries count where memory is bounded: their payload, and an overhead for each.
func (l *raftLog) held(entries []raftpb.Entry) uint64 {
	return l.sizeOf(entries).payload + l.overhead(len(entries))
}

func (l *raftLog) overhead(entries int) uint64 { return uint64(entries) * l.overheadBytes }

// shrink releases memory that a log without new entries does not need.
func (l *raftLog) shrink() {
	l.forgetSizes()
	l.unstable.shrink()
	l.apply.batches.shrink()
}

// forgetSizes forgets the sizes of entries that are durable and handed out for apply; they are no longer
// needed.
func (l *raftLog) forgetSizes() { l.unstable.sizes.forget(min(l.unstable.offset, l.applying+1)) }

// limitSize returns the longest prefix of at most maxBytes encoded bytes, and at least one entry.
func limitSize(entries []raftpb.Entry, maxBytes uint64) []raftpb.Entry {
	if maxBytes == noLimit || len(entries) == 0 {
		return entries
	}
	size := uint64(entries[0].Size())
	for i := 1; i < len(entries); i++ {
		size += uint64(entries[i].Size())
		if size > maxBytes {
			return entries[:i:i]
		}
	}
	return entries
}

func entriesSize(entries []raftpb.Entry) uint64 {
	var n uint64
	for i := range entries {
		n += uint64(entries[i].Size())
	}
	return n
}

func payloadSize(entries []raftpb.Entry) uint64 {
	var n uint64
	for i := range entries {
		n += uint64(len(entries[i].Data))
	}
	return n
}
