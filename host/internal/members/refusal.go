package members

import (
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// View is what a member goes by when it decides whose messages count. Before the group is founded the entry
// found in this host's log says so, from then on the roster.
type View struct {
	Self         uint64
	Bound        *entry.Binding     // by the entry found; nil: there is none
	Roster, Hint *membership.Roster // in force, and a later one of another member; either may be nil
}

// BoundTo returns the directory that the group has bound a member to, if it has.
func (v View) BoundTo(id uint64) (i transport.Incarnation, bound bool) {
	if v.Roster != nil {
		m, ok := v.Roster.Member(id)
		return m.Incarnation, ok
	}
	if v.Bound != nil {
		return v.Bound.Of(id)
	}
	return i, false
}

// IsHinted reports whether a later roster than this member's binds a host to a directory.
func (v View) IsHinted(id uint64, i transport.Incarnation) bool {
	if v.Hint == nil || v.Roster != nil && v.Hint.Version <= v.Roster.Version {
		return false
	}
	m, ok := v.Hint.Member(id)
	return ok && m.Incarnation == i
}

// Refused returns the members that do not count. They were removed, or have come with another directory. A
// hinted member counts, and its votes do not. came returns the directory with which a host has come last.
func (v View) Refused(came func(id uint64) (i transport.Incarnation, known bool)) (refuses, hinted []uint64) {
	sort := func(id uint64) {
		if i, _ := came(id); v.IsHinted(id, i) {
			hinted = append(hinted, id)
		} else {
			refuses = append(refuses, id)
		}
	}
	isOther := func(id uint64, bound transport.Incarnation) bool {
		i, known := came(id)
		return known && id != v.Self && i != bound
	}
	if v.Roster == nil {
		if v.Bound != nil {
			for _, m := range *v.Bound {
				if isOther(m.ID, m.Incarnation) {
					sort(m.ID)
				}
			}
		}
		return refuses, hinted
	}
	for _, m := range v.Roster.Members {
		if isOther(m.ID, m.Incarnation) {
			sort(m.ID)
		}
	}
	for _, m := range v.Roster.Removed {
		if v.Roster.Role(m.ID) == membership.None && m.ID != v.Self {
			sort(m.ID)
		}
	}
	return refuses, hinted
}

// HasRemoved reports whether a host was a member and was removed.
func HasRemoved(r *membership.Roster, id uint64) bool {
	return r != nil && r.Role(id) == membership.None && slices.ContainsFunc(r.Removed, func(m membership.Member) bool { return m.ID == id })
}

// WillHave reports whether a host is a member by a hint, or by the plan under way.
func (v View) WillHave(id uint64) bool {
	if v.Hint != nil && v.Hint.Role(id) != membership.None {
		return true
	}
	return v.Roster != nil && v.Roster.Plan != nil && slices.ContainsFunc(v.Roster.Plan.Stages, func(steps []membership.Step) bool {
		return slices.ContainsFunc(steps, func(s membership.Step) bool { return s.ID == id })
	})
}

// IsOnlyOther reports whether no other host than this one and another can know something of the group. others
// are the hosts that this one knows.
func (v View) IsOnlyOther(id uint64, others []uint64) bool {
	if v.Roster != nil {
		others = slices.DeleteFunc(v.Roster.IDs(), func(id uint64) bool { return id == v.Self })
	}
	return len(others) == 1 && others[0] == id
}
