package raft

import "github.com/millrace/millrace/raft/raftpb"

// SoftState is the state that need not be saved: the leader, and the role of this node.
type SoftState struct {
	Lead      uint64
	RaftState StateType
}

// Ready is what a node wants done. From the moment it is returned, neither side may change what it points to.
type Ready struct {
	// SoftState is set when it has changed.
	*SoftState
	// HardState is set when it has changed. In asynchronous mode it is also in the MsgStorageAppend.
	raftpb.HardState
	// Entries must be made durable. They replace the log from the first one's index on.
	Entries []raftpb.Entry
	// Snapshot, if not empty (IsEmptySnap), must be made durable and installed before Entries are written.
	// It replaces the whole log, and it needs a sync whatever MustSync says. In asynchronous mode it is in
	// the MsgStorageAppend; the append worker first waits until the apply worker has done all work that it
	// was handed.
	Snapshot raftpb.Snapshot
	// CommittedEntries must be applied, in order. With Config.ApplyRanges the entries that Storage holds are
	// not here: the MsgStorageApply names them by their indexes.
	CommittedEntries []raftpb.Entry
	// Messages must be sent: in asynchronous mode at once, each to its peer or local worker; in synchronous
	// mode after Snapshot, Entries and HardState are saved.
	Messages []raftpb.Message
	// ReadStates answer reads that this node's application asked for.
	ReadStates []ReadState
	// DroppedReads are the contexts of reads of this node's application that will not be answered: their
	// leader no longer leads, or has too many reads. The application may ask again.
	DroppedReads [][]byte
	// MustSync reports whether saving needs a sync: there are entries, or the term or vote has changed. A
	// commit index alone may be lost, because the node learns it again.
	MustSync bool
}

// IsEmptyHardState reports whether st is the zero value.
func IsEmptyHardState(st raftpb.HardState) bool { return st == raftpb.HardState{} }

// IsEmptySnap reports whether snap is no snapshot.
func IsEmptySnap(snap raftpb.Snapshot) bool { return snap.Metadata.Index == 0 }

// MustSync reports whether saving the hard state st after prev, with the given number of entries, needs a
// sync.
func MustSync(st, prev raftpb.HardState, entries int) bool {
	return entries != 0 || st.Term != prev.Term || st.Vote != prev.Vote
}

// HasReady reports whether Ready would return something. It allocates nothing.
func (rn *RawNode) HasReady() bool {
	r := rn.raft
	if r.log.failure != nil {
		return false
	}
	return len(r.out.now.waiting) > 0 || r.out.answersWrite() ||
		len(r.out.reads) > 0 || len(r.out.droppedReads) > 0 ||
		r.log.unstable.inProgress < r.log.unstable.end() || r.log.unstable.nextSnapshot() != nil ||
		r.softState() != rn.prevSoft || r.hardState() != rn.prevHard ||
		r.log.hasNextToApply(!rn.async)
}

// Ready returns the work to do. It is empty if the only work was to apply entries that Storage still has to
// read (ErrEntriesPending). A caller that takes a Ready has to do all of its work. In synchronous mode it
// then calls Advance, before the next Ready.
func (rn *RawNode) Ready() (rd Ready) {
	r := rn.raft
	next := r.log.nextApplyWork(!rn.async)
	if r.log.failure != nil {
		return rd // the node has stopped, perhaps because of the read just now
	}
	rd.Entries, rd.CommittedEntries = r.log.unstable.next(), next.entries
	rd.ReadStates, rd.DroppedReads = r.out.reads, r.out.droppedReads
	if s := r.log.unstable.nextSnapshot(); s != nil {
		rd.Snapshot = *s
	}
	if soft := r.softState(); soft != rn.prevSoft {
		changed := soft // a copy, because it escapes to the heap
		rd.SoftState, rn.prevSoft = &changed, soft
	}
	hard := r.hardState()
	rd.MustSync = MustSync(hard, rn.prevHard, len(rd.Entries))
	if hard != rn.prevHard {
		rd.HardState = hard
		rn.prevHard = hard
	}
	if rn.async {
		if len(rd.Entries) > 0 || !IsEmptySnap(rd.Snapshot) || !IsEmptyHardState(rd.HardState) || r.out.answersWrite() {
			rn.storageAppend(rd.Entries, rd.HardState)
		}
		if !next.isEmpty() {
			rn.storageApply(next)
		}
	} else {
		rn.acceptSync(rd.CommittedEntries)
	}
	rd.Messages = r.out.now.cut()
	r.out.ownAck, r.out.reads, r.out.droppedReads = raftpb.EntryID{}, nil, nil
	r.log.unstable.acceptNext()
	if !next.isEmpty() {
		r.log.acceptApplyWork(next, r.termStart(), !rn.async)
	}
	return rd
}
