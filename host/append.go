package host

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// appendWorker makes writes durable and then gives the answers that waited for them. Each round takes what
// was queued meanwhile, up to maxRoundBytes, in one write call and one sync (group commit: the longer a sync
// takes, the more the next one covers). A round is two pieces of work, the write and the sync, so that a
// simulated crash can come between them. If the log's mode may delay a flush (wal.ModeGroupDelay), more
// writes join the round until the delay ends.
//
// The queued messages become one wal.Write with one hard state (round.go). A message that carries only a
// commit index is not written: the index stays in memory and goes with a later write (stated).
//
// An error is final: nothing more is written or answered (docs/internals/durability.md §5, point 3). A full
// disk is not an error: the round waits, with everything behind it, and is tried again at the next tick. Only
// term and vote overtake it (overtake.go).
type appendWorker struct {
	queue
	log  *wal.Log
	self uint64
	fail func(error)

	logger *slog.Logger
	events eventHook
	later  env.Timer // wakes the worker

	full   atomic.Bool // the disk refuses the round that was taken
	retry  atomic.Bool // it may be tried again
	forget atomic.Bool // it must be forgotten (forget.go)
	forgot func(forgetOutcome)

	// Owned by RunOnce.
	joint      round            // what was taken, as writes
	round      []raftpb.Message // written, to be synced and answered
	sync       bool             // the round, as far as it is written, holds something that must be durable
	hasRound   bool             // there is a round
	roundBytes int64
	hard       raftpb.HardState // as last taken
	stated     stated
	outgoing   outgoing
	toSelf     outgoing // to this host's own group
	stopped    bool
}

// RunOnce implements env.Worker.
func (w *appendWorker) RunOnce() (more bool) {
	switch {
	case w.stopped:
		return false
	case w.hasRound && w.finish():
		return true
	case w.stopped:
		return false
	case w.forget.Load():
		return w.forgetRefused()
	case w.full.Load() && !w.retry.Swap(false):
		return w.overtake(false)
	default:
		return w.write()
	}
}

// write takes what is queued, up to a round, and passes it to the log.
func (w *appendWorker) write() (wrote bool) {
	if !w.full.Load() {
		if len(w.take(maxRoundBytes)) == 0 {
			return false
		}
		w.makeWrites()
	}
	if writes := w.joint.writes; len(writes) > 0 {
		for i := range writes {
			w.stated.raise(&writes[i])
		}
		err := w.log.Append(writes)
		if errors.Is(err, wal.ErrDiskFull) {
			w.wait(err)
			return w.overtake(false)
		}
		if err != nil {
			w.stop(err)
			return false
		}
		for i := range writes {
			w.stated.wrote(&writes[i])
		}
		// Only now: if a refused round set it, the sync of the round before would clear it.
		w.sync = w.sync || !planted.SyncRefused
	}
	w.joint.reset()
	if w.full.Swap(false) {
		w.drain()
	}
	if planted.AckBeforeSync {
		deliver(w.taken, w.self, &w.outgoing, &w.toSelf)
		clear(w.taken)
		w.taken = w.taken[:0]
	}
	w.roundBytes += w.takenBytes
	if len(w.round) == 0 {
		w.round, w.taken = w.taken, w.round
	} else {
		w.round = append(w.round, w.taken...)
	}
	w.hasRound = true
	return true
}

// makeWrites turns what was taken into writes, and leaves out those that carry only a commit index.
func (w *appendWorker) makeWrites() {
	w.joint.join(w.outgoing.group, w.taken, &w.hard)
	needed := w.joint.writes[:0]
	for _, write := range w.joint.writes {
		if w.stated.setHardState(&write) {
			needed = append(needed, write)
		}
	}
	if w.joint.writes = needed; planted.OneHardState && len(needed) > 0 {
		for i := range needed {
			needed[i].HardState = raftpb.HardState{}
		}
		needed[0].HardState = w.hard
	}
	w.sync = w.sync || planted.SyncRefused && len(needed) > 0
}

// finish syncs the round and gives its answers: to peers directly, to this host through its group. It returns
// false if it must wait, or must not answer at all.
func (w *appendWorker) finish() (done bool) {
	if w.sync {
		wait, err := w.flush()
		if err != nil {
			w.stop(err)
			return false
		}
		if wait > 0 {
			w.later.Set(wait)
			return false
		}
	}
	w.sync, w.hasRound = false, false
	deliver(w.round, w.self, &w.outgoing, &w.toSelf)
	clear(w.round)
	w.round = w.round[:0]
	w.held.Add(-w.roundBytes)
	w.roundBytes = 0
	return true
}

// flush makes what was written count, unless the log may wait for more.
func (w *appendWorker) flush() (wait time.Duration, err error) {
	f, wait, err := w.log.TakeSync()
	if f == nil || err != nil {
		return wait, err
	}
	if err := f.Wait(); err != nil {
		return 0, err
	}
	_, err = f.Complete()
	return 0, err
}

// wait keeps the round for another try.
func (w *appendWorker) wait(err error) {
	if !w.full.Swap(true) {
		w.events.emit(DiskFull{Group: w.outgoing.group, Err: err})
		w.logger.Warn("millrace: the disk is full; until there is space this member votes and accepts nothing else", "err", err)
		w.fill()
	}
}

// tick makes a worker that waits for space try again.
func (w *appendWorker) tick() {
	if w.full.Load() {
		w.retry.Store(true)
		w.task.Wake()
	}
}

func (w *appendWorker) stop(err error) {
	w.stopped = true
	w.fail(err)
}

// deliver sends the responses attached to finished work: to peers, and by way of toSelf to this host's group.
func deliver(done []raftpb.Message, self uint64, peers, toSelf *outgoing) {
	for i := range done {
		for j := range done[i].Responses {
			if m := &done[i].Responses[j]; m.To == self {
				toSelf.put(m)
			} else {
				peers.put(m)
			}
		}
	}
	peers.flush()
	toSelf.flush()
}
