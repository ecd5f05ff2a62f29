package raft

import "github.com/millrace/millrace/raft/raftpb"

// SoftState is what need not be saved: who leads, and in which role this node is.
type SoftState struct {
	Lead      uint64
	RaftState StateType
}

// Ready is what a node wants done. What it points to is immutable from now on, for both sides.
type Ready struct {
	// SoftState is set when it has changed.
	*SoftState
	// HardState is set when it has changed. In asynchronous mode it is also in the MsgStorageAppend.
	raftpb.HardState
	// Entries are to be made durable; they replace what the log holds from the first one's index on.
	Entries []raftpb.Entry
	// Snapshot, if not empty (IsEmptySnap), is to be made durable and installed before Entries are written; it takes the
	// place of the whole log. It needs a sync whatever MustSync says. In asynchronous mode it is in the MsgStorageAppend,
	// whose worker first waits until the apply worker has done all that it was handed.
	Snapshot raftpb.Snapshot
	// CommittedEntries are to be applied, in order.
	CommittedEntries []raftpb.Entry
	// Messages are to be sent: in asynchronous mode at once, each to its peer or local worker; in synchronous mode
	// after Snapshot, Entries and HardState are saved.
	Messages []raftpb.Message
	// ReadStates answer reads that were asked of this node.
	ReadStates []ReadState
	// DroppedReads are the contexts of reads asked of this node that will not be answered: their leader is none any
	// more, or has too many. They may be asked again.
	DroppedReads [][]byte
	// MustSync reports whether saving needs a sync: there are entries, or the term or vote has changed. A commit
	// index alone may be lost; it is learned again.
	MustSync bool
}

// IsEmptyHardState reports whether st says nothing.
func IsEmptyHardState(st raftpb.HardState) bool { return st == raftpb.HardState{} }

// IsEmptySnap reports whether snap is none.
func IsEmptySnap(snap raftpb.Snapshot) bool { return snap.Metadata.Index == 0 }

// MustSync reports whether a hard state after prev, with that many entries, needs a sync.
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

// Ready returns what there is to do, and takes it as accepted: the caller will do it. In synchronous mode Advance must
// be called, when it is done, before the next Ready.
func (rn *RawNode) Ready() (rd Ready) {
	r := rn.raft
	committed := r.log.nextToApply(!rn.async)
	if r.log.failure != nil {
		return rd // stopped, perhaps by reading just now
	}
	rd.Entries, rd.CommittedEntries = r.log.unstable.next(), committed
	rd.ReadStates, rd.DroppedReads = r.out.reads, r.out.droppedReads
	if s := r.log.unstable.nextSnapshot(); s != nil {
		rd.Snapshot = *s
	}
	if soft := r.softState(); soft != rn.prevSoft {
		changed := soft // declared here, as it goes to the heap
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
		if len(rd.CommittedEntries) > 0 {
			rn.storageApply(rd.CommittedEntries)
		}
	} else {
		rn.acceptSync(rd.CommittedEntries)
	}
	rd.Messages = r.out.now.take()
	r.out.ownAck, r.out.reads, r.out.droppedReads = raftpb.EntryID{}, nil, nil
	r.log.unstable.acceptNext()
	if len(rd.CommittedEntries) > 0 {
		r.log.acceptApplying(rd.CommittedEntries, r.termStart(), !rn.async)
	}
	return rd
}
