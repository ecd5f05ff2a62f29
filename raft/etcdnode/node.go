package etcdnode

import (
	"context"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Node is the interface that ported code uses. Local implements it; the tests of ported code may have their
// own implementations. Any goroutine may call the methods. The package documentation says what holds for all
// of them.
type Node interface {
	// Tick advances the node's clock by one tick. It never blocks.
	Tick()
	// Campaign starts an election now.
	Campaign(ctx context.Context) error
	// Propose proposes one command. It waits while no leader is known. nil means that the leader's log has
	// the command, or that it is on its way there. It may still not commit. The node takes ownership of
	// data.
	Propose(ctx context.Context, data []byte) error
	// ProposeConfChange proposes a membership change, and waits like Propose. raft.ErrConfChangeRefused says
	// why the change cannot be made now. On a follower, nil only means that the change is on its way to the
	// leader, which may refuse it without notice.
	ProposeConfChange(ctx context.Context, cc raftpb.ConfChangeI) error
	// Step handles a message from a peer, or in asynchronous mode an answer of a worker. It never waits for a
	// leader: a proposal that a peer forwards while no leader is known is dropped.
	Step(ctx context.Context, msg raftpb.Message) error
	// Ready asks for the next Ready and returns the channel on which it arrives.
	Ready() <-chan raft.Ready
	// Advance tells the node that the Ready received last has been processed. It is for synchronous mode
	// only: in asynchronous mode it panics.
	Advance()
	// ApplyConfChange makes a committed change take effect; see raft.RawNode.ApplyConfChange. The consumer
	// calls it for each change after receiving the Ready that carries it and before Advance, or before the
	// apply worker's answer is stepped.
	ApplyConfChange(cc raftpb.ConfChangeI) *raftpb.ConfState
	// TransferLeadership asks that transferee become leader. lead is not used: a follower forwards the
	// request to the leader that it knows. Local.TransferLeader returns whether the transfer was begun.
	TransferLeadership(ctx context.Context, lead, transferee uint64)
	// ForgetLeader makes a follower forget its leader, without a new term.
	ForgetLeader(ctx context.Context) error
	// ReadIndex asks for an index at which a read may be served. The answer is in a Ready, under rctx: in its
	// ReadStates, or in its DroppedReads if there will be no answer. raft.ErrReadDropped also says that there
	// will be none.
	ReadIndex(ctx context.Context, rctx []byte) error
	// Status returns a copy of what the node knows; after the end, of what it last knew.
	Status() raft.Status
	// ReportUnreachable tells the node that messages to a peer may have been lost.
	ReportUnreachable(id uint64)
	// ReportSnapshot tells a leader what happened to a snapshot that it sent to a member; see
	// raft.RawNode.ReportSnapshot.
	ReportSnapshot(id uint64, status raft.SnapshotStatus)
	// Stop ends the node. A second call does nothing. It does not wait for the consumer.
	Stop()
}

var _ Node = (*Local)(nil)

// Start founds a cluster on empty storage with the given peers, of which this node is one, and starts the
// node. Every founder does so with the same peers in the same order; see raft.RawNode.Bootstrap. Use Restart
// for a member that joins later, and for a node whose storage already holds a configuration.
//
// The error says what is wrong with the configuration, the storage or the peers. Start and Restart are the
// functions to use; StartNode and RestartNode have the signatures without an error, for ported programs.
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

// Restart starts a node from what its storage holds. The error says what is wrong with the configuration or
// the storage.
func Restart(c *raft.Config) (*Local, error) {
	core, err := raft.NewRawNode(c)
	if err != nil {
		return nil, err
	}
	return newLocal(c, core), nil
}

// StartNode is Start with the signature of etcd-io/raft. Like the original it panics on an error.
func StartNode(c *raft.Config, peers []raft.Peer) Node { return mustStart(Start(c, peers)) }

// RestartNode is Restart with the signature of etcd-io/raft. Like the original it panics on an error.
func RestartNode(c *raft.Config) Node { return mustStart(Restart(c)) }

func mustStart(n *Local, err error) Node {
	if err != nil {
		panic(err)
	}
	return n
}
