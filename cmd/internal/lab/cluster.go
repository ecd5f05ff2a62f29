package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/vfs"
)

// cluster is the real thing as a Target: hosts of package millrace in this process, on loopback TCP, each with its own
// directory on the disk, each applying to a Machine.
type cluster struct {
	hosts    []*host.Host
	machines []*Machine
	leader   atomic.Int32 // index into hosts, of the one that took the last proposal
}

// Pipelines is the registry of everything package pipeline offers.
func Pipelines() Registry {
	r := Registry{}
	for _, p := range pipeline.All {
		r[p.Name()] = clusterUnder(p)
	}
	return r
}

func clusterUnder(p pipeline.Pipeline) OpenFunc {
	return func(ctx context.Context, s Setup) (Target, error) { return openCluster(ctx, s, p) }
}

func openCluster(ctx context.Context, s Setup, p pipeline.Pipeline) (_ Target, err error) {
	quiet := slog.New(slog.DiscardHandler)
	c := &cluster{}
	var idle []*tcp.Transport // not yet owned by a host
	defer func() {
		if err != nil {
			for _, t := range idle {
				err = errors.Join(err, t.Close())
			}
			err = errors.Join(err, c.Close())
		}
	}()
	peers := make(map[uint64]string, s.Nodes)
	for i := range s.Nodes {
		t, err := tcp.Listen(tcp.Options{ID: uint64(i + 1), Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			return nil, err
		}
		idle = append(idle, t)
		peers[uint64(i+1)] = t.Addr()
	}
	for _, t := range idle {
		for id, addr := range peers {
			t.SetPeer(id, addr)
		}
	}
	for i := range s.Nodes {
		fs := vfs.WithSyncDelay(vfs.OS(), s.FsyncDelay)
		if i == 0 {
			fs = vfs.WithSyncDelay(fs, s.LeaderDelay)
		}
		m := &Machine{}
		t := idle[0]
		idle = idle[1:]
		h, err := host.Open(host.Config{
			ID:         uint64(i + 1),
			Dir:        filepath.Join(s.Dir, fmt.Sprintf("host-%d", i+1)),
			Peers:      peers,
			Durability: s.Durability,
		}, machineAdapter{m}, host.WithTransport(t), host.WithFS(fs), host.WithPipeline(p), host.WithLogger(quiet))
		if err != nil {
			return nil, err // it has closed t
		}
		c.hosts, c.machines = append(c.hosts, h), append(c.machines, m)
	}
	c.hosts[0].Group().Campaign()
	return c, c.awaitLeader(ctx)
}

// machineAdapter is a Machine as host.StateMachine.
type machineAdapter struct{ m *Machine }

func (a machineAdapter) Apply(entries []host.Entry) error {
	for i := range entries {
		a.m.Apply(entries[i].Index, entries[i].Data)
	}
	return nil
}

// poll is how often the harness looks at something that it can only ask about; none of it is measured.
const poll = 5 * time.Millisecond

// until asks again and again until done says so, or the context ends.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ticker := time.NewTicker(poll)
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

// awaitLeader returns when a host leads and all follow it.
func (c *cluster) awaitLeader(ctx context.Context) error {
	return until(ctx, "waiting for the cluster to elect a leader", func() (bool, error) {
		leader := c.hosts[0].Group().Status().Leader
		for _, h := range c.hosts {
			if err := h.Group().Err(); err != nil {
				return false, err
			}
			if s := h.Group().Status(); s.Leader != leader || s.Committed == 0 {
				return false, nil
			}
		}
		if leader == 0 {
			return false, nil
		}
		c.leader.Store(int32(leader - 1))
		return true, nil
	})
}

// Propose implements Target. A host that does not lead has not taken the command, so it may be offered to another.
func (c *cluster) Propose(ctx context.Context, value []byte) error {
	for {
		at := c.leader.Load()
		_, err := c.hosts[at].Group().Propose(ctx, value)
		var elsewhere *host.NotLeaderError
		if !errors.As(err, &elsewhere) {
			return err
		}
		if err := c.awaitLeader(ctx); err != nil {
			return err
		}
	}
}

// Counters implements Target.
func (c *cluster) Counters() Counters {
	var sum Counters
	for _, h := range c.hosts {
		l, g := h.LogStats(), h.Group().Status()
		sum.Fsyncs += l.Syncs
		sum.FsyncBytes += l.SyncedBytes
		sum.Appends += l.Appends
		sum.AppendedEntries += l.AppendedEntries
		sum.Applies += g.AppliedBatches
		sum.AppliedEntries += g.AppliedCommands
	}
	return sum
}

// Verify implements Target.
func (c *cluster) Verify(ctx context.Context, ledger *Ledger) error {
	err := CheckMachines(ctx, c.machines, ledger)
	for _, h := range c.hosts {
		err = errors.Join(err, h.Group().Err()) // a host that has stopped explains what it is missing
	}
	return err
}

// Close implements Target.
func (c *cluster) Close() error {
	var errs []error
	for _, h := range c.hosts {
		errs = append(errs, h.Close(context.Background()))
	}
	return errors.Join(errs...)
}
