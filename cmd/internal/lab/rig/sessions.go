package rig

import (
	"context"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
)

// commands is the machine of a cluster with sessions (Setup.Sessions): a command that comes again under the
// number of its session is not applied again. The client that waits for it on this host hears when it is
// applied.
type commands struct{ *machine }

// Apply implements host.CommandMachine.
func (c commands) Apply(batch []statemachine.Command) error {
	n := uint64(0)
	for i := range batch {
		c.Machine.ApplyAt(batch[i].Index, batch[i].Pos, batch[i].Data)
		if len(batch[i].Data) > 0 {
			n++
		}
	}
	c.entries.Add(n)
	for i := range batch {
		if own, ok := batch[i].Caller.(*call); ok {
			own.ends <- nil
		}
	}
	return nil
}

// call is a command that a client waits for.
type call struct {
	host.Call
	ends chan error // buffered, for one
}

// Committed implements host.Caller: the client waits for the state machine.
func (c *call) Committed(outcome.Receipt) {}

// Failed implements host.Caller.
func (c *call) Failed(err error) { c.ends <- err }

// Duplicate implements host.Caller. The command was applied before: that was its effect.
func (c *call) Duplicate(outcome.Receipt, []byte, bool) { c.ends <- nil }

// Call carries out a command on a member that leads, and returns when its state machine has applied it. mark
// is its place in a session; nil: it has none. The cluster has sessions.
func Call(ctx context.Context, g *host.Group, mark *session.Mark, value []byte) error {
	c := &call{ends: make(chan error, 1)}
	c.Data = append(make([]byte, host.CallRoom, host.CallRoom+len(value)), value...)
	c.Owner, c.Here, c.Session = c, true, mark
	if err := g.Call(&c.Call); err != nil {
		return err
	}
	select {
	case err := <-c.ends:
		return err
	case <-ctx.Done():
	}
	if err := g.Withdraw(ctx, &c.Call); err != nil {
		return err
	}
	return <-c.ends
}
