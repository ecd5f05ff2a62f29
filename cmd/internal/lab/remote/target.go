package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Propose implements load.Target: it proposes to the leader of the client's group, and follows it. A member
// that surely has not taken the command, because it does not lead or is gone, is left for another one. A
// command whose connection broke may have been committed: that is an error, and the client's.
func (r *Run) Propose(ctx context.Context, value []byte) error {
	g := int(load.IDOf(value).Client) % r.groups
	if err := r.propose(ctx, g, value); err != nil {
		return err
	}
	r.acked[g].Add(1)
	return nil
}

func (r *Run) propose(ctx context.Context, g int, command []byte) error {
	head := RequestHead(make([]byte, 0, HeadBytes), KindPropose, g)
	for {
		at := int(r.leaders[g].Load())
		status, text, err := r.links[at].ask(ctx, head, command)
		switch {
		case err == nil && status == Done:
			return nil
		case err == nil && status != NotTaken:
			return &declined{fmt.Sprintf("member %d: %s", at+1, text)}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, ErrNotSent):
			r.leaders[g].CompareAndSwap(int32(at), int32((at+1)%len(r.links)))
			return err
		case errors.Is(err, errEnded):
			return err
		}
		if !r.follow(g, at, text) {
			if lab.Sleep(ctx, pollInterval) != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// follow points the clients of a group at the leader that a member has named. If that has named none, it
// points them at the next member, and returns false: the caller waits a little.
func (r *Run) follow(g, at int, named []byte) (known bool) {
	if id, err := strconv.ParseUint(string(named), 10, 32); err == nil && id >= 1 && id <= uint64(len(r.links)) && int(id-1) != at {
		r.leaders[g].CompareAndSwap(int32(at), int32(id-1))
		return true
	}
	r.leaders[g].CompareAndSwap(int32(at), int32((at+1)%len(r.links)))
	return false
}

// Ledger implements experiment.Abroad.
func (r *Run) Ledger() *load.Ledger { return r.ledger }

// Copies implements load.Copier: a value is in the buffer of a connection before Propose returns.
func (r *Run) Copies() bool { return true }

// Close implements load.Target: it ends the connections.
func (r *Run) Close() error {
	r.Cluster.Close()
	return nil
}

var _ interface {
	experiment.Abroad
	load.Copier
} = (*Run)(nil)
