package host

import (
	"fmt"

	"github.com/millrace/millrace/raft"
)

// Role is what a member does in its term (thesis §3.3). As text and in JSON it is a word, "leader".
type Role uint8

// The roles. A pre-candidate asks whether it could win before it becomes a candidate (§9.6).
const (
	RoleFollower Role = iota
	RolePreCandidate
	RoleCandidate
	RoleLeader
)

var roleWords = [...]string{"follower", "pre-candidate", "candidate", "leader"}

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

func (r Role) String() string {
	if int(r) < len(roleWords) {
		return roleWords[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// MarshalText writes the word, as String does. The error is always nil.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (r *Role) UnmarshalText(text []byte) error {
	for i, word := range roleWords {
		if word == string(text) {
			*r = Role(i)
			return nil
		}
	}
	return fmt.Errorf("millrace: %.40q is no role", text)
}
