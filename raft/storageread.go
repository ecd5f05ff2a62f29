package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// Reads of the log that take time. The core calls Storage in the middle of an input, so a storage that reads
// a disk there holds up ticks, heartbeats and votes. Such a storage answers ErrEntriesPending instead, reads
// elsewhere, and calls RawNode.EntriesArrived when the entries are in memory. Meanwhile only the reader waits
// that needs them: one follower, or the apply worker. Heartbeats to that follower continue, and its answers
// count as ever.
//
// A reader that waits does not ask again before EntriesArrived, whatever the follower says in the meantime
// and even if its next entry becomes another one. So each reader has at most one read under way in a term,
// and a follower that answers every heartbeat does not start a read each time. The exception is a member that
// is removed and added again while its read is under way: it is a new reader, and may ask a second time, with
// the first answer still to come.
//
// When the entries have arrived the core decides afresh what the reader needs, and asks for that: the read is
// a hint that made the next one fast, not a promise to take its result. Rejected: to keep the range in the
// core and to match it with the result. Everything may change while a disk reads: the log is compacted, the
// follower rejects, leaves or gets a snapshot, the leader is deposed.
//
// Invariant: no election, no commit and no membership change needs a read. The unapplied membership entries
// are known by their indexes (changes.go), and Storage.Term does not block.

// ReaderStorage is a Storage that knows for whom it reads, and so can give each reader a lane of its own. If
// a Storage is a ReaderStorage, Entries is called by NewRawNode only.
type ReaderStorage interface {
	Storage
	// EntriesFor is Entries for one reader: the id of the member to which a leader will send the entries, or
	// LocalApplyThread for entries to apply. It may answer ErrEntriesPending; see Storage.Entries.
	EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error)
}

// stored reads entries from storage.
func (l *raftLog) stored(reader, lo, hi, maxBytes uint64) (entries []raftpb.Entry, err error) {
	if s := l.readers; s != nil {
		entries, err = s.EntriesFor(reader, lo, hi, maxBytes)
	} else {
		entries, err = l.storage.Entries(lo, hi, maxBytes)
	}
	return checkRead(entries, err, lo, hi)
}

// checkRead refuses an answer of storage that is not what was asked for.
func checkRead(entries []raftpb.Entry, err error, lo, hi uint64) ([]raftpb.Entry, error) {
	if err == nil && (len(entries) == 0 || entries[0].Index != lo) {
		err = fmt.Errorf("asked for entries [%d,%d), storage returned %d others", lo, hi, len(entries))
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// EntriesArrived tells the node that Storage can now return entries for which it answered
// ErrEntriesPending. The reader is the id of a member, LocalApplyThread, or None, which means every reader.
// What waited for them is tried again: a leader sends the member its entries, and HasReady may be true for
// entries to apply.
//
// Each ErrEntriesPending must be followed by an EntriesArrived, also if the read has failed: the storage then
// returns its error when it is asked again. A call that comes late, twice or for a reader that does not wait
// does no harm. Storage need not keep what it has read: it may answer ErrEntriesPending again. The core may
// never ask for the entries again, because the leader was deposed, the member has left, or a snapshot took
// their place. Check Err afterwards.
func (rn *RawNode) EntriesArrived(reader uint64) {
	if rn.Err() != nil {
		return
	}
	rn.raft.entriesArrived(reader)
	rn.raft.checkCursors()
}

func (r *raft) entriesArrived(reader uint64) {
	if reader == None || reader == LocalApplyThread {
		r.log.apply.reading = false
	}
	if r.leader == nil {
		return
	}
	members := r.leader.members
	for i := range members {
		if p := &members[i]; p.Progress.EntriesPending && (reader == None || reader == p.ID) {
			p.Progress.EntriesPending = false
			r.sendAppends(p.ID, &p.Progress, evenIfEmpty) // the commit index may have moved meanwhile
		}
	}
}

// pending reports whether err says that entries are being read.
func pending(err error) bool { return errors.Is(err, ErrEntriesPending) }
