package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/raft"
)

// Status is what a group knew of itself after its last turn.
type Status struct {
	ID, Term uint64
	Role     raft.StateType
	Leader   uint64 // 0: not known
	// Applied <= Committed <= LastIndex, and Applied <= Durable <= LastIndex; Durable is the own disk's. Committed and
	// LastIndex go back if a member with a full disk forgets what it could not write; Applied and Durable do not.
	Applied, Committed, Durable, LastIndex uint64
	// Refused counts inputs that made no sense, Dropped messages that found no room or were not for this group.
	Refused, Dropped uint64
	// AppliedBatches and AppliedCommands count calls of the state machine and the commands in them.
	AppliedBatches, AppliedCommands uint64
}

// Status returns a copy; it never waits for the group. A group that has stopped follows nobody and leads nobody.
func (g *Group) Status() Status {
	s := *g.status.Load()
	if g.Err() != nil {
		s.Role, s.Leader = raft.StateFollower, raft.None
	}
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

// WaitLeader returns the id of the leader as soon as this host knows one: at once, or after an election.
func (g *Group) WaitLeader(ctx context.Context) (uint64, error) {
	for {
		changed := g.roleChanged.wait()
		if err := g.Err(); err != nil {
			return 0, wrap(ErrStopped, err)
		}
		if leader := g.status.Load().Leader; leader != raft.None {
			return leader, nil
		}
		select {
		case <-changed:
		case <-g.ended:
			return 0, wrap(ErrStopped, g.Err())
		case <-ctx.Done():
			return 0, fmt.Errorf("millrace: no leader is known: %w", context.Cause(ctx))
		}
	}
}

// signal tells any number of goroutines that something has changed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next tell closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// publish makes the cursors visible to Status, and logs a change of role or leader.
func (g *Group) publish() {
	st := g.node.BasicStatus()
	now := Status{
		ID:        g.self,
		Term:      st.Term,
		Role:      st.RaftState,
		Leader:    st.Lead,
		Applied:   st.Applied,
		Committed: st.Commit,
		Durable:   st.Durable,
		LastIndex: st.LastIndex,
	}
	if was := g.status.Load(); was == nil || *was != now {
		fresh := now // on the heap only if it is news
		g.status.Store(&fresh)
	}
	if st.SoftState != g.role {
		g.logger.Info("role", "group", g.id, "node", g.self, "term", st.Term, "role", st.RaftState, "leader", st.Lead, "last", st.LastIndex)
		g.events.emit(RoleChanged{Group: g.id, Term: st.Term, Role: st.RaftState, Leader: st.Lead})
		g.role = st.SoftState
		g.roleChanged.tell()
	}
}
