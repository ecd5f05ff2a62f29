package host

import (
	"sync/atomic"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// groupCounts are the counts of a group that nothing else keeps. Other parts of the host add theirs.
type groupCounts struct {
	batches, commands, bytes                   atomic.Uint64
	campaigns, elected, leaderChanges, givenUp atomic.Uint64
	placed                                     atomic.Uint64
	taken                                      atomic.Uint64
}

// countRole counts elections and leaders.
func (c *groupCounts) countRole(was raft.SoftState, now diagnosis.Status, lastLeader uint64) {
	switch {
	case now.Role == event.RoleLeader && was.RaftState != raft.StateLeader:
		c.elected.Add(1)
	case now.Role == event.RolePreCandidate && was.RaftState != raft.StatePreCandidate:
		c.campaigns.Add(1)
	case now.Role == event.RoleCandidate && was.RaftState != raft.StatePreCandidate && was.RaftState != raft.StateCandidate:
		c.campaigns.Add(1) // told by its leader, without a pre-vote
	}
	if now.Leader != raft.None && now.Leader != lastLeader {
		c.leaderChanges.Add(1)
	}
}
