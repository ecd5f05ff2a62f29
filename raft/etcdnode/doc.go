// Package etcdnode provides etcd-io/raft's Node on top of this repository's RawNode: a node of a group that
// many goroutines may use, with a channel of Readys. It is for programs that are ported from etcd-io/raft;
// new programs use raft.RawNode directly.
//
// To port a program, rewrite its imports: Node has the methods, and StartNode and RestartNode have the
// signatures, of etcd-io/raft v3.6.0. Start and Restart return an error where those two panic, and they
// return a *Local, which has more methods than Node.
//
// # The contract
//
// The consumer. One goroutine receives from Ready(), and calls Ready() for every receive, as `case rd :=
// <-n.Ready()` does: the call tells the node that a Ready is wanted. The goroutine saves, sends and applies
// the Ready, and calls Advance. If a program keeps the channel instead of calling Ready() again, Advance and
// Tick also ask for the next Ready. In asynchronous mode there is no Advance, so a kept channel brings only
// one Ready a tick.
//
// Asynchronous mode (Config.AsyncStorageWrites). The workers answer through Step. Advance must not be called:
// it panics with the raft.BrokenInvariant that names the rule, and stops the node.
//
// A Ready is built when it is wanted, once, and never again: later events are in the next one. A Ready that
// was built and not yet received waits in the channel. At most one waits, and Stop withdraws it.
//
// No call waits for the consumer. Step, Tick, Campaign and all others return when the core has done its part.
// Two calls wait for something else: while no leader is known, Propose and ProposeConfChange wait until there
// is one, or until ctx or the node ends. At most MaxWaitingProposals with at most MaxWaitingBytes in total
// may wait; one more is refused with raft.ErrProposalDropped.
//
// A consumer that falls behind. While a Ready waits to be received or advanced, or the consumer has not
// asked for one, the node accepts MaxBacklogBytes of input. It refuses further input. Step, Campaign and
// ReadIndex return ErrBehind (to Raft this is a lost message), proposals return raft.ErrProposalDropped.
// The answers of the node's own workers are always accepted. Ticks wait.
//
// Ticks never block, not even while Storage is read. If the node is idle, a short-lived goroutine runs the
// tick, and every later call sees its effect. Ticks are not lost without notice. Ticks that arrive while
// the node is busy or its consumer is behind are counted. They run before the next input, at most
// 2·ElectionTick at a time. By then each clock of the core has expired, a lease for reads included, so more
// ticks would change nothing. Config.Logger is told how many ticks were dropped.
//
// Errors. Propose, ProposeConfChange, Step, Campaign, ForgetLeader and ReadIndex return the errors of the
// core (raft.ErrProposalDropped, raft.ErrConfChangeRefused, raft.PeerError, …). If ctx ends first, they
// return ctx.Err(): the node has not begun the input, and a proposal will surely not commit.
//
// The end. Stop, or a storage failure (raft.RawNode.Err), ends the node, once: Local.Done is closed, every
// waiting call returns, and all of these calls return raft.ErrStopped or the failure. The channel of Readys
// stays open and empty. Status and ApplyConfChange still work, for a consumer that has to finish the Ready
// that it received.
package etcdnode
