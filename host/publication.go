package host

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// publish makes the cursors visible to Status, and logs a change of role or leader.
func (g *Group) publish(st raft.BasicStatus) {
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
		g.life.roleTimes.Record(now, g.host.clock.awakeAtBeat())
		if was.Term != now.Term || was.Leader != now.Leader || was.Role != now.Role {
			g.pulse.subscription.End(g.id)
		}
	}
	if st.SoftState != g.core.role {
		g.life.counts.countRole(g.core.role, now, g.core.lastLeader)
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
		g.setLed(st.Lead != raft.None && (now.Role == event.RoleFollower || now.Role == event.RoleLeader))
		g.life.roleChanged.notify()
	}
	g.work.ordered = false
}
