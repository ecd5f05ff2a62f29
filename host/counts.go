package host

import (
	"errors"
	"sync/atomic"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// groupCounts are the counts of a group that nothing else keeps. Other parts of the host add theirs.
type groupCounts struct {
	batches, commands, bytes                   atomic.Uint64
	campaigns, elected, leaderChanges, givenUp atomic.Uint64
	placed                                     atomic.Uint64
	forwarded, taken, retried                  atomic.Uint64
	expired, callsCommitted                    atomic.Uint64
}

// refusalCounts count commands that got an error.
type refusalCounts struct {
	notLeader, notFounded, overloaded, tooLarge, empty, stopped atomic.Uint64
	dropped, withdrawn, other, indeterminate                    atomic.Uint64
}

// note counts n commands that got an error.
func (c *refusalCounts) note(err error, n int) {
	if n == 0 || err == nil {
		return
	}
	c.counter(err).Add(uint64(n))
}

func (c *refusalCounts) counter(err error) *atomic.Uint64 {
	switch {
	case errors.Is(err, outcome.ErrIndeterminate): // first: it wraps its cause, which may be one of the others
		return &c.indeterminate
	case errors.Is(err, outcome.ErrNotLeader):
		return &c.notLeader
	case errors.Is(err, outcome.ErrNotFounded):
		return &c.notFounded
	case errors.Is(err, outcome.ErrOverloaded):
		return &c.overloaded
	case errors.Is(err, outcome.ErrTooLarge):
		return &c.tooLarge
	case errors.Is(err, outcome.ErrEmpty):
		return &c.empty
	case errors.Is(err, outcome.ErrDropped):
		return &c.dropped
	case errors.Is(err, outcome.ErrStopped):
		return &c.stopped
	}
	return &c.other
}

// noteRole counts elections and leaders.
func (c *groupCounts) noteRole(was raft.SoftState, now diagnosis.Status, lastLeader uint64) {
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
