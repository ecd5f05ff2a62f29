package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// roleOf returns the role of a core.
func roleOf(s raft.StateType) event.Role {
	switch s {
	case raft.StatePreCandidate:
		return event.RolePreCandidate
	case raft.StateCandidate:
		return event.RoleCandidate
	case raft.StateLeader:
		return event.RoleLeader
	}
	return event.RoleFollower
}
