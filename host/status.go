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
	s.Refused, s.Dropped = g.proposals.refused.Load(), g.proposals.dropped.Load()
	s.AppliedBatches, s.AppliedCommands = g.machine.apply.Calls()
	if m, ok := g.machine.apply.Machine.(*apply.Commands); ok {
		_, _, s.DuplicatesSuppressed = m.Counts()
	}
	return s
}

// publish makes the cursors visible to Status, and logs a change of role or leader.
func (g *Group) publish() {
	st := g.core.node.BasicStatus()
	now := diagnosis.Status{
		ID:        g.self,
		Term:      st.Term,
		Role:      roleOf(st.RaftState),
		Leader:    st.Lead,
		Applied:   st.Applied,
		Committed: st.Commit,
		Durable:   st.Durable,
		LastIndex: st.LastIndex,
	}
	was := g.life.status.own()
	if was != now {
		g.life.status.Store(now)
		g.life.roleTimes.Record(now, g.host.clock.livedAtBeat())
		if was.Term != now.Term || was.Leader != now.Leader || was.Role != now.Role {
			g.pulse.cover.End(g.id)
		}
	}
	if st.SoftState != g.core.role {
		g.life.counts.noteRole(g.core.role, now, g.core.lastLeader)
		if now.Leader != raft.None {
			g.core.lastLeader = now.Leader
		}
		cause := g.roleCause(was, now)
		g.host.reports.events.Emit(event.RoleChanged{Group: g.id, Term: st.Term, Role: now.Role, Leader: st.Lead, Cause: cause})
		g.host.env.logger.Info("role changed", "group", g.id, "host", g.self, "term", st.Term, "role", now.Role.String(), "leader", st.Lead, "last", st.LastIndex, "cause", cause)
		if st.RaftState == raft.StateLeader {
			g.host.changes.placer.Add(&g.leadership.placing)
		} else if g.core.role.RaftState == raft.StateLeader {
			g.host.changes.placer.Drop(&g.leadership.placing)
		}
		g.core.role = st.SoftState
		g.life.roleChanged.notify()
	}
	g.work.ordered = false
}
