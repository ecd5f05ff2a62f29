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
		var elsewhere *host.NotLeaderError
		if !errors.As(err, &elsewhere) {
			return err
		}
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
	}
}

// CloseHosts closes hosts, all at once: a host that hands over its groups to one that closes too would only
// wait.
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
