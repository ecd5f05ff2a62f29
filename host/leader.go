package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/millrace/millrace/raft"
)

// Campaign makes the group start an election in its next turn, without waiting for its timeout.
func (g *Group) Campaign() {
	g.inbox.putCampaign()
	g.wakeAs(true)
}

// WaitLeader returns the id of the leader as soon as this host knows one: at once, or after an election. It
// returns ErrStopped if the group has stopped, and an error that wraps the context's when ctx ends.
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

// signal wakes any number of goroutines when something has changed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next call of notify closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
