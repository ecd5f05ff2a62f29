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
// here by Step. A MsgStorageAppend without Responses need not be durable at once. No message that may leave at once makes
// a promise that the disk does not hold yet; a request for votes, which tells of a new term and of the node's vote for
// itself, is therefore a Response. (Two messages that leave at once carry undurable state and promise nothing by it: the
// answer to a heartbeat carries a term, the request for a pre-vote the last entry.)
//
// # A write is atomic
//
// A write is one MsgStorageAppend; in synchronous mode it is the Snapshot, Entries and HardState of one Ready. After a
// crash, storage holds all of a write or nothing of it, and it holds nothing of a write if it lacks an earlier one. Half of
// a write is not noticed and does harm:
//
//   - The new commit index without the entries that the write puts in place of others: the node takes the old entries for
//     committed, applies them, and from then on refuses the leader that has the right ones.
//   - Entries without the commit index beside them: the node forgets that a change of members is committed although it
//     holds the entry of the next change, counts votes by a configuration that is two changes old, and can be the second
//     leader of a term (membership.go has the invariant).
//
// Storage that cannot be atomic does the parts of a write in this order, and leaves a prefix of them after a crash:
//
//  1. term and vote, beside the commit index of the write before;
//  2. the snapshot, in place of the whole log;
//  3. the truncation of the log from the first entry's index on;
//  4. the whole hard state, with the commit index;
//  5. the entries, in order.
//
// When it recovers, it lowers the commit index to the end of the log. What a write truncates conflicts with the log of an
// elected leader, so it is not committed, and to lose it without its replacement does no harm.
//
// Several messages may become one write: the entries and the hard state that all of them leave, one after the other. They
// must not become several writes with one hard state among them, which is half a write again. A write with no new term, no new
// vote and no entry of a membership change may go without its hard state; the commit index then goes with a later write.
//
// # A full disk may be overtaken by a vote
//
// There is one exception to the order of the append queue. While storage refuses entries for want of room, it may write
// term and vote ahead of them: the newest that are queued, beside the commit index of the last write that it took, never a
// newer one and never one lowered to the end of the log. (A newer one may speak of entries that were refused and are to
// replace what the log still holds; the old entries are at the same indexes, so lowering it does not help.) When that is
// durable, these Responses may leave ahead of the rest: MsgVoteResp and MsgPreVoteResp to peers, and an acknowledgement of
// nothing (MsgAppResp with Index 0 and without Reject). A vote is given to a log that is as good as this node's log in
// memory, which has all that the node has ever acknowledged; it does not matter for the vote whether the rest is written.
//
// All else stays, in its order: the entries, what speaks of them, and MsgVote with the node's vote for itself, as the
// request names the last entry. So a node with a full disk votes and does not campaign; its application should give it
// TickQuiesced instead of Tick, or it raises its term for nothing. When there is room, a refused write keeps its own commit
// index, and takes the term and vote that have overtaken it: they must never go back.
//
// A node that judges candidates by entries which it cannot write may be in the way of the only one that can be elected. Its
// application may start it anew from storage (NewRawNode), as after a crash: what was refused is forgotten then.
//
// # Commit and apply
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
