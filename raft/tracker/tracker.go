package tracker

import "github.com/millrace/millrace/raft/quorum"

// Peer is a member and the leader's view of it.
type Peer struct {
	ID       uint64
	Progress Progress
}

// Peers is a leader's view of every member, itself included, in ascending order of id: a slice, so that visiting is
// cheap and its order is the same on every run.
type Peers []Peer

// MakePeers returns a view in which nothing is known: every follower is probed after last.
func MakePeers(c Config, last uint64, inflightMsgs int, inflightBytes uint64) Peers {
	ids := c.Members()
	peers := make(Peers, len(ids))
	for i, id := range ids {
		_, learner := c.Learners[id]
		peers[i] = Peer{ID: id, Progress: Progress{
			Next:      last + 1,
			Inflights: NewInflights(inflightMsgs, inflightBytes),
			IsLearner: learner && !c.IsVoter(id),
		}}
	}
	return peers
}

// Get returns the view of one member, or nil. The pointer is good until the configuration changes.
func (p Peers) Get(id uint64) *Progress {
	for i := range p { // a group has a handful of members
		if p[i].ID == id {
			return &p[i].Progress
		}
	}
	return nil
}

// AckedIndex implements quorum.AckedIndexer with the match indexes.
func (p Peers) AckedIndex(id uint64) (quorum.Index, bool) {
	pr := p.Get(id)
	if pr == nil {
		return 0, false
	}
	return quorum.Index(pr.Match), true
}

// QuorumActive reports whether a quorum, the asking leader included, was heard since the last check.
func (p Peers) QuorumActive(c Config, self uint64) bool {
	active := make(map[uint64]bool, len(p))
	for i := range p {
		active[p[i].ID] = p[i].ID == self || p[i].Progress.RecentActive
	}
	return c.Voters.VoteResult(active) == quorum.VoteWon
}
