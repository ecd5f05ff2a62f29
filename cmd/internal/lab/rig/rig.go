// Package rig builds the clusters of the lab's experiments: real hosts in this process, made of components
// that a plan names. Each host has a directory of its own. An experiment can spoil the network and the
// disks while clients write and read. Every host can be killed and opened again; what clients were promised
// is checked at the end (load.VerifyMachines), faults or not.
//
//	rig.go       components, and how a cluster is opened and closed
//	seat.go      one member alone, whose peers run in other processes
//	member.go    one host: kill, open again, a slow disk
//	foreign.go   components of other projects' code, and slow disks
//	wire.go      links that stand for a network: late, at a bounded rate, or cut
//	network.go   how hosts reach each other: transports, links, delays, cuts
//	machine.go   the state machine
//	fill.go      writes outside a load, logs that diverge
//	target.go    the cluster as a load.Target of writes
//	reads.go     and of reads, by each way of reading
package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// Setup says of what a cluster is made.
type Setup struct {
	Dir        string // exists and is empty
	Hosts      int
	Groups     int      // 1 if it is 0
	Log        string   // a name of Foreign.Logs; "": that of package wal
	Durability wal.Mode // of that
	Engine     string   // a name of Foreign.Engines; "": the machine remembers which values it has seen, and no more
	Transport  Transport
	Foreign    Foreign
	Pipeline   pipeline.Pipeline
	// LateAcknowledgement makes a write wait for the state machine of the leader, as a client does that wants
	// a result. Else it is acknowledged when it is committed.
	LateAcknowledgement bool
	FsyncDelay          time.Duration // of every disk
	LeaderFsyncDelay    time.Duration // of the disk of host 1, which leads at first, besides FsyncDelay
	DiskBandwidth       int64         // of the disk of each host, in bytes a second; 0: the real one's
	NetworkDelay        time.Duration // one way, between any two hosts
	// Faults makes the network and the disks such that an experiment can spoil them. Bytes pass two more
	// sockets then.
	Faults bool
	// PowerCuts gives each host a disk in memory that can lose power (Member.CutPower, package crashfs), and
	// ignores both delays and DiskBandwidth.
	PowerCuts bool
	// SingleEntries is Config.SingleEntries of the hosts, for experiments that count entries.
	SingleEntries bool

	Leases           bool
	Sessions         bool          // commands may have a place in a session (Call); without snapshots
	Heartbeat        time.Duration // 0: the default of host
	Election         time.Duration // 0: the default of host
	Snapshots        host.SnapshotPolicy
	SnapshotsPerSec  int64        // bytes a second of snapshots; 0: the default of host
	StateBytes       int64        // besides what the state machine needs
	Founders         int          // hosts that found the group; 0: all. The others wait to be added
	ClientsPerMember bool         // clients stay with one member each, by their number, and do not look for a leader
	Processes        string       // what runs the hosts, for labels: "" (this process), "local", "remote"
	Cluster          uint64       // number of the cluster; 0: that of all clusters in one process
	Logger           *slog.Logger // of the hosts; nil: what they say is discarded
}

// Cluster is an open cluster. Its methods may be called beside a load, by one goroutine.
type Cluster struct {
	setup   Setup
	members []*Member
	network *network
	ledger  *load.Ledger
	leaders []atomic.Int32 // by group, from 0: the member that took the last write
	acked   []atomic.Uint64
	full    atomic.Pointer[error] // a log has no space, for good
}

const (
	clusterID    = 17
	openTimeout  = time.Minute
	pollInterval = 2 * time.Millisecond
)

