package host

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
)

// Founding says how far the founding of the group is. It never waits for the group.
func (g *Group) Founding() diagnosis.Founding {
	f := g.members.founding.Reached()
	if f.Joins = g.members.Joins && !g.members.IsBound(); f.Joins {
		if why := g.members.joinRefused.Load(); why != nil {
			f.JoinRefused = *why
		} else {
			f.JoinRefused = g.host.network.handshakes.Refusals()
		}
	}
	excluded, _ := g.members.Excluded()
	for _, id := range excluded {
		if !g.members.HasRemoved(id) {
			f.Refused = append(f.Refused, id)
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
	now := g.host.clock.awake()
	for _, id := range g.memberIDs() {
		if p := g.host.network.handshakes.Of(id); p != nil && p.Met.Load() && now-p.HeardAt.Load() > g.host.config.bounds().Unheard() {
			ids = append(ids, id)
		}
	}
	return ids
}

func (g *Group) notFounded() error {
	return &outcome.NotFoundedError{Group: g.id, Founding: g.Founding()}
}
