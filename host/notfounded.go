package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/raft"
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
	// event.JoinRefused says why the leader does not add it by its join token, or why other hosts refuse
	// its directory; empty: nothing was said.
	Joins       bool
	JoinRefused string
}

// ErrNotFounded: the group is not founded, so it takes no commands. A NotFoundedError says what is missing.
var ErrNotFounded = errors.New("millrace: the group is not founded")

// NotFoundedError says why a group takes no commands yet. errors.Is finds ErrNotFounded in it.
type NotFoundedError struct {
	Group uint64
	Founding
}

func (e *NotFoundedError) Error() string {
	if e.Joins {
		text := fmt.Sprintf("millrace: group %d has not added this host, which waits for that", e.Group)
		if e.JoinRefused != "" {
			text += "; " + e.JoinRefused
		}
		return text
	}
	var why []string
	for _, id := range e.Unmet {
		why = append(why, fmt.Sprintf("host %d was not heard since this host has started", id))
	}
	for _, id := range e.Refused {
		why = append(why, fmt.Sprintf("host %d comes with another directory than the group is bound to", id))
	}
	silent := func(id uint64) bool { return slices.Contains(e.Silent, id) }
	for _, id := range slices.DeleteFunc(slices.Clone(e.Missing), e.isNamed) {
		text := fmt.Sprintf("host %d does not have the founding entry on its disk yet", id)
		if silent(id) {
			text += ", and is not heard now"
		}
		why = append(why, text)
	}
	if e.Leader == raft.None {
		for _, id := range slices.DeleteFunc(slices.Clone(e.Silent), e.isNamed) {
			why = append(why, fmt.Sprintf("no leader is known, and host %d is not heard now", id))
		}
	}
	switch {
	case len(why) > 0:
	case e.Leader == raft.None:
		why = append(why, "its first leader is being elected")
	default:
		why = append(why, fmt.Sprintf("host %d leads, and knows which members do not have the founding entry yet", e.Leader))
	}
	text := fmt.Sprintf("millrace: group %d is not founded: %s; every founding member must be up once", e.Group, strings.Join(why, ", "))
	if !e.Found {
		text += "; this host does not have the founding entry"
		// Not more: a wiped host says this too, and its group may have commands.
		text += ". If all members say that they do not have the founding entry, no command was ever taken, and their directories may be emptied and the group founded again"
	}
	return text
}

// isNamed reports whether a member was never met, or is refused: more need not be said of it.
func (f *Founding) isNamed(id uint64) bool {
	return slices.Contains(f.Unmet, id) || slices.Contains(f.Refused, id)
}

// Is makes errors.Is(err, ErrNotFounded) hold.
func (e *NotFoundedError) Is(target error) bool { return target == ErrNotFounded }

// Founding says how far the founding of the group is. It never waits for the group.
func (g *Group) Founding() Founding {
	f := *g.members.founding.reached.Load()
	if f.Joins = g.members.joins && !g.isBoundHere(); f.Joins {
		if why := g.members.joinRefused.Load(); why != nil {
			f.JoinRefused = *why
		} else {
			f.JoinRefused = g.host.network.meetings.refusals()
		}
	}
	if r := g.members.founding.refuses.Load(); r != nil {
		for _, id := range *r {
			if !g.hasRemoved(id) {
				f.Refused = append(f.Refused, id)
			}
		}
	}
	if !f.Founded && !f.Joins {
		f.Leader = g.Status().Leader
		f.Silent = g.silentMembers()
	}
	return f
}

// silentMembers returns the members that were met and are silent for longer than a host that lives.
func (g *Group) silentMembers() (ids []uint64) {
	now := g.host.clock.lived()
	for _, id := range g.memberIDs() {
		if p := g.host.network.meetings.of(id); p != nil && p.met.Load() && now-p.heardAt.Load() > g.host.config.unheardTicks() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (g *Group) notFounded() error { return &NotFoundedError{Group: g.id, Founding: g.Founding()} }
