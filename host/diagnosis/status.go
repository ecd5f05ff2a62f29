package diagnosis

import "github.com/millrace/millrace/host/event"

// Status is the state of a group after its last turn.
type Status struct {
	ID, Term uint64
	Role     event.Role
	Leader   uint64 // 0: not known
	// Applied <= Committed <= LastIndex, and Durable <= LastIndex. Durable is the end of the log on this
	// host's disk; Applied is beyond it only if the state machine is in memory (GroupConfig.Volatile).
	// Committed and LastIndex go back when a member with a full disk forgets entries that it could not write;
	// Applied and Durable never do. A client that has been answered finds its entry committed here.
	Applied, Committed, Durable, LastIndex uint64
	// WithoutAuthority means that this member may lack what it has acknowledged, and neither votes nor counts
	// until it has caught up.
	WithoutAuthority bool
	// Version is the version of the state machine that the group is at, as this member has applied it. The
	// program of this member can do those from LowestVersion through HighestVersion.
	Version, LowestVersion, HighestVersion uint32
	// FirstIndex is the first entry of the log; what is before it is in a snapshot. LastIndex is one less if
	// the log is empty.
	FirstIndex uint64
	// Refused counts invalid inputs. Dropped counts messages that did not fit in the inbox or were not for
	// this group.
	Refused, Dropped uint64
	// AppliedBatches and AppliedCommands count calls of the state machine and the commands in them.
	AppliedBatches, AppliedCommands uint64
	// DuplicatesSuppressed counts commands that this member did not apply, because the sessions of the group
	// said so: they were applied before, or may have been.
	DuplicatesSuppressed uint64
}
