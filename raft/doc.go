// Package raft is the Raft state machine: messages and ticks go in, a Ready comes out.
//
// It does no I/O, reads no clock, starts no goroutine, takes no lock and writes nothing. What an operator
// may want to read goes to Config.Logger, if the application sets it. Its only random numbers, the election
// timeouts, come from a seed in Config. The same inputs always give the same outputs.
//
// # Usage
//
// An application runs one loop for a RawNode. It passes in ticks, proposals and the messages of peers.
// Then, while HasReady, it takes a Ready, saves its entries and hard state, sends its messages, applies its
// committed entries, and calls Advance. Example is such a loop that compiles and runs. With
// Config.AsyncStorageWrites the loop only distributes the messages of a Ready, and storage workers answer
// through Step; the contract for them follows.
//
// # The storage contract
//
// Asynchronous storage writes are the only mode inside; Config.AsyncStorageWrites=false emulates the
// synchronous mode at the Ready/Advance boundary (advance.go). In asynchronous mode Ready.Messages holds
// three kinds of messages:
//
//   - to a peer: it may leave at once;
//   - to LocalAppendThread (MsgStorageAppend): a snapshot, entries and hard state to make durable, executed
//     in order;
//   - to LocalApplyThread (MsgStorageApply): committed entries for the state machine, or a range of them
//     (Config.ApplyRanges), executed in order.
//
// The two local queues are not ordered relative to each other. The Responses of a message leave only when
// its work, and all work before it in its queue, is done (for an append: durable). They may go straight
// from the worker to a peer, or back to this node through Step. A MsgStorageAppend without Responses need
// not be durable at once. No message that may leave at once makes a promise that the disk does not hold
// yet. A request for votes announces a new term and the node's vote for itself, so it is a Response. (Two
// messages that leave at once carry undurable state, but promise nothing. The answer to a heartbeat carries
// a term, and the request for a pre-vote carries the last entry.)
//
// # A write is atomic
//
// A write is one MsgStorageAppend; in synchronous mode it is the Snapshot, Entries and HardState of one
// Ready. After a crash, storage holds all of a write or nothing of it, and it holds nothing of a write if it
// lacks an earlier one. Half a write would go unnoticed and do harm:
//
//   - The new commit index without the entries that replace others: the node takes the old entries for
//     committed and applies them. From then on it refuses the leader that has the right entries.
//   - The entries without the commit index that belongs to them: the node has the entry of the next
//     membership change, and forgets that the change before is committed. It counts votes by a
//     configuration two changes old, and can become the second leader of a term (membership.go has the
//     invariant).
//
// Storage that cannot be atomic does the parts of a write in this order, and after a crash holds a prefix of
// them:
//
//  1. term and vote, with the commit index of the write before;
//  2. the snapshot, in place of the whole log;
//  3. the truncation of the log from the first entry's index on;
//  4. the whole hard state, with the commit index;
//  5. the entries, in order.
//
// At recovery it lowers the commit index to the end of the log. Truncated entries conflict with the log of an
// elected leader, so they are not committed, and losing them without their replacement does no harm.
//
// Several messages may become one write: their entries one after the other, and the last hard state. They
// must not become several writes with one hard state among them, which would be half a write again. A write
// may go without its hard state if it has no new term, no new vote and no entry of a membership change. The
// commit index then goes with a later write.
//
// # A full disk may be overtaken by a vote
//
// There is one exception to the order of the append queue. While storage refuses entries for lack of space,
// it may write term and vote ahead of them: the newest that are queued. With them goes the commit index of
// the last write that it accepted, never a newer one, and not lowered to the end of the log. (A newer one
// may be about refused entries that replace what the log still holds. The old entries have the same
// indexes, so lowering the commit index does not help.) When that is durable, these Responses may leave
// ahead of the rest: MsgVoteResp and MsgPreVoteResp to peers. So may an acknowledgement of nothing
// (MsgAppResp with Index 0 and without Reject). A node votes for candidates whose log is as good as its own
// log in memory. That log has everything that the node ever acknowledged, so it does not matter for the
// vote whether the rest is written.
//
// Everything else keeps its order: the entries, the messages about them, and MsgVote with the node's vote for
// itself, because the request names the last entry. So a node with a full disk votes and does not campaign;
// its application should call TickQuiesced instead of Tick, or the node raises its term for nothing. When
// there is space again, a refused write keeps its own commit index but takes the term and vote that have
// overtaken it: these must never go back.
//
// A node that compares candidates with entries beyond its disk may block the only candidate that can win.
// Its application may restart it from storage (NewRawNode), as after a crash; the refused entries are
// forgotten then.
//
// # Reads of the log may take time
//
// Storage.Entries may answer ErrEntriesPending, so that a slow disk does not hold up an input. Then only the
// follower that needs the entries waits, or the apply worker, until RawNode.EntriesArrived (storageread.go).
// Storage.Term must not wait for a disk, and NewRawNode needs its entries at once.
//
// # Commit and apply
//
// The leader's own disk counts towards commit like a follower's, through its own match index, so commit may
// run ahead of it (thesis §10.2.1). Entries are handed out for apply only once they are durable locally. A
// volatile state machine (Config.ApplyUnstable) gets them when they are committed, but a membership entry,
// and what follows it, only when that entry is durable. Such a state machine begins empty, or from a
// snapshot, after a restart, which forgets the entry and its effect together. A snapshot contains only what
// is durable here.
//
// # Reading order
//
// The API is rawnode.go; every message passes sender.go and gate.go. Elections and roles: term.go,
// follower.go, candidate.go, leader.go, authority.go, tick.go, forget.go, transfer.go. Replication:
// replicate.go, commit.go, snapshot.go, membership.go, bootstrap.go. Reads: read.go, lease.go. The log:
// log.go, unstable.go, entryarray.go, sizes.go, changes.go, storageread.go, applying.go. What leaves:
// outbox.go, asyncstorage.go, messagearena.go, ready.go, advance.go. Aside: memorystorage.go, describe.go,
// statustext.go, logger.go, fifo.go.
package raft
