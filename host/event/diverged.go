package event

import (
	"fmt"
	"strings"
)

// DivergedIn says in what members differ.
type DivergedIn string

// The sums that are compared.
const (
	// DivergedOptions: the members have other CommandOptions.Sessions, so they would not agree about which
	// commands to apply. A member that differs from a majority in this stops its group, whatever
	// CommandOptions.StopDiverged says.
	DivergedOptions DivergedIn = "options"
	// DivergedCommands: the members have other commands at the same indexes. A log is damaged, or Millrace
	// has a bug.
	DivergedCommands DivergedIn = "commands"
	// DivergedResults: the machines gave other results for the same commands (CommandOptions.KeepResults,
	// ResultForm).
	DivergedResults DivergedIn = "results"
	// DivergedState: the machines have other states after the same commands (CommandOptions.Digest).
	DivergedState DivergedIn = "state"
)

// Diverged reports that members of a group have applied the same entries and differ. The leader reports it
// when it finds it, and again when other members or sums are concerned.
type Diverged struct {
	Group uint64
	In    DivergedIn
	// Index is the entry after which they differ. Through Agreed, an earlier one, they were seen to agree; 0:
	// they never were.
	Index, Agreed uint64
	// Version is that of the machines, if results or states were compared.
	Version string
	// Members are the compared members, by id.
	Members []DivergedMember
}

// DivergedMember is a compared member.
type DivergedMember struct {
	ID      uint64
	Version string
	Sum     uint64
	// Minority is set if a majority of the group's members has the same sum, and this one has another. If no
	// majority agrees, it is set for none.
	Minority bool
}

// String says what happened, and to which members.
func (d Diverged) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the members of group %d differ in their %s after entry %d", d.Group, d.In, d.Index)
	if d.Agreed > 0 {
		fmt.Fprintf(&b, " (they agreed after entry %d)", d.Agreed)
	}
	for i, m := range d.Members {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%shost %d has %016x", sep, m.ID, m.Sum)
		if m.Version != "" {
			fmt.Fprintf(&b, " in version %q", m.Version)
		}
		if m.Minority {
			b.WriteString(" unlike the majority")
		}
	}
	return b.String()
}
