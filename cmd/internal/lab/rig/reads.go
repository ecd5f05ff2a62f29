package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// Reading is a way to read.
type Reading string

// The readings. All but Local are linearizable.
const (
	ByLog      Reading = "log"        // a small command through the log
	ByIndex    Reading = "read index" // the leader asks a quorum whether it still leads
	ByLease    Reading = "lease"      // the leader knows that it leads until a moment
	ByFollower Reading = "follower"   // a follower asks the leader for an index, and waits for it
	Local      Reading = "local"      // whatever a member has applied
)

// AllReadings are all of them.
var AllReadings = []Reading{ByLog, ByIndex, ByLease, ByFollower, Local}

// ParseReading returns a reading by its name.
func ParseReading(name string) (Reading, error) {
	if r := Reading(name); slices.Contains(AllReadings, r) {
		return r, nil
	}
	return "", lab.Invalid("Reading", "%q is none of %q", name, AllReadings)
}

// String implements fmt.Stringer.
func (r Reading) String() string { return string(r) }

// Reader is a cluster as a load.Target of reads. If a read must be linearizable and misses a write that was
// acknowledged before it, the error wraps lab.ErrMismatch.
type Reader struct {
	*Cluster
	Reading Reading
}

// leaseAge and leaseDrift say of which clocks a lease is.
const (
	leaseAge   = time.Minute
	leaseDrift = 0.01
)

// Propose implements load.Target: it reads.
func (r Reader) Propose(ctx context.Context, value []byte) error {
	if r.Reading == ByLog {
		return r.Cluster.Propose(ctx, value)
	}
	id := load.IDOf(value)
	g := int(id.Client) % r.setup.Groups
	want := r.acked[g].Load()
	have, err := r.members[r.member(g, id.Client)].Read(ctx, r.Reading, g)
	if err != nil || r.Reading == Local {
		return err
	}
	return Stale(have, want, r.Reading)
}

// Read reads, by any way but the log, on this member, and returns how many values its machine of a group has
// applied.
func (m *Member) Read(ctx context.Context, by Reading, g int) (values uint64, err error) {
	group := m.Group(g)
	if group == nil {
		return 0, outcome.ErrStopped
	}
	machine := m.machine(g)
	switch by {
	case Local:
		return machine.entries.Load(), nil
	case ByLease:
		if lease, ok := group.Lease(leaseAge, leaseDrift); ok {
			have := machine.entries.Load()
			if lease.Holds() {
				return have, nil
			}
		}
	}
	var read host.Read // a lease begins with one, too
	group.StartRead(&read, 0)
	if _, err := read.Wait(ctx); err != nil {
		return 0, err
	}
	return machine.entries.Load(), nil
}

// member returns the member, from 0, that a client reads from.
func (r Reader) member(g int, client uint32) int {
	return r.Reading.Where(int(r.leaders[g].Load()), len(r.members), client)
}

// Where returns the member, from 0, that a client reads from.
func (r Reading) Where(leader, members int, client uint32) int {
	if r != ByFollower || members == 1 {
		return leader
	}
	return (leader + 1 + int(client)%(members-1)) % members
}

// Stale returns an error that wraps lab.ErrMismatch if a read has seen fewer values than it had to.
func Stale(have, want uint64, by Reading) error {
	if have < want {
		return fmt.Errorf("%w: a read by %s saw %d writes, and %d were acknowledged before it began", lab.ErrMismatch, by, have, want)
	}
	return nil
}

// Verify implements load.Target. Each read was checked when it was made; reads by the log are writes.
func (r Reader) Verify(ctx context.Context, ledger *load.Ledger) error {
	if r.Reading == ByLog {
		return r.Cluster.Verify(ctx, ledger)
	}
	return r.failures()
}

// Ledger is for a window of reads: a new one, except that commands through the log are writes.
func (r Reader) Ledger() *load.Ledger {
	if r.Reading == ByLog {
		return r.Cluster.Ledger()
	}
	return nil
}

// Copies implements load.Copier: a read keeps nothing of its value, and a command through the log is kept.
func (r Reader) Copies() bool { return r.Reading != ByLog }

var _ interface {
	load.Target
	load.Copier
} = Reader{}

var errNoFollower = errors.New("a cluster of one host has no follower")

// Reads returns the cluster as a target of reads.
func (c *Cluster) Reads(by Reading) (Reader, error) {
	if by == ByFollower && len(c.members) == 1 {
		return Reader{}, errNoFollower
	}
	if by == ByLease && !c.setup.Leases {
		return Reader{}, errors.New("the cluster was opened without leases")
	}
	return Reader{c, by}, nil
}
