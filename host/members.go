package host

import (
	"time"

	"github.com/millrace/millrace/host/membership"
)

// roster returns the roster in force, or nil if the group is not founded.
func (g *Group) roster() *membership.Roster { return g.members.Rosters.Now() }

// memberIDs returns the ids of the members, voters and learners; before the group is founded, its founding
// list. Any goroutine may call it.
func (g *Group) memberIDs() []uint64 { return g.members.Rosters.IDs() }

// countFounded counts the group no more among those for which hosts must meet.
func (g *Group) countFounded() {
	if g.members.founding.Count(false) {
		g.host.network.handshakes.Unfounded.Add(-1)
	}
}

// LogTime returns about the log time now, as this host estimates it: the latest that it has seen, and what
// has passed since then on its clock. Log time is how long the group has had leaders. It stands still while
// no member leads, as soon as that is noticed: after an election timeout or two. Command.Time is the log time
// of a command.
func (g *Group) LogTime() time.Duration {
	now := g.now()
	return max(g.machine.apply.Time.Estimate(now), g.members.time.Estimate(now))
}

// setLed says whether a leader is known. A candidate has given its leader up.
func (g *Group) setLed(led bool) {
	now := g.now()
	g.machine.apply.Time.SetLed(led, now)
	g.members.time.SetLed(led, now)
}
