package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// node is one voter. Its goroutine (run) owns rn; everything comes to it through the inbox.
type node struct {
	c        *cluster
	id       uint64
	rn       *raft.RawNode
	store    storage
	wal      *wal.WAL
	machine  peer.Machine
	pipeline pipeline
	links    map[uint64]*link // by the id of the other node; complete before run starts
	leads    atomic.Bool

	mu        sync.Mutex
	messages  []*pb.Message
	proposals []*pb.Entry
	elect     bool
	closed    bool
	wake      chan struct{}

	appends, appended, applies, applied atomic.Uint64
}

// The library is set up as rafttoy does: messages without a bound on their size, thousands in flight,
// pre-vote, no forwarding. A leader that hears no quorum steps down, as in etcd.
const (
	tickInterval   = 100 * time.Millisecond
	electionTicks  = 30
	heartbeatTicks = 1
	inflight       = 4096

	// The library's storage in memory keeps this many applied entries for followers, and is compacted when it
	// has twice as many.
	keptEntries = 20_000
)

func newNode(c *cluster, id uint64, voters []uint64, dir string, written int64) (*node, error) {
	n := &node{c: c, id: id, store: storage{raft.NewMemoryStorage(), voters}, links: map[uint64]*link{}, wake: make(chan struct{}, 1)}
	var err error
	if n.wal, err = createWAL(dir, written); err != nil {
		return nil, err
	}
	n.rn, err = raft.NewRawNode(&raft.Config{
		ID: id, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, Storage: &n.store,
		MaxSizePerMsg: math.MaxUint64, MaxInflightMsgs: inflight, PreVote: true, CheckQuorum: true, DisableProposalForwarding: true,
		AsyncStorageWrites: c.async, Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err != nil {
		return nil, errors.Join(err, n.wal.Close())
	}
	return n, nil
}

// InitialState implements raft.Storage: an empty log, and the voters.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return &pb.HardState{}, &pb.ConfState{Voters: s.voters}, nil
}

// receive puts a message into the inbox: a peer's, or the answer of a storage worker.
func (n *node) receive(m *pb.Message) {
	n.mu.Lock()
	n.messages = append(n.messages, m)
	n.mu.Unlock()
	notify(n.wake)
}

// propose puts a value into the inbox, or returns false when the node has stopped.
func (n *node) propose(value []byte) bool {
	e := &pb.Entry{Data: value}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.proposals = append(n.proposals, e)
	notify(n.wake)
	return true
}

func (n *node) campaign() {
	n.mu.Lock()
	n.elect = true
	n.mu.Unlock()
	notify(n.wake)
}

// run is the node's goroutine.
func (n *node) run() error {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case <-n.wake:
		case <-ticker.C:
			n.rn.Tick()
		case <-n.c.quit:
			return nil
		}
		if n.c.many {
			runtime.Gosched() // lets clients that are ready add their writes first, as in every other child
		}
		if err := n.step(); err != nil {
			return err
		}
		for n.rn.HasReady() {
			rd := n.rn.Ready()
			if rd.SoftState != nil {
				n.leads.Store(rd.RaftState == raft.StateLeader)
				n.c.lead(n.id, n.leads.Load())
			}
			if !raft.IsEmptySnap(rd.Snapshot) {
				return fmt.Errorf("node %d was sent a snapshot, and this cluster makes none", n.id)
			}
			if err := n.pipeline.handle(rd); err != nil {
				return err
			}
		}
		if err := n.compact(); err != nil {
			return err
		}
	}
}

// step steps what is in the inbox: all proposals as one message.
func (n *node) step() error {
	n.mu.Lock()
	messages, proposals, elect := n.messages, n.proposals, n.elect
	n.messages, n.proposals, n.elect = nil, nil, false
	n.mu.Unlock()
	if elect {
		if err := n.rn.Campaign(); err != nil {
			return err
		}
	}
	for _, m := range messages {
		if err := n.rn.Step(m); err != nil {
			return fmt.Errorf("node %d, %v: %w", n.id, m.GetType(), err)
		}
	}
	if len(proposals) == 0 {
		return nil
	}
	err := n.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(n.id), Entries: proposals})
	if errors.Is(err, raft.ErrProposalDropped) {
		for _, e := range proposals {
			n.c.waiters.Answer(e.GetData(), err)
		}
		return nil
	}
	return err
}

// send passes messages to other nodes on.
func (n *node) send(m *pb.Message) {
	if m.GetTo() == n.id {
		n.receive(m)
		return
	}
	n.links[m.GetTo()].push(m)
}

// save makes entries and hard state durable with one write of the log.
func (n *node) save(st *pb.HardState, entries []*pb.Entry) error {
	if len(entries) > 0 {
		n.appends.Add(1)
		n.appended.Add(uint64(len(entries)))
	}
	return n.wal.Save(st, entries)
}

// remember puts durable entries and hard state into the library's storage.
func (n *node) remember(st *pb.HardState, entries []*pb.Entry) error {
	if !raft.IsEmptyHardState(st) {
		if err := n.store.SetHardState(st); err != nil {
			return err
		}
	}
	return n.store.Append(entries)
}

// answer tells the clients of committed entries.
func (n *node) answer(committed []*pb.Entry) {
	if !n.leads.Load() {
		return
	}
	for _, e := range committed {
		if len(e.GetData()) > 0 {
			n.c.waiters.Answer(e.GetData(), nil)
		}
	}
}

func (n *node) apply(committed []*pb.Entry) {
	if len(committed) == 0 {
		return
	}
	for _, e := range committed {
		n.machine.Apply(e.GetIndex(), e.GetData())
	}
	n.applies.Add(1)
	n.applied.Add(uint64(len(committed)))
}

// compact drops applied entries that no follower needs from the storage in memory.
func (n *node) compact() error {
	first, err := n.store.FirstIndex()
	if err != nil {
		return err
	}
	through := n.machine.Applied()
	if through < first+2*keptEntries {
		return nil
	}
	through -= keptEntries
	if n.leads.Load() {
		for _, progress := range n.rn.Status().Progress {
			through = min(through, progress.Match)
		}
	}
	if through < first {
		return nil
	}
	return n.store.Compact(through)
}

// stop ends what waits for the node. The cluster's quit ends run.
func (n *node) stop() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	for _, l := range n.links {
		l.close()
	}
}
