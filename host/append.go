package host

import (
	"errors"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// appendQueue is what one group has for the append lane (lane.go), and what the lane knows of the group.
//
// The messages that a round takes become one wal.Write with one hard state (round.go). A message that carries
// only a commit index is not written: the index stays in memory and goes with a later write (durableState).
//
// A full disk is not an error: what was taken waits, with everything behind it, and is tried again at the
// next tick. Only term and vote overtake it (voteahead.go). Other groups go on.
type appendQueue struct {
	queue
	group *Group

	full    atomic.Bool   // the disk refuses what was taken
	rounds  atomic.Uint64 // that were completed
	discard atomic.Bool   // what it refuses must be forgotten (discard.go)

	compact   atomic.Uint64 // the log must be compacted through here (snapshotlog.go); 0: it need not
	compacted atomic.Uint64 // how often it was

	fullSince   atomic.Int64          // in ticks that were not missed
	fullBecause atomic.Pointer[error] // what the log said

	// Guarded by the lock of the lane.
	ready   sched.Place[*appendQueue]
	leaving bool  // the group is closed
	deletes bool  // and must be deleted from the log
	refused error // why it was not

	// Owned by the lane's RunOnce.
	installing *install         // of the snapshot that the next message carries; nil: not begun
	joint      round            // what was taken, as writes
	round      []raftpb.Message // written, to be synced and answered
	roundBytes int64
	inRound    bool             // it is in the lane's round
	hard       raftpb.HardState // as last taken
	stated     durableState
	deleted    bool // and the log has it
	gone       bool
}

// refusal says why the group was not deleted, when the lane has released it.
func (q *appendQueue) refusal() error { return q.refused }

// makeWrites turns what was taken into writes, and leaves out those that carry only a commit index.
func (q *appendQueue) makeWrites() {
	q.joint.join(q.group.id, q.taken, &q.hard)
	needed := q.joint.writes[:0]
	for _, write := range q.joint.writes {
		if q.stated.setHardState(&write) {
			needed = append(needed, write)
		}
	}
	q.joint.writes = needed
}

// newestVotes prepares writes for another try.
func (q *appendQueue) newestVotes() []wal.Write {
	for i := range q.joint.writes {
		q.stated.withNewestVote(&q.joint.writes[i])
	}
	return q.joint.writes
}

// wrote records that the log has what was taken, and moves it to the round.
func (q *appendQueue) wrote() {
	for i := range q.joint.writes {
		q.stated.wrote(&q.joint.writes[i])
	}
	q.joint.reset()
	if q.group.writes.logReaders.Load() > 0 {
		q.group.writes.logGrown.notify()
	}
	q.roundBytes += q.takenBytes
	if len(q.round) == 0 {
		q.round, q.taken = q.taken, q.round
	} else {
		q.round = append(q.round, q.taken...)
		clear(q.taken) // a message keeps an array of the core's alive
	}
	q.taken, q.takenBytes = q.taken[:0], 0
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

// groupWrites is the way of a group to its log. The turn owns what is not atomic.
type groupWrites struct {
	append     *appendQueue
	storage    *groupStorage
	discarding discarding
	durable    durableState // and as written

	awaitsAppend atomic.Bool  // an answer of the append lane must wake the group at once,
	awaitsApply  atomic.Bool  // and one of the apply lanes,
	awaitsAcks   atomic.Bool  // and a follower's acknowledgement of what is committed
	logReaders   atomic.Int32 // that wait for logGrown: for the log to have more entries
	logGrown     signal
}
