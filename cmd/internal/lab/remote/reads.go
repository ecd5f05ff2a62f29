package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// reader is a run as a target of reads. A read that must be linearizable and misses a write that was
// acknowledged before it is an error that wraps lab.ErrMismatch.
type reader struct {
	*Run
	by rig.Reading
}

// Reads implements experiment.Abroad.
func (r *Run) Reads(by rig.Reading) (load.Abroad, *load.Ledger, error) {
	switch {
	case by == rig.ByFollower && len(r.links) == 1:
		return nil, nil, errors.New("a cluster of one member has no follower")
	case by == rig.ByLease && !r.Hello().Components.Leases:
		return nil, nil, errors.New("the members were started without leases")
	case by == rig.ByLog:
		return r, r.ledger, nil // a command through the log is a write
	}
	return reader{r, by}, nil, nil
}

// Propose implements load.Target: it reads.
func (r reader) Propose(ctx context.Context, value []byte) error {
	id := load.IDOf(value)
	g := int(id.Client) % r.groups
	want := r.acked[g].Load()
	at := r.by.Where(int(r.leaders[g].Load()), len(r.links), id.Client)
	status, text, err := r.links[at].ask(ctx, MemberRequest(KindRead, g, []byte(r.by)...))
	switch {
	case err != nil:
		if r.by != rig.ByFollower {
			r.follow(g, at, nil)
		}
		return err
	case status == NotTaken:
		r.follow(g, at, text)
		return &declined{fmt.Sprintf("member %d does not lead", at+1)}
	case status != Done:
		return &declined{fmt.Sprintf("member %d: %s", at+1, text)}
	case len(text) != 8:
		return fmt.Errorf("member %d answered a read with %d bytes, want 8", at+1, len(text))
	case r.by == rig.Local:
		return nil
	}
	err = rig.Stale(binary.LittleEndian.Uint64(text), want, r.by)
	if err != nil {
		if other := r.disturbed(ctx); other != nil { // it has emptied the machines
			return other
		}
	}
	return err
}

// Verify implements load.Target. The reads were checked one by one; the members must be well.
func (r reader) Verify(ctx context.Context, _ *load.Ledger) error {
	states, err := r.states(ctx)
	for i, of := range states {
		for g, s := range of {
			if s.Err != "" {
				return fmt.Errorf("group %d has stopped on member %d: %s", g+1, i+1, s.Err)
			}
			if r.isLater(g, s) {
				return r.beside(s)
			}
		}
	}
	if err != nil {
		r.absent(err)
	}
	return ctx.Err()
}

var _ load.Abroad = reader{}

var _ experiment.Abroad = (*Run)(nil)
