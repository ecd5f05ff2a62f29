package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// Poll returns whether the transfer has ended, and with which error. It never waits.
func (t *Transfer) Poll() (done bool, err error) {
	if t.group.Err() != nil {
		t.finish(outcome.WithCause(outcome.ErrStopped, t.group.Err()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is, t.err
}

// finish gives the outcome, once.
func (t *Transfer) finish(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is {
		t.is, t.err = true, err
		close(t.done)
	}
}

// StartTransfer makes the group hand its leadership over to member to, without waiting for it. With 0 the
// leadership goes to the best member: one that was heard lately, with most of the log. A transfer that is
// under way ends with an error. The error of Poll is that of TransferLeadership.
func (g *Group) StartTransfer(to uint64) *Transfer {
	t := &Transfer{to: to, group: g, done: make(chan struct{})}
	switch voters := g.memberIDs(); {
	case g.Err() != nil:
		t.finish(outcome.WithCause(outcome.ErrStopped, g.Err()))
	case to != raft.None && !slices.Contains(voters, to):
		t.finish(fmt.Errorf("millrace: group %d cannot be led by host %d: its members are %v", g.id, to, voters))
	default:
		if replaced := g.inbox.putTransfer(t); replaced != nil {
			replaced.finish(errReplaced(t))
		}
		g.wakeUrgently()
	}
	return t
}

// TransferLeadership hands the leadership of the group over, and returns nil when this host knows that member
// to leads, or with 0 that any other member does. While it is under way, which takes two round trips if the
// target is level, the leader takes no commands. Only the leader can do it: elsewhere the error is a
// NotLeaderError.
//
// Other errors say:
//   - no member of the group has the id;
//   - no other member was heard lately;
//   - the target was not level within an election timeout, or was not elected, and this host leads on;
//   - another member than the target leads now.
//
// If ctx ends first the error wraps its cause, and the leadership may still pass over. It is safe for
// concurrent use.
func (g *Group) TransferLeadership(ctx context.Context, to uint64) error {
	t := g.StartTransfer(to)
	select {
	case <-t.done:
	case <-g.life.ended: // Poll says so
	case <-ctx.Done():
		if done, _ := t.Poll(); !done {
			return fmt.Errorf("millrace: the leadership of group %d has not passed over yet: %w", g.id, g.waitEnd(ctx))
		}
	}
	_, err := t.Poll()
	return err
}

func errReplaced(by *Transfer) error {
	return fmt.Errorf("millrace: another transfer of the leadership, to host %d, took the place of this one", by.to)
}

// startTransfer takes what StartTransfer left. It is part of a turn.
func (g *Group) startTransfer() {
	t := g.work.taken.transfer
	if t == nil {
		return
	}
	g.work.taken.transfer = nil
	if was := g.leadership.transfer; was != nil {
		was.finish(errReplaced(t))
		g.leadership.transfer = nil
	}
	st := g.core.node.BasicStatus()
	switch {
	case st.RaftState != raft.StateLeader:
		t.finish(g.host.notLeader(st.Lead))
		return
	case t.to == g.self:
		t.finish(nil)
		return
	}
	if t.target = t.to; t.target == raft.None {
		t.target = g.leadership.leader.Successor(func(id uint64, pr tracker.Progress) bool { return pr.RecentActive || g.host.isThere(id) })
	}
	if t.target == raft.None {
		t.finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: no other member was heard lately", g.id, g.self))
		return
	}
	if what := g.lacks(t.target); what != "" {
		t.finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: host %d lacks %s, which commands may name, so it could not apply them; wait until it has fetched it", g.id, g.self, t.target, what))
		return
	}
	if err := g.core.node.TransferLeader(t.target); err != nil {
		t.finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: %w", g.id, g.self, err))
		return
	}
	t.term, t.at, g.leadership.transfer = st.Term, g.core.at.Ticks, t
	g.tellMoved(st.Term, true)
	g.reportGivenUp(event.LeadershipGivenUp{Group: g.id, Term: st.Term, To: t.target, Cause: "a caller has asked for it"})
}

// advanceTransfer ends the transfer under way when another member leads, or this one does again.
func (g *Group) advanceTransfer() {
	t := g.leadership.transfer
	if t == nil {
		return
	}
	st := g.core.node.BasicStatus()
	switch leads := st.RaftState == raft.StateLeader; {
	case leads && st.Term == t.term && st.LeadTransferee == t.target:
		return // under way
	case leads && st.Term == t.term:
		t.finish(g.notLevel(t))
	case leads:
		t.finish(fmt.Errorf("millrace: group %d is led by host %d again, in term %d: host %d was not elected", g.id, g.self, st.Term, t.target))
	case st.Lead == raft.None:
		return // an election is under way
	case t.to != raft.None && st.Lead != t.to:
		t.finish(fmt.Errorf("millrace: group %d is led by host %d now, in term %d, and not by host %d", g.id, st.Lead, st.Term, t.to))
	default:
		t.finish(nil)
	}
	g.leadership.transfer = nil
}

// notLevel says why the core has given a transfer up.
func (g *Group) notLevel(t *Transfer) error {
	took := time.Duration(g.core.at.Ticks-t.at) * g.host.config.tickPeriod()
	last, match := g.core.node.BasicStatus().LastIndex, uint64(0)
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == t.target {
			match = pr.Match
		}
	})
	return fmt.Errorf("millrace: group %d keeps its leader, host %d: in %v host %d did not take over; it holds entry %d of %d; look at its host, its disk and the network to it",
		g.id, g.self, took, t.target, match, last)
}
