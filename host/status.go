package host

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/raft"
)

// Status returns a copy and never waits for the group. A group that has stopped is a follower without a
// leader.
func (g *Group) Status() diagnosis.Status {
	s := g.life.status.Load()
	if g.Err() != nil {
		s.Role, s.Leader = event.RoleFollower, raft.None
	}
	s.WithoutAuthority = g.members.withoutAuthority.Load()
	s.Applied = min(g.machine.apply.MachineApplied(s.Applied), s.Committed) // its turn may note it later
	if g.writes.storage != nil {
		s.FirstIndex = g.writes.storage.log.FirstIndex()
	}
	s.Version, s.LowestVersion, s.HighestVersion = g.machine.apply.At().Version, g.machine.apply.Program().Lowest, g.machine.apply.Program().Highest
	s.Refused, s.Dropped = g.proposals.refused.Load(), g.proposals.dropped.Load()
	s.AppliedBatches, s.AppliedCommands = g.machine.apply.Calls()
	if m, ok := g.machine.apply.Machine.(*apply.Commands); ok {
		_, _, s.DuplicatesSuppressed = m.Counts()
	}
	return s
}
