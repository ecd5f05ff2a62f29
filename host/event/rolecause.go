package event

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
