// Package raft is the Raft state machine: messages and ticks go in, a Ready comes out.
//
// It does no I/O, reads no clock, starts no goroutine, takes no lock, writes no log line and draws no random number
// that was not seeded by its caller. The same inputs give the same outputs, always.
//
// # The storage contract
//
// Asynchronous storage writes are the only mode inside; Config.AsyncStorageWrites=false is their emulation at the
// Ready/Advance boundary (advance.go). In asynchronous mode Ready.Messages holds three kinds of message:
//
//   - to a peer: may leave at once;
//   - to LocalAppendThread (MsgStorageAppend): a snapshot, entries and hard state to be made durable, executed in order;
//   - to LocalApplyThread (MsgStorageApply): committed entries for the state machine, executed in order.
//
// The two local queues are unordered between each other. A message's Responses leave only when its work, and all
// before it in its queue, is done — durable, for an append. They may go straight from the worker to a peer, or back
// here by Step. A MsgStorageAppend without Responses need not be durable at once. Nothing that speaks of undurable
// state is among the messages that may leave at once; a request for votes, which tells of a new term and of the own
// vote, is therefore a Response.
//
// After a crash a MsgStorageAppend (in synchronous mode: Snapshot, Entries and HardState of a Ready) has been done whole
// or not at all. Half of one is a log that does not fit its hard state, with which NewRawNode does not start. Storage
// that can be caught in between drops the half, or so much of it that the log is of no later term than the hard state and
// no shorter than its commit index.
//
// The leader's own disk counts towards commit like a follower's, through its own match index, so commit may run ahead
// of it (thesis §10.2.1). Entries are handed out for apply only once they are durable locally.
//
// # Reading order
//
// rawnode.go (the face), gate.go (every input), term.go, follower.go, candidate.go, leader.go, replicate.go,
// commit.go, snapshot.go, membership.go, bootstrap.go, read.go, lease.go, transfer.go, clock.go, forget.go, log.go, unstable.go,
// sizes.go, applying.go, asyncstorage.go (outputs), slab.go, ready.go, advance.go. Beside the way: memorystorage.go,
// describe.go, statustext.go, events.go.
package raft
