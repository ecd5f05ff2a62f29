package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// Propose implements load.Target: it proposes on the leader of the client's group, and follows it. A host
// that surely has not taken the command, because it does not lead or is gone, is left for another one. Any
// other error is the client's. When a log has no space for good, no host takes a command any more.
func (c *Cluster) Propose(ctx context.Context, value []byte) error {
	g := int(load.IDOf(value).Client) % c.setup.Groups
	for {
		if full := c.full.Load(); full != nil {
			return *full
		}
		at := int(c.leaders[g].Load())
		group := c.members[at].Group(g)
		if group == nil {
			if err := c.redirect(ctx, g, at); err != nil {
				return err
			}
			continue
		}
		err := c.propose(ctx, group, value)
		var elsewhere *outcome.NotLeaderError
		switch {
		case err == nil:
			c.acked[g].Add(1)
			return nil
		case errors.As(err, &elsewhere) && elsewhere.Leader != 0 && int(elsewhere.Leader-1) != at:
			c.leaders[g].CompareAndSwap(int32(at), int32(elsewhere.Leader-1))
		case outcome.MayHaveCommitted(err) || ctx.Err() != nil:
			return err
		case errors.As(err, &elsewhere) || errors.Is(err, outcome.ErrStopped) || errors.Is(err, outcome.ErrMemberRemoved):
			if err := c.redirect(ctx, g, at); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// propose proposes a value on a member.
func (c *Cluster) propose(ctx context.Context, group *host.Group, value []byte) error {
	if c.setup.Sessions {
		return Call(ctx, group, nil, value)
	}
	receipt, err := group.Propose(ctx, value)
	if err == nil && c.setup.LateAcknowledgement {
		err = Applied(ctx, group, receipt.Index)
	}
	return err
}

// redirect waits a little, and points the clients of a group at the member that leads, if one is known,
// else at the next one.
func (c *Cluster) redirect(ctx context.Context, g, at int) error {
	if err := lab.Sleep(ctx, pollInterval); err != nil {
		return err
	}
	next := c.Leader(g)
	if next < 0 {
		next = (at + 1) % len(c.members)
	}
	c.leaders[g].CompareAndSwap(int32(at), int32(next))
	return nil
}

// Applied waits until a member has applied an entry.
func Applied(ctx context.Context, g *host.Group, index uint64) error {
	var r host.Read
	g.StartApplied(&r, index)
	_, err := r.Wait(ctx)
	return err
}

// Counters implements load.Target. Closed hosts count nothing, so a window in which a host is killed has no
// counters.
func (c *Cluster) Counters() (sum load.Counters) {
	for _, m := range c.members {
		h := m.Host()
		if h == nil {
			continue
		}
		for _, kind := range h.TransportStats().Kinds {
			sum.SentBytes += kind.BytesSent
		}
		var groups []*host.Group
		for g := range c.setup.Groups {
			if group := m.Group(g); group != nil {
				groups = append(groups, group)
			}
		}
		bench.Count(&sum, h, groups...)
	}
	return sum
}

// Verify implements load.Target. Members that are closed, were removed, or were never opened, are not
// looked at.
//
// It first waits until the members have applied what is committed. The number of values does not show that:
// after a fault there are some that were written and not acknowledged.
func (c *Cluster) Verify(ctx context.Context, ledger *load.Ledger) error {
	if err := c.Settle(ctx); err != nil {
		return fmt.Errorf("before the verification: %w", err)
	}
	errs := make([]error, c.setup.Groups)
	var wg sync.WaitGroup
	for g := range c.setup.Groups {
		wg.Go(func() {
			var machines []*load.Machine
			var own []*machine
			for _, m := range c.members {
				if m.part(g) != nil {
					own = append(own, m.machine(g))
					machines = append(machines, &m.machine(g).Machine)
				}
			}
			err := load.VerifyMachines(ctx, machines, ledger)
			for _, m := range own { // nothing is applied any more, so that an engine can be counted
				err = errors.Join(err, m.verifyEngine())
			}
			if errs[g] = err; err != nil && c.setup.Groups > 1 {
				errs[g] = fmt.Errorf("group %d: %w", g+1, err)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return errors.Join(err, c.failures()) // one sentence is enough, and what has stopped explains it
		}
	}
	return nil
}

// failures returns why groups have stopped by themselves.
func (c *Cluster) failures() (err error) {
	for _, m := range c.members {
		for g := range m.groups {
			if group := m.part(g); group != nil && group.Err() != nil {
				err = errors.Join(err, fmt.Errorf("host %d, group %d: %w", m.ID, g+1, group.Err()))
			}
		}
	}
	return err
}

// Machine returns what a load sees of this member's state machine of a group.
func (m *Member) Machine(g int) *load.Machine { return &m.machine(g).Machine }

func (m *Member) machine(g int) *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines[g]
}
