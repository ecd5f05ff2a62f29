package diagnosis

import (
	"fmt"
	"slices"
	"strings"
)

// Founding says how far the founding of a group is, as this host knows it.
type Founding struct {
	// Found and Founded: this host's log has the entry. Commands are taken when it has both.
	Found, Founded bool
	// Unmet are the members whose hosts this one has not met in this life. While there are some, and Found is
	// not set, this member neither votes nor campaigns.
	Unmet []uint64
	// Missing are the members that do not have the entry found on their disks yet, as far as their leader
	// knows. It is empty on other members.
	Missing []uint64
	// Silent are the members whose hosts were met in this life and are not heard now. It is empty when the group
	// is founded.
	Silent []uint64
	// Leader is the member that leads the founding, as far as this host knows, or 0. It is 0 when the group is
	// founded.
	Leader uint64
	// Refused are the members whose hosts come with another directory than the one that the group is bound
	// to. A member that was removed is none.
	Refused []uint64
	// Joins is set on a host that no group has bound to its directory: it waits to be added.
	// JoinRefused says why that does not happen (event.JoinRefused): the leader does not take its join
	// token, or other hosts refuse its directory. Empty: nothing was said.
	Joins       bool
	JoinRefused string
}

// String says what the founding lacks, in the words that follow the name of the group.
func (f *Founding) String() string {
	if f.Joins {
		text := "has not added this host, which waits for that"
		if f.JoinRefused != "" {
			text += "; " + f.JoinRefused
		}
		return text
	}
	var why []string
	for _, id := range f.Unmet {
		why = append(why, fmt.Sprintf("host %d was not heard since this host has started", id))
	}
	for _, id := range f.Refused {
		why = append(why, fmt.Sprintf("host %d comes with another directory than the group is bound to", id))
	}
	silent := func(id uint64) bool { return slices.Contains(f.Silent, id) }
	for _, id := range slices.DeleteFunc(slices.Clone(f.Missing), f.isNamed) {
		text := fmt.Sprintf("host %d does not have the founding entry on its disk yet", id)
		if silent(id) {
			text += ", and is not heard now"
		}
		why = append(why, text)
	}
	if f.Leader == 0 {
		for _, id := range slices.DeleteFunc(slices.Clone(f.Silent), f.isNamed) {
			why = append(why, fmt.Sprintf("no leader is known, and host %d is not heard now", id))
		}
	}
	switch {
	case len(why) > 0:
	case f.Leader == 0:
		why = append(why, "its first leader is being elected")
	default:
		why = append(why, fmt.Sprintf("host %d leads, and knows which members do not have the founding entry yet", f.Leader))
	}
	text := "is not founded: " + strings.Join(why, ", ") + "; every founding member must be up once"
	if !f.Found {
		text += "; this host does not have the founding entry"
		// Not more: a wiped host says this too, and its group may have commands.
		text += ". If all members say that they do not have the founding entry, no command was ever taken, and their directories may be emptied and the group founded again"
	}
	return text
}

// Fix is what an operator can do about a group that is not founded.
func (f *Founding) Fix() string {
	silent := func(id uint64) bool { return slices.Contains(f.Silent, id) }
	switch {
	case len(f.Unmet)+len(f.Refused) > 0, f.Leader == 0 && len(f.Silent) > 0, slices.ContainsFunc(f.Missing, silent):
		return "start every member once, all at the same time; if one never comes, and no member has the founding entry, empty their directories and found the group again without it"
	case len(f.Missing) > 0:
		return "look at the logs of the hosts that lack the founding entry: the group may have stopped there, or is not open"
	case f.Leader != 0:
		return fmt.Sprintf("ask Explain on host %d, which leads: it names the members that lack the founding entry", f.Leader)
	}
	return "look at the other members: all were met, and the election of the first leader takes long"
}

// isNamed reports whether a member was never met, or is refused: more need not be said of it.
func (f *Founding) isNamed(id uint64) bool {
	return slices.Contains(f.Unmet, id) || slices.Contains(f.Refused, id)
}
