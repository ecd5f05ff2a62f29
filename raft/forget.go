package raft

// forgetLeader makes a follower as open to another leader as if it had heard none: for an application that knows better
// than a timeout that the leader is gone (a host that was seen to die), and wants the next election to be held without
// waiting. Term and vote stay, so it costs no safety, and a leader that is alive is followed again by its next message.
// Where leaders read by lease it would break a promise, and is refused.
func (r *raft) forgetLeader() error {
	if r.cfg.leaseReads {
		return ErrPromised
	}
	if r.role == StateFollower {
		r.lead = None
	}
	return nil
}
