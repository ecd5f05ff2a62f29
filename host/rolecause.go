package host

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// roleCause returns why the group's role or leader is another one now.
func (g *Group) roleCause(was, now diagnosis.Status) event.RoleCause {
	switch now.Role {
	case event.RoleLeader:
		return event.CauseElected
	case event.RolePreCandidate, event.RoleCandidate:
		switch {
		case g.work.ordered:
			return event.CauseTold
		case was.Role == event.RolePreCandidate:
			return event.CausePreVote
		}
		return event.CauseTimeout
	}
	switch {
	case was.Role == event.RoleLeader && now.Term == was.Term && g.leadership.leader.SteppedDown(now.Term):
		return event.CauseGivenUp
	case was.Role == event.RoleLeader && now.Term == was.Term:
		return event.CauseNoQuorum
	case now.Leader != raft.None:
		return event.CauseLeaderHeard
	case now.Term > was.Term:
		return event.CauseLaterTerm
	case was.Role == event.RoleFollower:
		return event.CauseLeaderLost
	}
	return event.CauseNotElected
}

// campaign starts an election because the member was told to.
func (g *Group) campaign() {
	g.work.ordered = true
	g.countRefusal(g.core.node.Campaign())
}

// observeOrder notes an order of the leader to campaign.
func (g *Group) observeOrder(m *raftpb.Message) {
	if m.Type == raftpb.MsgTimeoutNow {
		g.work.ordered = true
	}
}
