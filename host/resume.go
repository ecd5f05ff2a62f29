package host

import "github.com/millrace/millrace/raft"

// resume campaigns, if this member led the group before it was opened and the next attempt is due.
func (g *Group) resume() (again bool) {
	r, st := &g.leadership.resume, g.core.node.BasicStatus()
	if !r.Voted {
		return false
	}
	hopeless := st.Lead != raft.None || st.RaftState == raft.StateCandidate || g.writes.append.Full.Load()
	if r.Step(g.core.at.Ticks, ticksPerHeartbeat, int64(g.core.node.PromisedTicks()), g.isAlone(), hopeless) {
		g.campaign()
	}
	return r.Voted
}

// resumeAt returns the tick of the next attempt.
func (g *Group) resumeAt() int64 {
	if !g.leadership.resume.Voted {
		return never
	}
	return g.leadership.resume.Due(g.core.at.Ticks, ticksPerHeartbeat, int64(g.core.node.PromisedTicks()), g.isAlone())
}

// isAlone reports whether this member is the only voter of a founded group.
func (g *Group) isAlone() bool {
	r := g.roster()
	return r != nil && r.Spare(func(id uint64) bool { return id == g.self }) >= 0
}
