package raft

// forgetLeader makes a follower as open to another leader as if it had heard none. It is for an application
// that knows sooner than a timeout that the leader is gone (its host was seen to die), and wants the next
// election without delay. Term and vote stay, so it costs no safety, and a leader that is alive is followed
// again with its next message. Where leaders read by lease it would break a promise, so it is refused.
func (r *raft) forgetLeader() error {
	if r.cfg.promises {
		return ErrPromised
	}
	if r.role == StateFollower {
		r.lead = None
	}
	return nil
}
