package statemachine

import (
	"slices"
	"time"
)

// MembersObserver is a Machine or a CommandMachine that learns who the members of its group are, as the log
// says.
type MembersObserver interface {
	// MembersChanged is called for each applied entry that changes the configuration. Those found the group,
	// add, promote or remove a member, enter or leave a joint configuration, or rescue a member. It is also
	// called where a version of the machine begins (Configuration.Version), with the configuration as it is. A
	// program that uses it since some version knows the members then.
	//
	// It follows the rules of Apply: in the order of the log, between the commands before and behind the entry,
	// alike on every member, never beside Apply. After a restart it comes again, except what a machine on disk
	// holds. There the index of a configuration counts for CommandOptions.Applied like that of a command, and
	// reaches the disk with its effect. An error or a panic halts the machine. Such an entry can be skipped
	// (Group.SkipCommand), and no machine learns of it then.
	//
	// A snapshot takes the place of the entries before it: a machine that is restored does not learn of them.
	// So what the machine has made of a configuration, and what it must know of the present one later, is a
	// part of its snapshot.
	//
	// A program that gets this method while the group is in use must not act on it at once. Another member may
	// have passed the entry with the program of before. It acts from a version on (CommandOptions.Versions).
	MembersChanged(c Configuration) error
}

// Configuration says who the members of a group are behind an entry of its log. It depends on the log alone.
// All ids ascend. The lists belong to the machine that gets them.
type Configuration struct {
	Index, Term uint64 // of the entry
	// Time is the log time, as Command.Time is: that of the last command before. It is 0 for a Machine.
	Time time.Duration
	// Version is that of the machine's behaviour which the group is at, as Command.Version.
	Version uint32
	Voters  []uint64
	// Outgoing are the voters of the configuration before, while a joint one is in force. A majority of both
	// lists decides then. Those that are not in Voters or LearnersNext leave the group with the next entry.
	Outgoing []uint64
	Learners []uint64
	// LearnersNext are outgoing voters that become learners.
	LearnersNext []uint64
}

// Members returns the ids of all members, whatever they do, in ascending order.
func (c *Configuration) Members() []uint64 {
	all := slices.Concat(c.Voters, c.Outgoing, c.Learners, c.LearnersNext)
	slices.Sort(all)
	return slices.Compact(all)
}

// Has reports whether a host is a member, whatever it does.
func (c *Configuration) Has(id uint64) bool {
	return slices.Contains(c.Voters, id) || slices.Contains(c.Outgoing, id) || slices.Contains(c.Learners, id) || slices.Contains(c.LearnersNext, id)
}
