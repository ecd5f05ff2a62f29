// Package node is etcd-io/raft's Node over the RawNode of this repository: a node of a group that many goroutines may use,
// with a channel of Readys. It is for those who port; what is new here stands on raft.RawNode directly.
//
// A port is a rewrite of imports: Node has the methods, and StartNode and RestartNode the signatures, of etcd-io/raft v3.6.0.
// Start and Restart return an error where those panic, and a *Local, which knows more than Node.
//
// # The contract
//
// Consumer. One goroutine receives from Ready(), calling it for every receive as `case rd := <-n.Ready()` does: that call
// is how the node learns that a Ready is wanted. It saves, sends, applies, and calls Advance. Where the channel is kept
// instead, Advance and Tick stand in for the call; in asynchronous mode there is no Advance, so there a kept
// channel brings one Ready a tick.
//
// Asynchronous mode (Config.AsyncStorageWrites). The workers answer by Step; Advance must not be called: it panics with the
// raft.BrokenInvariant that names the rule, and stops the node.
//
// A Ready is built when it is wanted, once, and never again: what comes later is in the next. One that was built and not yet
// received waits in the channel, one at most, and is withdrawn by Stop.
//
// No call waits for the consumer. Step, Tick, Campaign and all others return when the core has done its part. One kind
// waits, and not for the consumer: Propose and ProposeConfChange, while no leader is known, until there is one, or
// ctx ends, or the node does. At most MaxWaitingProposals of MaxWaitingBytes in all wait; one more is raft.ErrProposalDropped.
//
// A consumer that falls behind. While a Ready waits to be received or advanced, or none was asked for, and inputs of
// MaxBacklogBytes have come since the last one, further ones are refused:
// Step, Campaign and ReadIndex with ErrBehind (a lost message, to Raft), proposals with raft.ErrProposalDropped. The
// answers of the node's own workers are always taken. Ticks wait.
//
// Ticks never block, not even while Storage is read: a tick that finds the node idle is run by a goroutine that ends with it,
// and every later call finds it done. They are not lost in silence: those that come while the node is busy or its consumer is behind are
// counted and run before the next input, at most 2·ElectionTick at a time. Each clock of the core has run out by then, a
// lease for reads included, so more would say nothing. Config.Logger is told how many were too many.
//
// Errors. Propose, ProposeConfChange, Step, Campaign, ForgetLeader and ReadIndex return what the core says
// (raft.ErrProposalDropped, raft.ErrConfChangeRefused, raft.PeerError, …). When ctx ends first, ctx.Err(): the
// input was not begun, a proposal will surely not commit.
//
// The end. Stop, or a storage failure (raft.RawNode.Err), ends the node, once: Local.Done is closed, whoever waits returns,
// and all of these calls return raft.ErrStopped, or the failure. The channel of Readys stays open and empty. Status and
// ApplyConfChange go on working, for a consumer that has still to finish what it took.
package etcdnode
