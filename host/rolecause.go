package host

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// RoleCause says why a role has changed, as far as the member that changed it can know.
type RoleCause string

// The causes.
const (
	// CauseTimeout: no leader was heard for an election timeout, so the member asks for votes.
	CauseTimeout RoleCause = "no leader was heard for an election timeout"
	// CauseTold: the member was told to ask for votes: by its leader, which hands over, by Group.Campaign, or
	// at the start of a host or a group.
	CauseTold RoleCause = "it was told to campaign"
	// CausePreVote: a quorum would vote for the member, so it campaigns.
	CausePreVote RoleCause = "a quorum would vote for it"
	// CauseElected: a quorum has voted for the member.
	CauseElected RoleCause = "a quorum has voted for it"
	// CauseLeaderHeard: a leader of the member's term was heard.
	CauseLeaderHeard RoleCause = "a leader was heard"
	// CauseLaterTerm: another member is in a later term.
	CauseLaterTerm RoleCause = "another member is in a later term"
	// CauseNoQuorum: a leader steps down because no quorum has answered it.
	CauseNoQuorum RoleCause = "no quorum has answered"
	// CauseGivenUp: a leader steps down because of its own trouble; a LeadershipGivenUp says which.
	CauseGivenUp RoleCause = "it gave its leadership up"
	// CauseNotElected: a quorum has refused its votes, or the answers did not come in time.
	CauseNotElected RoleCause = "it was not elected"
	// CauseLeaderLost: the member does not follow its leader any more.
	CauseLeaderLost RoleCause = "it follows its leader no more"
)

// roleCause returns why the group's role or leader is another one now.
func (g *Group) roleCause(was, now Status) RoleCause {
	switch now.Role {
	case RoleLeader:
		return CauseElected
	case RolePreCandidate, RoleCandidate:
		switch {
		case g.ordered:
			return CauseTold
		case was.Role == RolePreCandidate:
			return CausePreVote
		}
		return CauseTimeout
	}
	switch {
	case was.Role == RoleLeader && now.Term == was.Term && g.stepped == now.Term:
		return CauseGivenUp
	case was.Role == RoleLeader && now.Term == was.Term:
		return CauseNoQuorum
	case now.Leader != raft.None:
		return CauseLeaderHeard
	case now.Term > was.Term:
		return CauseLaterTerm
	case was.Role == RoleFollower:
		return CauseLeaderLost
	}
	return CauseNotElected
}

// campaign starts an election because the member was told to.
func (g *Group) campaign() {
	g.ordered = true
	g.noteRefusal(g.node.Campaign())
}

// noteOrder notes an order of the leader to campaign.
func (g *Group) noteOrder(m *raftpb.Message) {
	if m.Type == raftpb.MsgTimeoutNow {
		g.ordered = true
	}
}
