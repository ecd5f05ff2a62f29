package host

import (
	"sync"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
)

// Status is the state of a group after its last turn.
type Status struct {
	ID, Term uint64
	Role     event.Role
	Leader   uint64 // 0: not known
	// Applied <= Committed <= LastIndex, and Durable <= LastIndex. Durable is the end of the log on this
	// host's disk; Applied is beyond it only if the state machine is in memory (GroupConfig.Volatile).
	// Committed and LastIndex go back when a member with a full disk forgets entries that it could not write;
	// Applied and Durable never do.
	Applied, Committed, Durable, LastIndex uint64
	// WithoutAuthority means that this member may lack what it has acknowledged, and neither votes nor counts
	// until it has caught up.
	WithoutAuthority bool
	// FirstIndex is the first entry of the log; what is before it is in a snapshot. LastIndex is one less if
	// the log is empty.
	FirstIndex uint64
	// Refused counts invalid inputs. Dropped counts messages that did not fit in the inbox or were not for
	// this group.
	Refused, Dropped uint64
	// AppliedBatches and AppliedCommands count calls of the state machine and the commands in them.
	AppliedBatches, AppliedCommands uint64
	// DuplicatesSuppressed counts commands that this member did not apply, because the sessions of the group
	// said so: they were applied before, or may have been.
	DuplicatesSuppressed uint64
}

// Status returns a copy and never waits for the group. A group that has stopped is a follower without a
// leader.
func (g *Group) Status() Status {
	s := g.life.status.Load()
	if g.Err() != nil {
		s.Role, s.Leader = event.RoleFollower, raft.None
	}
	s.WithoutAuthority = g.members.withoutAuthority.Load()
	s.Applied = min(g.machine.apply.machineApplied(s.Applied), s.Committed) // its turn may note it later
	if g.writes.storage != nil {
		s.FirstIndex = g.writes.storage.log.FirstIndex()
	}
	s.Refused, s.Dropped = g.proposals.refused.Load(), g.proposals.dropped.Load()
	s.AppliedBatches, s.AppliedCommands = g.machine.apply.calls.Load(), g.machine.apply.entries.Load()
	if m, ok := g.machine.apply.machine.(*commandGroup); ok {
		s.DuplicatesSuppressed = m.suppressed.Load()
	}
	return s
}

// published is a Status that any goroutine may read. A lock costs less than memory for each change.
type published struct {
	mu sync.Mutex
	s  Status
}

func (p *published) Load() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s
}

func (p *published) Store(s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s = s
}

// publish makes the cursors visible to Status, and logs a change of role or leader.
func (g *Group) publish() {
	st := g.core.node.BasicStatus()
	now := Status{
		ID:        g.self,
		Term:      st.Term,
		Role:      roleOf(st.RaftState),
		Leader:    st.Lead,
		Applied:   st.Applied,
		Committed: st.Commit,
		Durable:   st.Durable,
		LastIndex: st.LastIndex,
	}
	was := g.life.status.Load()
	if was != now {
		g.life.status.Store(now)
		g.life.roleTimes.note(now, g.host.clock.livedAtBeat())
		if was.Term != now.Term || was.Leader != now.Leader || was.Role != now.Role {
			g.uncover()
		}
	}
	if st.SoftState != g.core.role {
		g.life.counts.noteRole(g.core.role, now, g.core.lastLeader)
		if now.Leader != raft.None {
			g.core.lastLeader = now.Leader
		}
		cause := g.roleCause(was, now)
		g.host.reports.events.emit(event.RoleChanged{Group: g.id, Term: st.Term, Role: now.Role, Leader: st.Lead, Cause: cause})
		g.host.env.logger.Info("role changed", "group", g.id, "host", g.self, "term", st.Term, "role", now.Role.String(), "leader", st.Lead, "last", st.LastIndex, "cause", cause)
		if st.RaftState == raft.StateLeader {
			g.host.changes.placer.add(g)
		} else if g.core.role.RaftState == raft.StateLeader {
			g.host.changes.placer.drop(g)
		}
		g.core.role = st.SoftState
		g.life.roleChanged.notify()
	}
	g.work.ordered = false
}
