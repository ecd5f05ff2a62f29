package raft

// The lease (thesis §6.4.1). When a quorum echoes a read position, it says two things: no other leader had
// succeeded this one when the position was sent; and none will, until the members of the quorum may vote
// again, one election timeout later. Until somewhat before that time the leader answers reads by itself.
// Heartbeats renew the lease: each counts as a read without an asker.
//
// The lease begins when the position was sent, not when it was answered, and not at the last check of the
// quorum: a leader that is cut off may pass one more check, and would rely on its lease for up to two
// timeouts.
//
// All members must have the same ReadOnlyOption: those that read by lease, or whose application does
// (ReadOnlyPromises), make promises, and the others make none.
//
// A member that hears a leader makes a promise, which binds it in every role and across a crash: it neither
// votes nor campaigns until the promise has expired. A leader that hands over by transfer releases the
// members (they vote on its order). So it has no lease while a transfer is under way, nor for the rest of its
// term once it has sent the order, which may arrive late.

// leaseTicks returns the length of a lease. It leaves a quarter of the election timeout to clocks with
// different rates, and one tick at each end to the time between two ticks.
func (r *raft) leaseTicks() int { return r.cfg.electionTicks*3/4 - 1 }

func (r *raft) renewLease(askedAt int) {
	r.leader.leaseUntil = max(r.leader.leaseUntil, askedAt+r.leaseTicks())
}

func (r *raft) leaseHolds() bool {
	l := r.leader
	return r.cfg.leaseReads && !l.orderedElection && !r.transferring() && l.ticks < l.leaseUntil
}

// beat sends the regular heartbeats. Where leaders read by lease, the answers renew the lease.
func (r *raft) beat() {
	s := &r.leader.reads
	if !r.cfg.leaseReads || s.full() {
		r.broadcastHeartbeat()
		return
	}
	s.waiting = append(s.waiting, waitingRead{readRequest{from: None}, r.log.committed, r.leader.ticks})
	r.broadcastHeartbeat()
	r.releaseReads()
}

// remembersPromise reports whether after a crash at this moment the disk would hold a term, which tells the
// next run of the node that there may be a promise to keep. A new node whose first write is still under way
// has no term on disk, and echoes no positions. Entries are written with the term or after it, so the term is
// on disk as soon as the first entry is.
func (r *raft) remembersPromise() bool {
	return !r.cfg.promises || r.start.Term > 0 || r.log.durable() > r.start.Index
}

// promise makes the promise that a follower owes to a leader that may read by lease.
func (r *raft) promise() {
	if r.cfg.promises {
		r.promisedTicks, r.promised = r.cfg.electionTicks, true
	}
}

// MayLease reports whether this node leads and the promises of its followers bind them to it. It hands its
// leadership over to no other node, and has ordered no election in this term. An application with a lease
// of its own (ReadOnlyPromises) asks after it has stepped an input. It ends its lease before the messages
// of the next Ready leave: with them this node may order an election, or vote for another.
func (rn *RawNode) MayLease() bool {
	r := rn.raft
	return r.role == StateLeader && r.cfg.promises && !r.leader.orderedElection && !r.transferring() && rn.Err() == nil
}

// StretchPromise makes the promise longer that this node has made since the last call, if it has made one:
// by ticks > 0. The application calls it after each input, and counts in ticks how far its ticks are behind
// the time. A promise made by a late clock would end too early. A promise is made when the node starts,
// too.
func (rn *RawNode) StretchPromise(ticks int) {
	if r := rn.raft; r.promised {
		r.promised = false
		r.promisedTicks += min(max(ticks, 0), maxSkippedTicks)
	}
}

// PromisedTicks returns the number of ticks for which this node will neither vote nor campaign, unless its
// leader hands over.
func (rn *RawNode) PromisedTicks() int { return rn.raft.promisedTicks }
