package millrace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// ReadAt is what a read may rely on. The log through Index is applied on this host. The state includes
// everything that was acknowledged until Age before the read began. Age is 0 for Linearizable and Lease,
// and AgeUnknown for AtLeast and Local.
//
//	Index uint64        // the log through this entry is applied here
//	Age   time.Duration // how old the state may be, counted from when the read began
type ReadAt = outcome.ReadAt

// AgeUnknown is the Age of a read that asks nothing of other members.
const AgeUnknown time.Duration = -1

// Consistency says what a read must see. The zero value is Linearizable.
type Consistency struct {
	kind     readKind
	maxAge   time.Duration
	maxDrift float64
	index    uint64
}

type readKind int

const (
	linearizable readKind = iota
	lease
	bounded
	atLeast
	local
)

// Linearizable reads see everything that was acknowledged before they began, by any member. It costs a
// round of messages to a quorum, shared by all reads of that moment; nothing is written.
var Linearizable = Consistency{}

// Local reads see what this host has applied. A member that is cut off serves an old state for as long as it
// is.
var Local = Consistency{kind: local}

// Lease reads see everything that was acknowledged before they began. They ask no other member as long as
// this host leads under a lease: a quorum has promised to elect no other leader for a while. The quorum's
// answer on which the lease rests is to a round that was sent at most maxAge ago; 0 sets no bound but the
// promise's. Elsewhere, and when the lease does not hold any more after the read, the read asks the quorum,
// like Linearizable. It is for View and ViewExclusive, which check that, and needs Config.Leases on all
// members.
//
// It rests on clocks: maxDrift bounds the difference of the rates at which the clocks of any two members run,
// as a part of 1, such as 0.01. If they differ by more, a read may be stale. Clocks may be set, and a process
// may be stopped at any point: that does no harm.
func Lease(maxAge time.Duration, maxDrift float64) Consistency {
	return Consistency{kind: lease, maxAge: maxAge, maxDrift: maxDrift}
}

// Bounded reads see everything that was acknowledged until maxAge before they began, and say in ReadAt.Age
// how old their state may be. Most wait for no other member, because this host asks in the background.
func Bounded(maxAge time.Duration) Consistency { return Consistency{kind: bounded, maxAge: maxAge} }

// AtLeast reads wait until this host has applied the log through index. With the index of a Receipt, or of a
// ReadAt, of any member, clients see on this host what they have written or seen on another one.
func AtLeast(index uint64) Consistency { return Consistency{kind: atLeast, index: index} }

// rejectRead says why a read cannot be made, or returns nil.
func (n *Node[C, R]) rejectRead(ctx context.Context, c Consistency, method string) error {
	if err := c.reject(ctx); err != nil {
		return err
	}
	return n.rejectReentry(method)
}

// reject says why no node can make a read, or returns nil.
func (c Consistency) reject(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("millrace: not read: %w", context.Cause(ctx))
	case c.kind == lease && !(c.maxDrift >= 0 && c.maxDrift < 1):
		return fmt.Errorf("millrace: Lease with maxDrift %v, want a part of 1 from 0 to less than 1, such as 0.01", c.maxDrift)
	case c.kind == lease && c.maxAge < 0:
		return fmt.Errorf("millrace: Lease with maxAge %v, want at least 0", c.maxAge)
	case c.kind == bounded && c.maxAge <= 0:
		return fmt.Errorf("millrace: Bounded with maxAge %v, want more than 0; a read of age 0 is Linearizable", c.maxAge)
	}
	return nil
}

// errNeedsView refuses a lease where it cannot be checked after the read.
var errNeedsView = errors.New("millrace: Read cannot check a lease after the state was read; use View or ViewExclusive, or Linearizable")

// Read returns when the state machine of this host may be read with a consistency. The caller then reads it,
// under a lock that Apply takes too; the state may be newer than ReadAt says, and not older. Any member may
// be asked. If no leader is known, Read waits for one until ctx ends. A machine that halts in between, and is
// made again from a snapshot (Halted), has an older state meanwhile. View and ViewExclusive notice that, Read
// cannot.
func (n *Node[C, R]) Read(ctx context.Context, c Consistency) (ReadAt, error) {
	if c.kind == lease {
		return ReadAt{}, errNeedsView
	}
	if err := n.rejectRead(ctx, c, "Read"); err != nil {
		return ReadAt{}, err
	}
	return n.grant(ctx, c)
}

