package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

const (
	beginTimeout = time.Minute
	leadTimeout  = 20 * time.Second
	beginners    = 64 // groups at a time
)

// Run is the cluster under one load: machines that were empty when it began, and a ledger. It is an
// experiment.Abroad.
type Run struct {
	*Cluster
	run     load.Run
	ledger  *load.Ledger
	leaders []atomic.Int32  // by group: the member, from 0, that took the last write
	acked   []atomic.Uint64 // by group: values acknowledged
	beganAt []uint64        // by group: an index at which a machine was of this run; all before the run are below
	use     uses

	mu      sync.Mutex
	remarks []archive.Warning
}

// Begin makes member 1 lead every group, if it can, and empties all machines. The members that have not
// answered are named in the remarks of the run; a majority must answer.
func (c *Cluster) Begin(ctx context.Context) (*Run, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, beginTimeout, fmt.Errorf("the members have not begun within %v", beginTimeout))
	defer cancel()
	r := &Run{
		Cluster: c, run: load.NewRun(), ledger: &load.Ledger{}, leaders: make([]atomic.Int32, c.groups), acked: make([]atomic.Uint64, c.groups),
		beganAt: make([]uint64, c.groups),
		use:     uses{members: make([]used, len(c.links))},
	}
	r.lead(ctx)
	errs := make([]error, c.groups)
	r.eachGroup(func(g int) { errs[g] = r.propose(ctx, g, r.run.Beginning()) })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("the machines cannot be emptied for a new load: %w", err)
	}
	return r, r.begun(ctx)
}

// eachGroup calls f for all groups, a bounded number of them at the same time.
func (r *Run) eachGroup(f func(g int)) {
	slots := make(chan struct{}, beginners)
	each(r.groups, func(g int) {
		slots <- struct{}{}
		defer func() { <-slots }()
		f(g)
	})
}

// lead asks the leaders of all groups to hand over to member 1, again and again for leadTimeout.
func (r *Run) lead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leadTimeout)
	defer cancel()
	to := binary.LittleEndian.AppendUint64(nil, 1)
	began := time.Now()
	for {
		states, _ := r.states(ctx) // a member that does not answer says nothing
		var others []int
		for g := range r.groups {
			at, known := leader(states, g)
			if r.leaders[g].Store(int32(at)); !known || at != 0 || states[0] == nil { // others may not know yet that it is gone
				others = append(others, g)
			}
		}
		if len(others) == 0 {
			return
		}
		gone := states[0] == nil && time.Since(began) > r.absence
		if gone || lab.Sleep(ctx, pollInterval) != nil {
			r.remark(archive.WarnFailures, "member 1 does not lead %d of %d groups, though the others were asked to hand over for %v.", len(others), r.groups, time.Since(began).Round(time.Second))
			return
		}
		r.eachGroup(func(g int) {
			if at := int(r.leaders[g].Load()); at != 0 {
				_, _, _ = r.links[at].ask(ctx, MemberRequest(KindLead, g, to...)) // the next look shows what it did
			}
		})
	}
}

// leader returns the leader of a group, from 0, as the member that knows the highest term says.
func leader(states [][]GroupState, g int) (at int, known bool) {
	term := uint64(0)
	for _, of := range states {
		if of != nil && of[g].Leader >= 1 && of[g].Leader <= uint64(len(states)) && of[g].Term >= term {
			at, term, known = int(of[g].Leader-1), of[g].Term, true
		}
	}
	return at, known
}

// begun waits until the machines are of this run, on all members that answer.
func (r *Run) begun(ctx context.Context) error {
	until := time.Now().Add(r.absence)
	for {
		states, err := r.states(ctx)
		waits, answered := 0, 0
		for _, of := range states {
			if of == nil {
				continue
			}
			answered++
			for g, s := range of {
				if s.Run != r.run {
					waits++
					continue
				}
				r.beganAt[g] = s.Machine.Applied
			}
		}
		switch {
		case waits == 0 && err == nil:
			r.fresh(ctx)
			return nil
		case waits == 0 && 2*answered > len(r.links) && time.Now().After(until):
			r.remark(archive.WarnMemberGone, "the load began without a member: %v.", err)
			r.fresh(ctx)
			return nil
		}
		if lab.Sleep(ctx, pollInterval) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// remark notes what may keep figures from holding.
func (r *Run) remark(code, format string, args ...any) {
	w := archive.Warning{Code: code, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, have := range r.remarks {
		if have == w {
			return
		}
	}
	if len(r.remarks) < maxRemarks {
		r.remarks = append(r.remarks, w)
	}
}

const maxRemarks = 20

// Remarks implements experiment.Abroad.
func (r *Run) Remarks() []archive.Warning {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.remarks
	r.remarks = nil
	return all
}
