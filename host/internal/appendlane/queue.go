package appendlane

import (
	"errors"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Queue is what one group has for the append lane (lane.go), and what the lane knows of the group.
//
// The messages of a round become one wal.Write with one hard state (write.go). A message with only a commit
// index is not written. The index stays in memory, and goes with a later write (DurableState).
//
// A full disk is not an error: what was taken waits, with everything behind it, and is tried again at the
// next tick. Only term and vote overtake it (hardstate.go). Other groups go on.
type Queue struct {
	workqueue.Queue
	Full atomic.Bool // the disk refuses what was taken; the lane says so

	group  uint64
	client Client
	log    GroupLog

	rounds atomic.Uint64 // that were completed
	forget atomic.Bool   // what it refuses must be forgotten (discard.go)

	compact atomic.Uint64 // the log must be compacted through here (compact.go); 0: it need not

	fullSince   atomic.Int64          // in ticks that were not missed
	fullBecause atomic.Pointer[error] // what the log said

	// Guarded by the lock of the lane.
	ready   sched.Place[*Queue]
	leaving atomic.Bool // the group is closed; only read without the lock
	deletes bool        // and must be deleted from the log
	refused error       // why it was not

	// Owned by the lane's RunOnce.
	installing *install         // of the snapshot that the next message carries; nil: not begun
	installed  *raftpb.Snapshot // the same, and its message may be written; nil: it may not
	joint      round            // what was taken, as writes
	round      []raftpb.Message // written, to be synced and answered
	roundBytes int64
	inRound    bool             // it is in the lane's round
	hard       raftpb.HardState // as last taken
	durable    DurableState
	deleted    bool // and the log has it
	gone       bool
}

// Client is the group of a queue. Its methods are called on the lane, without a lock, and wait for nothing.
type Client interface {
	// Appended says that the log has more entries.
	Appended()
	// Answer takes answers of the lane for the core. It may leave its seat to be woken.
	Answer(answers []raftpb.Message, woken *sched.Woken)
	// DiskFull says that the disk refuses what the group has queued. It is said once, until there is space.
	DiskFull(err error)
	// Restore begins to restore the state from a snapshot. What was handed to the state machine before comes
	// first. restored may be called on any goroutine.
	Restore(s *raftpb.Snapshot, restored func())
	// Discarded answers Discard.
	Discarded(Outcome)
	// Fail stops the group: its write is invalid.
	Fail(err error)
	// Released says that the lane does nothing for the group any more.
	Released()
}

// GroupLog is the log of one group.
type GroupLog interface{ FirstIndex() uint64 }

// NewQueue returns the queue of a group whose log has a hard state. b may be nil.
func (l *Lane) NewQueue(group uint64, c Client, log GroupLog, hard raftpb.HardState, b *budget.Budget) *Queue {
	q := &Queue{group: group, client: c, log: log, hard: hard, durable: DurableState{hs: hard}}
	q.Budget, q.Lock, q.ready.Owner = b, &l.mu, q
	return q
}

// Rounds returns how many rounds were completed.
func (q *Queue) Rounds() uint64 { return q.rounds.Load() }

// Refuse notes that the disk refuses what was taken. It reports whether that is new.
func (q *Queue) Refuse(now int64, because error) (first bool) {
	if q.Full.Load() {
		return false
	}
	q.fullSince.Store(now)
	q.fullBecause.Store(&because)
	q.Full.Store(true)
	return true
}

// Refusal says since when the disk refuses what was taken, in ticks that were not missed, and what the log
// said; nil: it was not asked.
func (q *Queue) Refusal() (since int64, because error) {
	if err := q.fullBecause.Load(); err != nil {
		because = *err
	}
	return q.fullSince.Load(), because
}

// Deleted reports whether the log has deleted the group, and why not if that was wanted. It may be called
// when the lane has released the group.
func (q *Queue) Deleted() (deleted bool, refused error) { return q.deleted, q.refused }

// makeWrites turns what was taken into writes, and leaves out those that carry only a commit index.
func (q *Queue) makeWrites() {
	q.joint.join(q.group, q.Taken(), &q.hard)
	needed := q.joint.writes[:0]
	for _, write := range q.joint.writes {
		if q.durable.Complete(&write) {
			needed = append(needed, write)
		}
	}
	q.joint.writes = needed
}

// withNewestVote prepares writes for another try.
func (q *Queue) withNewestVote() []wal.Write {
	for i := range q.joint.writes {
		q.durable.withNewestVote(&q.joint.writes[i])
	}
	return q.joint.writes
}

// wrote records that the log has what was taken, and moves it to the round.
func (q *Queue) wrote() {
	for i := range q.joint.writes {
		q.durable.Wrote(&q.joint.writes[i])
	}
	q.joint.reset()
	q.client.Appended()
	moved := int64(0)
	q.round, moved = q.MoveTaken(q.round)
	q.roundBytes += moved
}

// verdict is what an error of Log.Append means for the writes that it was given.
type verdict int

const (
	written verdict = iota
	noSpace         // nothing was written; try again later
	invalid         // nothing was written, and never will be
	broken          // the log has failed
)

func verdictOn(err error) verdict {
	switch {
	case err == nil:
		return written
	case errors.Is(err, wal.ErrDiskFull):
		return noSpace
	case errors.Is(err, wal.ErrInvalidWrite):
		return invalid
	}
	return broken
}
