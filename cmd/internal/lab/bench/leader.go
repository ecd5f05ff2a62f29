package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// Leader is where the clients of one group propose: the host that took the latest command. The zero Leader is
// the first host.
type Leader struct{ at atomic.Int32 }

// Set says which host leads, from 0.
func (l *Leader) Set(host int) { l.at.Store(int32(host)) }

// Propose proposes on the leader, and follows it. A host that does not lead has not taken the command, so
// another may get it. member returns the group on a host.
func (l *Leader) Propose(ctx context.Context, member func(host int) *host.Group, value []byte) error {
	for {
		at := int(l.at.Load())
		group := member(at)
		_, err := group.Propose(ctx, value)
		if err == nil {
			return nil // before there is a variable that errors.As moves to the heap
		}
		var elsewhere *outcome.NotLeaderError
		if !errors.As(err, &elsewhere) {
			return err
		}
		if err := l.follow(ctx, at, group, elsewhere); err != nil {
			return err
		}
	}
}

// follow goes to the leader that a refusal names, or waits for one.
func (l *Leader) follow(ctx context.Context, at int, group *host.Group, elsewhere *outcome.NotLeaderError) error {
	leader := elsewhere.Leader
	if leader == 0 {
		known, err := group.WaitLeader(ctx)
		if err != nil {
			return err
		}
		leader = known.ID
	}
	if at == int(leader-1) { // it does not know yet what happened to it
		if err := lab.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	l.Set(int(leader - 1))
	return nil
}

// Lead waits until the first host leads a group. Hosts that are paused for a while may elect another
// leader. Lead asks that leader to hand over. While its followers hear it, they elect no other. member
// returns the group on a host, from 0, or nil if that is closed.
func Lead(ctx context.Context, member func(host int) *host.Group) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leaderPatience, errors.New("it was asked for again and again"))
	defer cancel()
	first := member(0)
	for refused := error(nil); first.Status().Leader != 1; {
		leader, err := first.WaitLeader(ctx)
		if err == nil && leader.ID != 1 {
			if g := member(int(leader.ID - 1)); g != nil {
				refused = g.TransferLeadership(ctx, 1)
			}
		}
		if err := lab.Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("host 1 does not lead after %v: %w", leaderPatience, errors.Join(context.Cause(ctx), refused))
		}
	}
	return nil
}

const leaderPatience = time.Minute

// CloseHosts closes hosts, all at once: a host that hands over its groups to another closing host would
// only wait.
func CloseHosts(hosts []*host.Host) error {
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() {
			if err := h.Close(context.Background()); err != nil {
				errs[i] = fmt.Errorf("host %d: %w", i+1, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
