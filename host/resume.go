package host

import "github.com/millrace/millrace/raft"

// When all hosts have restarted, no group has a leader, and each would wait for an election timeout. One
// member of each can know that it may lead again: the one that voted for itself in the last term that it
// knows. It campaigns soon after the group is opened, instead of waiting. The other members do not, so no
// votes are split.
//
// This needs the pre-vote (thesis §9.6): while another leads, its followers refuse, and nothing happens. The
// group waits for two heartbeats first, in which that leader would be heard, and tries again after twice and
// four times as long, because the other hosts may be slower to start. Where members make promises (lease.go)
// it waits for the end of its own, which a member makes when it starts.
//
// The only voter of a group does not wait: no other member can lead.

// maxResumeTries keeps the attempts within an election timeout of common length.
const maxResumeTries = 3

// resume campaigns, if this member led the group before it was opened and the next attempt is due.
func (g *Group) resume() (again bool) {
	r := &g.leadership.resuming
	if !r.voted {
		return false
	}
	if r.since == 0 {
		r.since = max(g.core.at.ticks, 1)
	}
	st := g.core.node.BasicStatus()
	switch {
	case st.Lead != raft.None || st.RaftState == raft.StateCandidate || g.writes.append.Full.Load():
		r.voted = false
	case g.core.at.ticks >= g.resumeAt() && g.core.node.PromisedTicks() == 0:
		r.tries++
		r.voted = r.tries < maxResumeTries
		g.campaign()
	}
	return r.voted
}

// resumeAt returns the tick of the next attempt.
func (g *Group) resumeAt() int64 {
	if !g.leadership.resuming.voted {
		return never
	}
	promised := g.core.at.ticks + int64(g.core.node.PromisedTicks())
	if g.isAlone() {
		return promised
	}
	return max(g.leadership.resuming.since+2*ticksPerHeartbeat<<g.leadership.resuming.tries, promised)
}

// isAlone reports whether this member is the only voter of a founded group.
func (g *Group) isAlone() bool {
	r := g.roster()
	return r != nil && r.Spare(func(id uint64) bool { return id == g.self }) >= 0
}
