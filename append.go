package millrace

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft"
	pb "github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// appendWorker makes writes durable and then gives the answers that waited for it. Each round takes what was queued
// meanwhile, up to maxRoundBytes: one write call, one sync (group commit; the longer a sync takes, the more the next one
// covers). A round is two pieces of work, the write and the sync, so that a simulated crash can fall between them. If the
// log's mode lets a flush wait (wal.ModeGroupDelay), more writes join the round until it may not wait any longer.
//
// Each message is one wal.Write of its own, which is atomic, with the whole hard state that stands when it is done: its
// own, or the one before it. One hard state for the writes of several messages is not enough, wherever it stands: behind
// them, a crash could keep the entry of a membership change and lose the commit index of the change before, and two
// leaders could be elected; before them, it could keep a commit index that speaks of entries not written yet.
//
// A message that carries only a commit index is not written: the index stays in memory (hard) and goes with the next
// write. That keeps both rules. The index was told before that write, so it speaks of entries that were written before
// it; and it is in the same atomic write as the next entries, so a host that has those has it too. Losing it loses nothing:
// a commit index is learned again. A round for it alone would delay the one behind it.
//
// An error is final: nothing more is written nor answered (docs/internals/durability.md §5, point 3). A full disk is not one: the round
// waits, with all behind it, and is tried again at the next tick (tick) or when more comes.
type appendWorker struct {
	queue
	log  *wal.Log
	self uint64
	fail func(error)

	logger *slog.Logger
	later  env.Timer // wakes the worker

	// Owned by RunOnce.
	writes     []wal.Write
	round      []pb.Message // written, to be synced and answered
	sync       bool         // the round, as far as it is written, holds something that must be durable
	pending    bool         // there is a round
	roundBytes int64
	full       atomic.Bool  // the round could not be written, as there is no room
	hard       pb.HardState // as last queued
	peers      mailbag
	local      mailbag // to this node's own group
	stopped    bool
}

// RunOnce implements env.Worker.
func (w *appendWorker) RunOnce() (more bool) {
	switch {
	case w.stopped:
		return false
	case w.pending && w.finish():
		return true
	case w.stopped:
		return false
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
		for i := range w.taken {
			w.addWrite(&w.taken[i])
		}
	}
	if len(w.writes) > 0 {
		err := w.log.Append(w.writes)
		if errors.Is(err, wal.ErrDiskFull) {
			w.wait(err)
			return false
		}
		clear(w.writes)
		w.writes = w.writes[:0]
		if err != nil {
			w.stop(err)
			return false
		}
		// Only now: had a refused round set it, the sync of the round before would clear it.
		w.sync = w.sync || !planted.SyncRefused
	}
	w.full.Store(false)
	if planted.AckBeforeSync {
		deliver(w.taken, w.self, &w.peers, &w.local)
		clear(w.taken)
		w.taken = w.taken[:0]
	}
	w.roundBytes += w.takenBytes
	if len(w.round) == 0 {
		w.round, w.taken = w.taken, w.round
	} else {
		w.round = append(w.round, w.taken...)
	}
	w.pending = true
	return true
}

// addWrite turns a message into one write of the round, unless all it carries is a commit index.
func (w *appendWorker) addWrite(m *pb.Message) {
	needsSync := len(m.Entries) > 0
	if hs := (pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}); !raft.IsEmptyHardState(hs) {
		needsSync = needsSync || raft.MustSync(hs, w.hard, 0)
		w.hard = hs
	}
	if needsSync {
		w.writes = append(w.writes, wal.Write{Group: w.peers.group, Entries: m.Entries, HardState: w.hard})
		w.sync = w.sync || planted.SyncRefused
	}
}

// finish syncs the round and gives its answers: to peers straight from here, to this node through the group. It reports
// false if it must not yet, or not at all.
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
	w.sync, w.pending = false, false
	deliver(w.round, w.self, &w.peers, &w.local)
	clear(w.round)
	w.round = w.round[:0]
	w.held.Add(-w.roundBytes)
	w.roundBytes = 0
	return true
}

// flush makes what was written count, unless the log says that it may wait for more.
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
		w.logger.Warn("millrace: the disk is full; this member accepts nothing until there is room", "err", err)
	}
}

// tick makes a worker that waits for room try again.
func (w *appendWorker) tick() {
	if w.full.Load() {
		w.task.Wake()
	}
}

func (w *appendWorker) stop(err error) {
	w.stopped = true
	w.fail(err)
}

// deliver sends the responses attached to finished work: to peers, and by way of local to this node.
func deliver(done []pb.Message, self uint64, peers, local *mailbag) {
	for i := range done {
		for j := range done[i].Responses {
			if m := &done[i].Responses[j]; m.To == self {
				local.put(m)
			} else {
				peers.put(m)
			}
		}
	}
	peers.flush()
	local.flush()
}
