package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/vfs"
)

// cluster is a real cluster as a load.Target: hosts in this process, on loopback TCP, each with its own
// directory on the disk, each applying to a Machine for each group. A client writes to one of the groups.
type cluster struct {
	hosts    []*host.Host
	groups   [][]*host.Group   // by group and host
	machines [][]*load.Machine // the same
	leaders  []Leader          // by group
}

// ClusterUnder returns a function that opens a cluster under the pipeline p.
func ClusterUnder(p pipeline.Pipeline) load.OpenFunc {
	return func(ctx context.Context, s load.Setup) (load.Target, error) {
		return openCluster(ctx, s, p, host.GroupConfig{}, 1)
	}
}

func openInline(ctx context.Context, s load.Setup) (load.Target, error) {
	return openCluster(ctx, s, pipeline.Async{}, host.GroupConfig{NonBlocking: true}, 1)
}

func openGroups(ctx context.Context, s load.Setup) (load.Target, error) {
	return openCluster(ctx, s, pipeline.Async{}, host.GroupConfig{}, s.Groups)
}

func openCluster(ctx context.Context, s load.Setup, p pipeline.Pipeline, config host.GroupConfig, groups int) (load.Target, error) {
	c := &cluster{}
	return c, c.open(ctx, s, p, groups, func(h *host.Host, id uint64, m *load.Machine) (*host.Group, error) {
		config.ID = id
		return h.OpenGroup(ctx, config, machineAdapter{m})
	})
}

// open opens the hosts, and groups of each with a machine. After an error nothing is open.
func (c *cluster) open(ctx context.Context, s load.Setup, p pipeline.Pipeline, groups int, openGroup func(h *host.Host, id uint64, m *load.Machine) (*host.Group, error)) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	c.groups, c.machines, c.leaders = make([][]*host.Group, groups), make([][]*load.Machine, groups), make([]Leader, groups)
	disk, err := preparedDisk(ctx, s)
	if err != nil {
		return err
	}
	idle, peers, err := Listen(s.Hosts) // idle: not yet owned by a host
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			for _, t := range idle {
				err = errors.Join(err, t.Close())
			}
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range s.Hosts {
		delay := s.FsyncDelay
		if i == 0 {
			delay += s.LeaderDelay
		}
		t := idle[0]
		idle = idle[1:]
		h, err := host.Open(ctx, host.Config{
			ID:         uint64(i + 1),
			Dir:        filepath.Join(s.Dir, fmt.Sprintf("host-%d", i+1)),
			Members:    peers,
			Durability: s.Durability,

			SegmentBytes: lab.SegmentBytes,
		}, host.WithTransport(t), host.WithFS(disk(delay)), host.WithPipeline(p), host.WithLogger(quiet))
		if err != nil {
			return err // Open has closed t
		}
		c.hosts = append(c.hosts, h)
		for of := range c.groups {
			m := &load.Machine{Share: c.share(of)}
			g, err := openGroup(h, uint64(of+1), m)
			if err != nil {
				return err
			}
			c.groups[of], c.machines[of] = append(c.groups[of], g), append(c.machines[of], m)
		}
	}
	for of, members := range c.groups {
		members[of%s.Hosts].Campaign() // the first group is led by the first host
	}
	return c.awaitLeaders(ctx)
}

// share returns the clients that write to a group.
func (c *cluster) share(group int) load.Share {
	return load.Share{Every: uint32(len(c.groups)), First: uint32(group)}
}

// preparedDisk returns the disk of each host, which takes its segments from a stock of written files. The
// delay is added to each fsync.
func preparedDisk(ctx context.Context, s load.Setup) (func(delay time.Duration) vfs.FS, error) {
	plain := func(delay time.Duration) vfs.FS { return vfs.WithSyncDelay(vfs.OS(), delay) }
	if s.WrittenBytes == 0 {
		return plain, nil
	}
	stock, err := lab.FillStock(ctx, s.Dir, s.Hosts*lab.FilesFor(s.WrittenBytes, lab.SegmentBytes), lab.SegmentBytes)
	if err != nil {
		return nil, err
	}
	return func(delay time.Duration) vfs.FS { return stock.FS(plain(delay)) }, nil
}

