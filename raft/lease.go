package raft

// The lease (thesis §6.4.1): an echo of a read position by a quorum says not only that nobody had succeeded the leader when
// the position was sent, but that nobody will before those who echoed it may vote again, one election timeout later.
// Until somewhat earlier the leader answers reads by itself. Heartbeats renew the lease, as reads that nobody asked.
//
// The lease begins when the position was sent, not when it was answered nor when the quorum was last checked: a leader
// that is cut off may pass one more check, and believe in itself for up to two timeouts.
//
// All members must read by lease, or their followers make no promises.
//
// Those who hear a leader promise, and the promise binds them in every role and across a crash: they neither vote nor
// campaign until it has run out. A leader that hands over by transfer frees them (they vote on its order), and so it has
// no lease while a transfer is under way, nor for the rest of its term once it has sent the order, which may come late.

// leaseTicks leaves a quarter of the election timeout to clocks of different rates, and one tick at either end to what
// lies between two ticks.
func (r *raft) leaseTicks() int { return r.cfg.electionTicks*3/4 - 1 }

func (r *raft) renewLease(askedAt int) {
	r.leader.leaseUntil = max(r.leader.leaseUntil, askedAt+r.leaseTicks())
}

func (r *raft) leaseHolds() bool {
	l := r.leader
	return r.cfg.leaseReads && !l.orderedElection && !r.transferring() && l.ticks < l.leaseUntil
}

// beat sends the regular heartbeats. Where leaders read by lease, their answers renew it.
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

// remembersPromise reports whether a crash now would leave a term on disk, by which the next life knows that there may be a
// promise to keep. A new node whose first write is still under way has none, and brings back no positions: entries are
// written with the term or after it, so the first of them to be durable settles it.
func (r *raft) remembersPromise() bool {
	return !r.cfg.leaseReads || r.start.Term > 0 || r.log.durable() > r.start.Index
}

// promise is what a follower owes a leader that may read by lease.
func (r *raft) promise() {
	if r.cfg.leaseReads {
		r.promisedTicks = r.cfg.electionTicks
	}
}
