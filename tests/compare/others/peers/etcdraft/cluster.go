package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/raft/v3"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// cluster is a cluster of nodes in this process, as a peer.Target.
type cluster struct {
	nodes   []*node
	waiters peer.Waiters
	leader  atomic.Uint64 // id of the node that leads, 0: none
	many    bool          // more than one write may be outstanding
	async   bool          // the library is in its mode of asynchronous storage writes

	once   sync.Once
	quit   chan struct{}
	failed atomic.Pointer[error] // why the cluster has stopped
	wg     sync.WaitGroup
}

var errClosed = errors.New("the cluster is closed")

func opener(name string) peer.OpenFunc {
	return func(ctx context.Context, s peer.Setup) (peer.Target, error) {
		c := &cluster{quit: make(chan struct{}), many: s.InFlight > 1, async: name == "async"}
		if err := c.start(ctx, s, pipelines[name]); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
}

func (c *cluster) start(ctx context.Context, s peer.Setup, p func(*node) pipeline) error {
	ids := make([]uint64, s.Hosts)
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	for _, id := range ids {
		n, err := newNode(c, id, ids, filepath.Join(s.Dir, fmt.Sprintf("node-%d", id)), s.WrittenBytes)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.connect(); err != nil {
		return err
	}
	for _, n := range c.nodes {
		n.pipeline = p(n)
		for id, l := range n.links {
			c.spawn(func() error { return l.send(c.quit) })
			c.spawn(func() error { return l.receive(c.nodes[id-1], c.quit) })
		}
	}
	for _, n := range c.nodes {
		c.spawn(n.run)
	}
	c.nodes[0].campaign()
	return c.awaitLeader(ctx)
}

// spawn starts a goroutine whose error stops the cluster.
func (c *cluster) spawn(f func() error) {
	c.wg.Go(func() {
		if err := f(); err != nil {
			c.stop(err)
		}
	})
}

// connect gives each node a connection to each other one.
func (c *cluster) connect() error {
	for _, to := range c.nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		for _, from := range c.nodes {
			if from == to {
				continue
			}
			out, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return errors.Join(err, listener.Close())
			}
			in, err := listener.Accept()
			if err != nil {
				return errors.Join(err, out.Close(), listener.Close())
			}
			from.links[to.id] = &link{out: out, in: in, wake: make(chan struct{}, 1)}
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	return nil
}

// awaitLeader returns when a node leads and all have committed its first entry.
func (c *cluster) awaitLeader(ctx context.Context) error {
	poll := time.NewTicker(peer.VerifyPoll)
	defer poll.Stop()
	for {
		behind := slices.ContainsFunc(c.nodes, func(n *node) bool { return n.machine.Applied() == 0 })
		if !behind && c.leader.Load() != 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-c.quit:
			return *c.failed.Load()
		case <-ctx.Done():
			return fmt.Errorf("waiting for a leader: %w", ctx.Err())
		}
	}
}

var errNoLeader = errors.New("no node leads at the moment")

// Propose implements peer.Target. Close and a change of the leader answer every client.
func (c *cluster) Propose(ctx context.Context, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leader := c.leader.Load()
	if leader == 0 {
		return errNoLeader
	}
	answer := c.waiters.Add(value)
	if !c.nodes[leader-1].propose(value) {
		c.waiters.Answer(value, errClosed)
	}
	err := <-answer
	peer.PutAnswer(answer)
	return err
}

// lead notes what a node says of the leadership. Clients that wait for a leader that is none any more do not
// learn what happened to their writes.
func (c *cluster) lead(id uint64, leads bool) {
	if leads {
		c.leader.Store(id)
		return
	}
	if c.leader.CompareAndSwap(id, 0) {
		c.waiters.Fail(errNoLeader)
	}
}

// stop stops all nodes. The first error is what Propose and Verify return from then on.
func (c *cluster) stop(err error) {
	c.once.Do(func() {
		c.failed.Store(&err)
		close(c.quit)
		for _, n := range c.nodes {
			n.stop()
		}
		c.waiters.Fail(err)
	})
}

// Counters implements peer.Target. The fsyncs are those that etcd's log counts, of all nodes.
func (c *cluster) Counters() peer.Counters {
	counters := peer.Counters{Fsyncs: fsyncs()}
	for _, n := range c.nodes {
		counters.Appends += n.appends.Load()
		counters.AppendedEntries += n.appended.Load()
		counters.Applies += n.applies.Load()
		counters.AppliedEntries += n.applied.Load()
	}
	return counters
}

// fsyncs reads etcd's metric, which counts each fsync of a segment and of the directory.
func fsyncs() uint64 {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return 0
	}
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "etcd_disk_wal_fsync_duration_seconds" })
	if at < 0 {
		return 0
	}
	return families[at].GetMetric()[0].GetHistogram().GetSampleCount()
}

// Verify implements peer.Target.
func (c *cluster) Verify(ctx context.Context, ledger *peer.Ledger) error {
	var machines []*peer.Machine
	for _, n := range c.nodes {
		machines = append(machines, &n.machine)
	}
	err := peer.VerifyMachines(ctx, machines, ledger)
	if failed := c.failed.Load(); failed != nil {
		err = errors.Join(err, *failed)
	}
	return err
}

// Close implements peer.Target.
func (c *cluster) Close() error {
	c.stop(errClosed)
	c.wg.Wait()
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.wal.Close())
	}
	return errors.Join(errs...)
}

// storage is the library's own storage in memory, with the members that the cluster starts with.
type storage struct {
	*raft.MemoryStorage
	voters []uint64
}