// Listen returns a transport for each of hosts 1, 2, … on a free port of 127.0.0.1, and their addresses,
// which all of them know. If it fails, it leaves none open.
func Listen(hosts int) (transports []*tcp.Transport, peers map[uint64]string, err error) {
	defer func() {
		if err != nil {
			for _, t := range transports {
				err = errors.Join(err, t.Close())
			}
			transports = nil
		}
	}()
	peers = make(map[uint64]string, hosts)
	for i := range hosts {
		t, err := tcp.Listen(tcp.Options{ID: uint64(i + 1), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return transports, nil, err
		}
		transports = append(transports, t)
		peers[uint64(i+1)] = t.Addr()
	}
	for _, t := range transports {
		for id, addr := range peers {
			t.SetPeer(id, addr)
		}
	}
	return transports, peers, nil
}

// machineAdapter is a Machine as host.StateMachine.
type machineAdapter struct{ m *load.Machine }

// BorrowsData implements statemachine.Borrower.
func (machineAdapter) BorrowsData() bool { return true }

// Apply implements host.StateMachine.
func (a machineAdapter) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		a.m.ApplyAt(entries[i].Index, entries[i].Pos, entries[i].Data)
	}
	return nil
}

// pollInterval is how often the harness looks at a state that it can only ask for. Nothing is measured
// meanwhile.
const pollInterval = 5 * time.Millisecond

// until calls done again and again until it returns true or an error, or until ctx ends.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// awaitLeaders returns when each group has a leader, which all of its members follow.
func (c *cluster) awaitLeaders(ctx context.Context) error {
	for of, members := range c.groups {
		err := until(ctx, "waiting for the cluster to elect a leader", func() (bool, error) {
			leader := members[0].Status().Leader
			for _, g := range members {
				if err := g.Err(); err != nil {
					return false, err
				}
				if s := g.Status(); s.Leader != leader || s.Committed == 0 {
					return false, nil
				}
			}
			if leader == 0 {
				return false, nil
			}
			c.leaders[of].Set(int(leader - 1))
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Propose implements load.Target.
func (c *cluster) Propose(ctx context.Context, value []byte) error {
	of := 0
	if len(c.groups) > 1 {
		of = int(load.IDOf(value).Client) % len(c.groups)
	}
	return c.leaders[of].Propose(ctx, func(host int) *host.Group { return c.groups[of][host] }, value)
}

// Batches implements load.Batcher. All go to the first group.
func (c *cluster) Batches(limit int) load.Batches {
	return c.leaders[0].Batches(func(host int) *host.Group { return c.groups[0][host] }, limit)
}

// Count adds what a host has counted to a sum: its log, and groups of it.
func Count(sum *load.Counters, h *host.Host, groups ...*host.Group) {
	l := h.LogStats()
	sum.Fsyncs += l.Syncs
	sum.FsyncBytes += l.SyncedBytes
	sum.Appends += l.Appends
	sum.AppendedEntries += l.AppendedEntries
	sum.YoungSegments += l.YoungTails
	sum.LogBytes += l.AppendedBytes
	m := h.Metrics()
	sum.Turns += m.Lanes.Turns
	for _, k := range m.Transport.Kinds {
		sum.SentBytes += k.BytesSent
		sum.Frames += k.FramesSent
	}
	for _, g := range groups {
		s := g.Status()
		sum.Applies += s.AppliedBatches
		sum.AppliedEntries += s.AppliedCommands
	}
}

// Counters implements load.Target.
func (c *cluster) Counters() (sum load.Counters) {
	for i, h := range c.hosts {
		var groups []*host.Group
		for _, members := range c.groups {
			groups = append(groups, members[i])
		}
		Count(&sum, h, groups...)
	}
	return sum
}

// Verify implements load.Target.
func (c *cluster) Verify(ctx context.Context, ledger *load.Ledger) (err error) {
	for of, members := range c.groups {
		err = errors.Join(err, load.VerifyMachines(ctx, c.machines[of], ledger))
		for _, g := range members {
			err = errors.Join(err, g.Err()) // the error of a host that has stopped explains what is missing there
		}
	}
	return err
}

// Close implements load.Target.
func (c *cluster) Close() error { return CloseHosts(c.hosts) }