// grant waits until the state may be read; a lease asks the quorum here.
func (n *Node[C, R]) grant(ctx context.Context, c Consistency) (ReadAt, error) {
	if c.kind == local {
		return n.readLocal()
	}
	var r host.Read
	n.start(&r, c)
	at, err := r.Wait(ctx)
	return c.at(at), err
}

// start begins a read that is not local.
func (n *Node[C, R]) start(r *host.Read, c Consistency) {
	switch c.kind {
	case atLeast:
		n.group.StartApplied(r, c.index)
	case bounded:
		n.group.StartRead(r, c.maxAge)
	default: // a lease asks the quorum
		n.group.StartRead(r, 0)
	}
}

// at is what a read with the consistency may rely on, where the host says at.
func (c Consistency) at(at ReadAt) ReadAt {
	if c.kind == atLeast {
		at.Age = AgeUnknown
	}
	return at
}

func (n *Node[C, R]) readLocal() (ReadAt, error) {
	if err := n.group.Err(); err != nil {
		return ReadAt{}, fmt.Errorf("%w: %w", ErrStopped, err)
	}
	if err := n.group.Halted(); err != nil {
		return ReadAt{}, err
	}
	return ReadAt{Index: n.group.Status().Applied, Age: AgeUnknown}, nil
}

// View calls f when the state machine may be read, in this goroutine. Apply may run meanwhile, so f takes a
// lock that Apply takes too, or reads what is safe to read. With Lease it may call f a second time, if the
// lease did not hold any more after the first call. It calls f once more if the machine halted meanwhile
// and was made again from a snapshot. Only the last call counts. View returns the error of f as it is.
func (n *Node[C, R]) View(ctx context.Context, c Consistency, f func(ReadAt) error) error {
	if err := n.rejectRead(ctx, c, "View"); err != nil {
		return err
	}
	if c.kind == lease {
		if l, ok := n.group.Lease(c.maxAge, c.maxDrift); ok {
			if err := f(ReadAt{Index: l.Index}); l.Holds() {
				return err
			}
		}
	}
	for {
		at, err := n.grant(ctx, c)
		if err != nil {
			return err
		}
		halts := n.group.Halts()
		if n.group.Halted() != nil {
			continue
		}
		if err = f(at); n.group.Halted() == nil && n.group.Halts() == halts {
			return err
		}
		if err := c.reject(ctx); err != nil {
			return err
		}
	}
}

// ViewExclusive calls f like View, but while the state machine applies nothing, so that f needs no lock.
// Everything that the group would apply waits for f. So f must be short, and must not wait for this node: a
// Propose in f would wait for itself. If ctx ends before f begins, f is not called.
func (n *Node[C, R]) ViewExclusive(ctx context.Context, c Consistency, f func() error) error {
	if err := n.rejectRead(ctx, c, "ViewExclusive"); err != nil {
		return err
	}
	if c.kind == lease {
		if l, ok := n.group.Lease(c.maxAge, c.maxDrift); ok {
			if err := n.between(ctx, f); l.Holds() {
				return err
			}
		}
	}
	if _, err := n.grant(ctx, c); err != nil {
		return err
	}
	return n.between(ctx, f)
}

// between calls f between two batches of commands.
func (n *Node[C, R]) between(ctx context.Context, f func() error) (err error) {
	var r host.Read
	n.group.StartBetween(&r, func() { err = f() })
	if _, failed := r.Wait(ctx); failed != nil {
		return failed
	}
	return err
}

// WaitApplied returns when this host has applied the log through index. It is Read with AtLeast.
func (n *Node[C, R]) WaitApplied(ctx context.Context, index uint64) error {
	_, err := n.Read(ctx, AtLeast(index))
	return err
}
