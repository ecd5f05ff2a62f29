package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
)

// ErrNotFounded: the group is not founded, so it takes no commands. A NotFoundedError says what is missing.
var ErrNotFounded = errors.New("millrace: the group is not founded")

// NotFoundedError says why a group takes no commands yet. errors.Is finds ErrNotFounded in it.
type NotFoundedError struct {
	Group uint64
	diagnosis.Founding
}

// Error says what is missing, and what can be done.
func (e *NotFoundedError) Error() string {
	return fmt.Sprintf("millrace: group %d %v", e.Group, &e.Founding)
}

// Is makes errors.Is(err, ErrNotFounded) hold.
func (e *NotFoundedError) Is(target error) bool { return target == ErrNotFounded }

// Founding says how far the founding of the group is. It never waits for the group.
func (g *Group) Founding() diagnosis.Founding {
	f := *g.members.founding.reached.Load()
	if f.Joins = g.members.joins && !g.isBoundHere(); f.Joins {
		if why := g.members.joinRefused.Load(); why != nil {
			f.JoinRefused = *why
		} else {
			f.JoinRefused = g.host.network.handshakes.refusals()
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
		if p := g.host.network.handshakes.of(id); p != nil && p.met.Load() && now-p.heardAt.Load() > g.host.config.bounds().Unheard() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (g *Group) notFounded() error { return &NotFoundedError{Group: g.id, Founding: g.Founding()} }
