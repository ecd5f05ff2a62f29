package tracker

import "github.com/millrace/millrace/raft/quorum"

// Member is a member of the group and the leader's view of it.
type Member struct {
	ID       uint64
	Progress Progress
}

// Members is a leader's view of every member, the leader included, in ascending order of id. It is a slice,
// so that a visit is cheap and its order is the same in every run.
type Members []Member

// MakeMembers returns a view in which nothing is known yet: every follower is probed after entry last.
func MakeMembers(c Config, last uint64, inflightMsgs int, inflightBytes uint64) Members {
	ids := c.Members()
	members := make(Members, len(ids))
	for i, id := range ids {
		_, learner := c.Learners[id]
		members[i] = Member{ID: id, Progress: Progress{
			Next:      last + 1,
			Inflights: NewInflights(inflightMsgs, inflightBytes),
			IsLearner: learner && !c.IsVoter(id),
		}}
	}
	return members
}

// Get returns the view of one member, or nil. The pointer is valid until the configuration changes.
func (ms Members) Get(id uint64) *Progress {
	for i := range ms { // a group has a handful of members
		if ms[i].ID == id {
			return &ms[i].Progress
		}
	}
	return nil
}

// AckedIndex implements quorum.AckedIndexer with the match indexes.
func (ms Members) AckedIndex(id uint64) (quorum.Index, bool) {
	pr := ms.Get(id)
	if pr == nil {
		return 0, false
	}
	return pr.counts(), true
}

// counts returns the index that counts for a quorum.
func (p *Progress) counts() quorum.Index {
	if p.WithoutAuthority {
		return 0
	}
	return quorum.Index(p.Match)
}

// QuorumActive reports whether a quorum, self included, is active. Each of its members was heard since the
// last check, has authority, and does not owe the answer to an append for timeout ticks or longer
// (Progress.SilentFor).
func (ms Members) QuorumActive(c Config, self uint64, now, timeout int) bool {
	for _, half := range c.Voters {
		active := 0
		for i := range ms {
			p := &ms[i].Progress
			if _, voter := half[ms[i].ID]; voter && (ms[i].ID == self || p.RecentActive && !p.WithoutAuthority && p.SilentFor(now) < timeout) {
				active++
			}
		}
		if len(half) > 0 && active <= len(half)/2 {
			return false
		}
	}
	return true
}
