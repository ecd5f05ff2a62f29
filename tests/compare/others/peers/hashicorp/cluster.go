package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// The settings are the library's defaults, except these, which its documentation and its largest user give
// for throughput: batches of up to a thousand entries, on the way in (BatchApplyCh) and to the state machine
// (BatchingFSM), and a cache in front of the log, without which every entry is read back from its file for
// each follower.
const (
	maxAppendEntries = 1024
	cachedEntries    = 2048
	connections      = 3 // of a transport to each peer
	callTimeout      = 10 * time.Second
)

// cluster is a cluster of nodes in this process, as a peer.Target.
type cluster struct {
	nodes  []*node
	leader atomic.Int32 // index of the node that takes proposals
}

// node is one voter, and its state machine.
type node struct {
	raft      *raft.Raft
	store     store
	transport *raft.NetworkTransport
	fsm
}

func opener(openStore storeFunc) peer.OpenFunc {
	return func(ctx context.Context, s peer.Setup) (peer.Target, error) {
		c := &cluster{}
		if err := c.start(ctx, s, openStore); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
}

func (c *cluster) start(ctx context.Context, s peer.Setup, openStore storeFunc) error {
	stock := &peer.Stock{}
	if s.WrittenBytes > 0 {
		var err error
		files := s.Hosts * peer.FilesFor(s.WrittenBytes, int64(wal.DefaultSegmentSize))
		if stock, err = peer.FillStock(ctx, s.Dir, files, int64(wal.DefaultSegmentSize)); err != nil {
			return err
		}
	}
	var members []raft.Server
	for i := range s.Hosts {
		n := &node{}
		c.nodes = append(c.nodes, n)
		dir := filepath.Join(s.Dir, fmt.Sprintf("node-%d", i+1))
		if err := makeDir(dir); err != nil {
			return err
		}
		var err error
		if n.store, err = openStore(dir, stock); err != nil {
			return err
		}
		if n.transport, err = raft.NewTCPTransport("127.0.0.1:0", nil, connections, callTimeout, io.Discard); err != nil {
			return err
		}
		members = append(members, raft.Server{ID: serverID(i), Address: n.transport.LocalAddr()})
	}
	for i, n := range c.nodes {
		cache, err := raft.NewLogCache(cachedEntries, n.store)
		if err != nil {
			return err
		}
		config, snapshots := configOf(i), raft.NewDiscardSnapshotStore()
		err = raft.BootstrapCluster(config, cache, n.store, snapshots, n.transport, raft.Configuration{Servers: members})
		if err != nil {
			return err
		}
		if n.raft, err = raft.NewRaft(config, &n.fsm, cache, n.store, snapshots, n.transport); err != nil {
			return err
		}
	}
	return c.awaitLeader(ctx)
}

func serverID(i int) raft.ServerID { return raft.ServerID(fmt.Sprint(i + 1)) }

func configOf(i int) *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = serverID(i)
	config.Logger = hclog.NewNullLogger()
	config.MaxAppendEntries = maxAppendEntries
	config.BatchApplyCh = true
	config.SnapshotThreshold = 1 << 62 // none: no system here takes snapshots
	return config
}

// awaitLeader returns when a node leads and all have learned of it.
func (c *cluster) awaitLeader(ctx context.Context) error {
	poll := time.NewTicker(peer.VerifyPoll)
	defer poll.Stop()
	for {
		leads := slices.IndexFunc(c.nodes, func(n *node) bool { return n.raft.State() == raft.Leader })
		if leads >= 0 && !slices.ContainsFunc(c.nodes, func(n *node) bool { return !n.knows(serverID(leads)) }) {
			c.leader.Store(int32(leads))
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a leader: %w", ctx.Err())
		}
	}
}

func (n *node) knows(leader raft.ServerID) bool {
	_, id := n.raft.LeaderWithID()
	return id == leader
}

// Propose implements peer.Target. A node that does not lead has not taken the command.
func (c *cluster) Propose(ctx context.Context, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := c.nodes[c.leader.Load()].raft.Apply(value, 0).Error()
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
		for i, n := range c.nodes {
			if n.raft.State() == raft.Leader {
				c.leader.Store(int32(i))
			}
		}
	}
	return err
}

// Counters implements peer.Target.
func (c *cluster) Counters() peer.Counters {
	counters := peer.Counters{Fsyncs: fsyncs.Load()}
	for _, n := range c.nodes {
		counters.Applies += n.batches.Load()
		counters.AppliedEntries += n.applied.Load()
	}
	return counters
}

// Verify implements peer.Target.
func (c *cluster) Verify(ctx context.Context, ledger *peer.Ledger) error {
	var machines []*peer.Machine
	for _, n := range c.nodes {
		machines = append(machines, &n.machine)
	}
	return peer.VerifyMachines(ctx, machines, ledger)
}

// Close implements peer.Target.
func (c *cluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		if n.raft != nil {
			errs = append(errs, n.raft.Shutdown().Error())
		}
	}
	for _, n := range c.nodes {
		if n.transport != nil {
			errs = append(errs, n.transport.Close())
		}
		if n.store.close != nil {
			errs = append(errs, n.store.close())
		}
	}
	return errors.Join(errs...)
}
