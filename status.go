package millrace

import "github.com/millrace/millrace/raft"

// Status is what a group knew of itself after its last turn.
type Status struct {
	ID, Term uint64
	Role     raft.StateType
	Leader   uint64 // 0: not known
	// Applied <= Committed <= LastIndex, and Applied <= Durable <= LastIndex; Durable is the own disk's.
	Applied, Committed, Durable, LastIndex uint64
	// Refused counts inputs that made no sense, Dropped messages that found no room or were not for this group.
	Refused, Dropped uint64
	// AppliedBatches and AppliedCommands count calls of the state machine and the commands in them.
	AppliedBatches, AppliedCommands uint64
}

// Status returns a copy; it never waits for the group.
func (g *Group) Status() Status {
	s := *g.status.Load()
	s.Refused, s.Dropped = g.refused.Load(), g.dropped.Load()
	s.AppliedBatches, s.AppliedCommands = g.apply.calls.Load(), g.apply.entries.Load()
	return s
}

// Log returns entries [lo, hi) of this host's log, durable or about to be, at least one and at most about maxBytes; for
// tools and judges. Committed are those through Status().Committed. Errors are those of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]Entry, error) {
	return g.log.Group(g.id).Entries(lo, hi, maxBytes)
}

// Campaign makes the group start an election at its next turn, instead of waiting for its timeout.
func (g *Group) Campaign() {
	g.inbox.putCampaign()
	g.task.Wake()
}

// publish makes the cursors visible to Status, and logs a change of role or leader.
func (g *Group) publish() {
	st := g.node.BasicStatus()
	g.status.Store(&Status{
		ID:        g.self,
		Term:      st.Term,
		Role:      st.RaftState,
		Leader:    st.Lead,
		Applied:   st.Applied,
		Committed: st.Commit,
		Durable:   st.Durable,
		LastIndex: st.LastIndex,
	})
	if st.SoftState != g.role {
		g.logger.Info("role", "group", g.id, "node", g.self, "term", st.Term, "role", st.RaftState, "leader", st.Lead, "last", st.LastIndex)
		g.role = st.SoftState
	}
}
