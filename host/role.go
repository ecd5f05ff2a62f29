package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// Role is what a member does in its term (package event).
type Role = event.Role

// The roles.
const (
	RoleFollower     = event.RoleFollower
	RolePreCandidate = event.RolePreCandidate
	RoleCandidate    = event.RoleCandidate
	RoleLeader       = event.RoleLeader
)

// roleOf returns the role of a core.
func roleOf(s raft.StateType) Role {
	switch s {
	case raft.StatePreCandidate:
		return RolePreCandidate
	case raft.StateCandidate:
		return RoleCandidate
	case raft.StateLeader:
		return RoleLeader
	}
	return RoleFollower
}
