package core

import "fmt"

// Property is a promise that the oracles check. A violation begins with its name, which does not change: the
// planted bugs of internal/planted rely on it.
type Property string

// The properties, in the order of the table of package core.
const (
	OneLeader     Property = "one leader"
	Complete      Property = "leader completeness"
	Matching      Property = "log matching"
	QuorumHolds   Property = "a quorum holds"
	CommittedStay Property = "committed entries stay"
	SameApplied   Property = "the same applied"
	OneVote       Property = "one vote"
	Promises      Property = "promises are durable"
	Forward       Property = "nothing goes back"
	Reads         Property = "reads"
	SameMembers   Property = "the same members"
	Recovery      Property = "recovery"
	Harmony       Property = "no complaint"
	Contract      Property = "storage contract"
)

// violate ends the run. If the run is without the checks of a property, its violation is nothing; what
// follows then is as if it had not been looked for.
func (w *world) violate(p Property, format string, args ...any) {
	if p != w.without {
		violate(p, format, args...)
	}
}

// violate ends the run.
func violate(p Property, format string, args ...any) {
	panic(&Violation{Property: p, What: fmt.Sprintf(format, args...)})
}
