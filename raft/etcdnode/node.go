package etcdnode

import (
	"context"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Node is the face that ported code knows; Local is the one implementation here, and tests of ported code have their own.
// All methods may be called from any goroutine. The package documentation says what holds for all of them.
type Node interface {
	// Tick moves the node's time by one. It never blocks.
	Tick()
	// Campaign starts an election now.
	Campaign(ctx context.Context) error
	// Propose offers one command, and waits while no leader is known. nil says that the leader's log has it, or that it is
	// on its way to the leader; neither that it will commit. The node takes ownership of data.
	Propose(ctx context.Context, data []byte) error
	// ProposeConfChange offers a change of members, and waits like Propose. raft.ErrConfChangeRefused says why it cannot be
	// made now. On a follower nil only says that it is on its way to the leader, which may refuse it unheard.
	ProposeConfChange(ctx context.Context, cc raftpb.ConfChangeI) error
	// Step takes a message from a peer, or in asynchronous mode an answer of a worker. It never waits for a leader: a
	// proposal that a peer passes on while none is known is dropped.
	Step(ctx context.Context, msg raftpb.Message) error
	// Ready asks for the next Ready and returns the channel that brings it.
	Ready() <-chan raft.Ready
	// Advance says that the Ready last received is done. Synchronous mode only: in asynchronous mode it panics.
	Advance()
	// ApplyConfChange makes a committed change take effect; see raft.RawNode.ApplyConfChange. The consumer calls it for each
	// between receiving the Ready that carries it and Advance, or before the apply worker's answer is stepped.
	ApplyConfChange(cc raftpb.ConfChangeI) *raftpb.ConfState
	// TransferLeadership asks that transferee become leader. lead is not read: a follower passes the wish on to the leader
	// that it knows. Local.TransferLeader tells what became of it.
	TransferLeadership(ctx context.Context, lead, transferee uint64)
	// ForgetLeader makes a follower forget its leader, without a new term.
	ForgetLeader(ctx context.Context) error
	// ReadIndex asks for an index at which a read may be served; the answer is in a Ready's ReadStates, under rctx, or
	// rctx is in its DroppedReads. raft.ErrReadDropped says that there will be none.
	ReadIndex(ctx context.Context, rctx []byte) error
	// Status returns a copy of what the node knows; after the end, of what it last knew.
	Status() raft.Status
	// ReportUnreachable tells the node that messages to a peer may have been lost.
	ReportUnreachable(id uint64)
	// ReportSnapshot tells a leader what became of a snapshot that it sent; see raft.RawNode.ReportSnapshot.
	ReportSnapshot(id uint64, status raft.SnapshotStatus)
	// Stop ends the node; a second call does nothing. It does not wait for the consumer.
	Stop()
}

var _ Node = (*Local)(nil)

// Start founds a cluster on empty storage with the given peers, of whom this node is one, and starts the node. Every
// founder does it with the same peers in the same order; see raft.RawNode.Bootstrap. A member that joins later, and one whose
// storage holds a configuration already, is restarted instead.
//
// The error says what is wrong with the configuration, the storage or the peers. The plain name is for the function that one
// should use; the names with Node belong to the signatures without an error, which are there for ports.
func Start(c *raft.Config, peers []raft.Peer) (*Local, error) {
	core, err := raft.NewRawNode(c)
	if err != nil {
		return nil, err
	}
	if err := core.Bootstrap(peers); err != nil {
		return nil, err
	}
	return newLocal(c, core), nil
}

// Restart starts a node from what its storage holds. The error says what is wrong with the configuration or the storage.
func Restart(c *raft.Config) (*Local, error) {
	core, err := raft.NewRawNode(c)
	if err != nil {
		return nil, err
	}
	return newLocal(c, core), nil
}

// StartNode is Start with the signature of etcd-io/raft, and like it panics on an error.
func StartNode(c *raft.Config, peers []raft.Peer) Node { return mustStart(Start(c, peers)) }

// RestartNode is Restart with the signature of etcd-io/raft, and like it panics on an error.
func RestartNode(c *raft.Config) Node { return mustStart(Restart(c)) }

func mustStart(n *Local, err error) Node {
	if err != nil {
		panic(err)
	}
	return n
}
