package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/membership"
)

// roster returns the roster in force, or nil if the group is not founded.
func (g *Group) roster() *membership.Roster { return g.members.rosters.Now() }

// memberIDs returns the ids of the members, voters and learners; before the group is founded, its founding
// list. Any goroutine may call it.
func (g *Group) memberIDs() []uint64 { return g.members.rosters.IDs() }

// voters returns the members that the core counts, in either half of a joint configuration.
func (g *Group) voters() []uint64 {
	if r := g.roster(); r != nil {
		return r.Voters()
	}
	return g.memberIDs()
}

func (g *Group) isMember(id uint64) bool { return slices.Contains(g.memberIDs(), id) }

// isOther reports whether a host is another member of the group.
func (g *Group) isOther(id uint64) bool { return id != g.self && g.isMember(id) }

// excludes reports whether the group does not hear a member: it comes with another directory.
func (g *Group) excludes(id uint64) bool {
	refused := g.members.refuses.Load()
	return refused != nil && slices.Contains(*refused, id)
}

// isMemberOrLeads reports whether a host is a member, or leads: a member that is behind may not know its
// leader as a member yet.
func (g *Group) isMemberOrLeads(id uint64) bool {
	return g.isMember(id) || id == g.life.status.Load().Leader && !g.excludes(id)
}

// counts is what this member goes by when it decides who counts. Any goroutine may call it.
func (g *Group) counts() members.View {
	m := &g.members
	return members.View{Self: g.self, Bound: m.founding.Bound(), Roster: m.rosters.Now(), Hint: m.rosters.Hint()}
}

// countFounded counts the group no more among those for which hosts must meet.
func (g *Group) countFounded() {
	if g.members.founding.Count(false) {
		g.host.network.handshakes.Unfounded.Add(-1)
	}
}

// isQuorum reports whether the members for which is returns true are a quorum. Any goroutine may call it.
func (g *Group) isQuorum(is func(id uint64) bool) bool {
	if r := g.roster(); r != nil {
		return r.Spare(is) >= 0
	}
	n, voters := 0, g.voters()
	for _, id := range voters {
		if is(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// logTime returns about the log time now.
func (g *Group) logTime() time.Duration {
	now := g.now()
	return max(g.machine.apply.Time.Estimate(now), g.members.time.Estimate(now))
}

// observeJoined forgets why this host was not made a member, when it is one.
func (g *Group) observeJoined(r *membership.Roster) {
	if m, ok := r.Member(g.self); ok && m.Incarnation == g.host.incarnation() {
		g.members.joinRefused.Store(nil)
	}
}

// hasRemoved reports whether a host was a member and was removed.
func (g *Group) hasRemoved(id uint64) bool { return members.HasRemoved(g.roster(), id) }

// isBoundHere reports whether this member's roster has its directory.
func (g *Group) isBoundHere() bool {
	r := g.roster()
	if r == nil {
		return false
	}
	m, ok := r.Member(g.self)
	return ok && m.Incarnation == g.host.incarnation()
}
