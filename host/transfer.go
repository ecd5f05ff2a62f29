package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// Poll returns whether the transfer has ended, and with which error. It never waits.
func (t *Transfer) Poll() (done bool, err error) {
	if t.group.Err() != nil {
		t.way.Finish(outcome.WithCause(outcome.ErrStopped, t.group.Err()))
	}
	return t.way.Outcome()
}

// StartTransfer makes the group hand its leadership over to member to, without waiting for it. With 0 the
// leadership goes to the best member: one that was heard lately, with most of the log. A transfer that is
// under way ends with an error. The error of Poll is that of TransferLeadership.
func (g *Group) StartTransfer(to uint64) *Transfer {
	t := &Transfer{g, leadership.NewTransfer(to)}
	switch voters := g.memberIDs(); {
	case g.Err() != nil:
		t.way.Finish(outcome.WithCause(outcome.ErrStopped, g.Err()))
	case to != raft.None && !slices.Contains(voters, to):
		t.way.Finish(fmt.Errorf("millrace: group %d cannot be led by host %d: its members are %v", g.id, to, voters))
	default:
		if replaced := g.inbox.leaveTransfer(t.way); replaced != nil {
			replaced.Replace(t.way)
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
	case <-t.way.Done():
	case <-g.life.ended: // Poll says so
	case <-ctx.Done():
		if done, _ := t.Poll(); !done {
			return fmt.Errorf("millrace: the leadership of group %d has not passed over yet: %w", g.id, g.waitEnd(ctx))
		}
	}
	_, err := t.Poll()
	return err
}
