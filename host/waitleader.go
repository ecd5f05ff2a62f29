package host

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// WaitLeader returns the leader as soon as this host knows one: at once, or after an election. It returns
// ErrStopped if the group has stopped, and an error that wraps the context's when ctx ends.
func (g *Group) WaitLeader(ctx context.Context) (Leader, error) {
	for {
		changed := g.life.roleChanged.wait()
		if err := g.Err(); err != nil {
			return Leader{}, outcome.WithCause(outcome.ErrStopped, err)
		}
		if leader := g.life.status.Load().Leader; leader != raft.None {
			return g.host.leader(leader), nil
		}
		select {
		case <-changed:
		case <-g.life.ended:
			return Leader{}, outcome.WithCause(outcome.ErrStopped, g.Err())
		case <-ctx.Done():
			return Leader{}, fmt.Errorf("millrace: no leader was known: %w", g.waitEnd(ctx))
		}
	}
}