// Open opens a cluster, and returns when host 1 leads every group and all hosts know it. If it fails, it
// leaves nothing running.
func Open(ctx context.Context, s Setup) (_ *Cluster, err error) {
	s.Groups = max(s.Groups, 1)
	if s.Founders == 0 {
		s.Founders = s.Hosts
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("the cluster took more than %v to elect leaders", openTimeout))
	defer cancel()
	c := &Cluster{setup: s, ledger: &load.Ledger{}, leaders: make([]atomic.Int32, s.Groups), acked: make([]atomic.Uint64, s.Groups)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.network, err = newNetwork(s); err != nil {
		return nil, err
	}
	for i := range s.Hosts {
		c.members = append(c.members, newMember(c, i))
	}
	for _, m := range c.members[:s.Founders] {
		if err := m.Open(ctx); err != nil {
			return nil, err
		}
	}
	for g := range s.Groups {
		if err := bench.Lead(ctx, func(i int) *host.Group { return c.members[i].Group(g) }); err != nil {
			return nil, fmt.Errorf("group %d: %w", g+1, err)
		}
	}
	return c, c.Settle(ctx)
}

// Settle waits until all open members, apart from those that were removed, know the same leader of each
// group, and have applied what it has committed.
func (c *Cluster) Settle(ctx context.Context) error {
	for g := range c.setup.Groups {
		err := Until(ctx, "the members follow one leader", func() (bool, error) {
			leader, committed := c.Leader(g), uint64(0)
			if leader < 0 || c.members[leader].Group(g) == nil {
				return false, nil
			}
			committed = c.members[leader].Group(g).Status().Committed
			for _, m := range c.members {
				group := m.part(g)
				if group == nil {
					continue
				}
				if err := group.Err(); err != nil {
					return false, fmt.Errorf("host %d: %w", m.ID, err)
				}
				if !group.Founding().Founded {
					return false, nil // a founder that is killed before would stop the group
				}
				if s := group.Status(); s.Leader != uint64(leader+1) || s.Applied < committed || committed == 0 {
					return false, nil
				}
			}
			c.leaders[g].Store(int32(leader))
			return true, nil
		})
		if err != nil {
			return fmt.Errorf("group %d: %w", g+1, err)
		}
	}
	return nil
}

// Members returns the hosts, open or not.
func (c *Cluster) Members() []*Member { return c.members }

// Member returns host i, from 0.
func (c *Cluster) Member(i int) *Member { return c.members[i] }

// Ledger is what all clients of the cluster know.
func (c *Cluster) Ledger() *load.Ledger { return c.ledger }

// Leader returns the member, from 0, that leads a group as the open members say, or -1. Of several that say
// so the one with the highest term leads.
func (c *Cluster) Leader(group int) int {
	leader, term := -1, uint64(0)
	for i, m := range c.members {
		if g := m.Group(group); g != nil {
			if s := g.Status(); s.Leader == m.ID && s.Term > term {
				leader, term = i, s.Term
			}
		}
	}
	return leader
}

// Follower returns a member, from 0, that does not lead the first group and is open, or -1.
func (c *Cluster) Follower() int {
	leader := c.Leader(0)
	for i := len(c.members) - 1; i >= 0; i-- {
		if i != leader && c.members[i].part(0) != nil {
			return i
		}
	}
	return -1
}

// Term returns the highest term of the first group that an open member knows.
func (c *Cluster) Term() (term uint64) {
	for _, m := range c.members {
		if g := m.Group(0); g != nil {
			term = max(term, g.Status().Term)
		}
	}
	return term
}

// Level waits until every open member has applied what a leader of the first group has committed by now, or
// will have when there is one again. Unlike Settle it ends under load.
func (c *Cluster) Level(ctx context.Context) error {
	want := uint64(0)
	return Until(ctx, "the members are level", func() (bool, error) {
		if want == 0 {
			at := c.Leader(0)
			if at < 0 || c.members[at].Group(0) == nil {
				return false, nil
			}
			want = c.members[at].Group(0).Status().Committed
		}
		for _, m := range c.members {
			g := m.part(0)
			if g == nil {
				continue
			}
			if err := g.Err(); err != nil {
				return false, fmt.Errorf("host %d: %w", m.ID, err)
			}
			if g.Status().Applied < want {
				return false, nil
			}
		}
		return true, nil
	})
}

// Close implements load.Target: it closes all hosts that are open, and the network.
func (c *Cluster) Close() error {
	var hosts []*host.Host
	for _, m := range c.members {
		if h := m.detach(); h != nil {
			hosts = append(hosts, h)
		}
	}
	err := bench.CloseHosts(hosts)
	for _, m := range c.members {
		err = errors.Join(err, m.closeEngines())
	}
	if c.network != nil {
		err = errors.Join(err, c.network.close())
		c.network = nil
	}
	return err
}

func (c *Cluster) dir(i int) string { return filepath.Join(c.setup.Dir, fmt.Sprintf("host-%d", i+1)) }

// Until calls done again and again until it returns true or an error, or until ctx ends.
func Until(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := lab.Sleep(ctx, pollInterval); err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
	}
}
