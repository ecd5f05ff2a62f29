package host

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// appendLane makes the writes of all groups durable, and then gives the answers that waited for them. Each
// round takes what was queued meanwhile, in one write call and one sync (group commit: the longer a sync
// takes, the more the next one covers). A round is two pieces of work, the write and the sync, so that a
// simulated crash can come between them. If the log's mode may delay a flush (wal.ModeGroupDelay), more
// writes join the round until the delay ends.
//
// A round takes at most maxRoundBytes. While several groups wait, each gets at most maxShareBytes of a round
// and goes to the back of the ring for the rest, so a group with much to write delays others by one share.
//
// An error of the log is final: nothing more is written or answered (docs/internals/durability.md §5, point
// 3), and every group stops. An invalid write stops its group only. A full disk parks a group (appendQueue).
type appendLane struct {
	task  env.Task
	later env.Timer // wakes the lane
	log   Log
	self  uint64
	fail  func(error) // stops every group
	full  func(*Group, error)

	slowTicks int64 // a write or a sync that takes longer is slow: an election timeout

	mu        sync.Mutex
	ready     sched.Ring[*appendQueue]
	departing []*appendQueue // of groups that leave

	retry    atomic.Bool // parked queues may be tried again
	caughtUp atomic.Bool // the log's mark of amnesia must be removed (authority.go)
	parking  atomic.Int32
	failure  atomic.Pointer[error]
	working  atomic.Bool   // in the middle of a piece of work, or with a round that is not synced
	pieces   atomic.Uint64 // of work that were completed

	// Owned by RunOnce.
	batch    []*appendQueue // of the write call under way
	writes   []wal.Write
	round    []*appendQueue // written, to be synced and answered
	parked   []*appendQueue // refused by a full disk
	sync     bool           // the round, as far as it is written, holds something that must be durable
	outgoing outbox.Batches
	own      answers
}

const (
	// maxShareBytes is what a group gets of a round while others wait.
	maxShareBytes = 1 << 20
	// maxRetries bounds the parked queues that are refused again in one tick.
	maxRetries = 16
)

// enqueue tells the lane that a queue has something.
func (l *appendLane) enqueue(q *appendQueue) {
	l.mu.Lock()
	fresh := q.ready.In() == nil
	if fresh {
		l.ready.Push(&q.ready)
	}
	l.mu.Unlock()
	if fresh {
		l.task.Wake()
	}
}

// RunOnce implements env.Worker.
func (l *appendLane) RunOnce() (more bool) {
	l.working.Store(true)
	more = l.work()
	l.working.Store(len(l.round) > 0)
	l.pieces.Add(1)
	return more
}

func (l *appendLane) work() (more bool) {
	switch {
	case l.failed():
		return false
	case len(l.round) > 0 && l.finish():
		return true
	case l.failed():
		return false
	}
	return l.removeMark() || l.write()
}

// write takes what is queued, up to a round, and passes it to the log.
func (l *appendLane) write() (wrote bool) {
	if l.retry.Swap(false) {
		wrote = l.tryAgain()
	}
	var bytes int64
	for n := l.waiting(); n > 0 && bytes < maxRoundBytes && !l.failed(); n-- {
		q, leaving := l.next()
		switch {
		case q == nil:
			n = 0
		case leaving:
			wrote = l.release(q) || wrote
		case l.compact(q):
			wrote = true
			l.enqueue(q) // for the rest, if there is any
		case q.discard.Load():
			wrote = l.discardRefused(q) || wrote
		case q.full.Load():
			wrote = l.writeVoteAhead(q, false) || wrote
		case l.installs(q):
			wrote = l.writeVoteAhead(q, false) || wrote
		default:
			share := int64(maxShareBytes)
			if n == 1 && len(l.batch) == 0 {
				share = maxRoundBytes
			}
			if len(q.take(share)) == 0 {
				continue
			}
			bytes += q.takenBytes
			q.makeWrites()
			l.batch = append(l.batch, q)
			if !q.empty() {
				l.enqueue(q)
			}
		}
	}
	return l.writeBatch() || wrote
}

func (l *appendLane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready.Len()
}

func (l *appendLane) next() (q *appendQueue, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.ready.Pop()
	if p == nil {
		return nil, false
	}
	return p.Owner, p.Owner.leaving
}

// writeBatch passes the writes of the batch to the log in one call. If the log refuses them, each queue is
// tried alone: one group's entries must not keep another's off the disk.
func (l *appendLane) writeBatch() (wrote bool) {
	if len(l.batch) == 0 {
		return false
	}
	for _, q := range l.batch {
		l.writes = append(l.writes, q.newestVotes()...)
	}
	var err error
	if len(l.writes) > 0 {
		err = l.append(l.writes)
	}
	switch {
	case err == nil:
		for _, q := range l.batch {
			l.took(q)
		}
		wrote = true
	case len(l.batch) == 1 || verdictOn(err) == broken:
		wrote = l.judge(l.batch[0], err)
	default:
		for _, q := range l.batch {
			wrote = l.tryAlone(q) || wrote
		}
	}
	clear(l.writes)
	clear(l.batch)
	l.writes, l.batch = l.writes[:0], l.batch[:0]
	return wrote
}

// append passes writes to the log. If too much waits for a flush, it completes one first.
func (l *appendLane) append(writes []wal.Write) error {
	err := l.log.Append(writes)
	if !errors.Is(err, wal.ErrBacklog) {
		return err
	}
	if err := l.log.Sync(); err != nil {
		return err
	}
	return l.log.Append(writes)
}

// tryAlone passes one queue's writes to the log.
func (l *appendLane) tryAlone(q *appendQueue) (wrote bool) {
	if l.failed() {
		return false
	}
	if writes := q.newestVotes(); len(writes) > 0 {
		return l.judge(q, l.append(writes))
	}
	l.took(q)
	return true
}

// judge acts on what the log said to one queue's writes.
func (l *appendLane) judge(q *appendQueue, err error) (wrote bool) {
	switch verdictOn(err) {
	case written:
		l.took(q)
		return true
	case noSpace:
		l.park(q, err)
		return l.writeVoteAhead(q, false)
	case invalid:
		q.group.fail(err)
		l.drop(q)
	default:
		l.stop(err)
	}
	return false
}

// took records that the log has what a queue was asked for.
func (l *appendLane) took(q *appendQueue) {
	if len(q.joint.writes) > 0 {
		l.sync = true // only now: if a refused round set it, the sync of the round before would clear it
	}
	q.wrote()
	l.unpark(q)
	l.join(q)
}

// join puts a queue into the round.
func (l *appendLane) join(q *appendQueue) {
	if !q.inRound {
		q.inRound = true
		l.round = append(l.round, q)
	}
}

// finish syncs the round and gives its answers: to peers directly, to this host through the groups. It
// returns false if it must wait, or must not answer at all.
func (l *appendLane) finish() (done bool) {
	if l.sync {
		wait, err := l.flush()
		if err != nil {
			l.stop(err)
			return false
		}
		if wait > 0 {
			l.later.Set(wait)
			return false
		}
	}
	l.sync = false
	for _, q := range l.round {
		q.inRound = false
		l.deliver(q)
		if q.discard.Load() || q.isLeaving(l) {
			l.enqueue(q)
		}
	}
	clear(l.round)
	l.round = l.round[:0]
	l.answer()
	return true
}

// flush makes what was written count, unless the log may wait for more.
func (l *appendLane) flush() (wait time.Duration, err error) {
	f, wait, err := l.log.TakeSync()
	if f == nil || err != nil {
		return wait, err
	}
	if err := f.Wait(); err != nil {
		return 0, err
	}
	_, err = f.Complete()
	return 0, err
}

// deliver collects the answers of a queue's round.
func (l *appendLane) deliver(q *appendQueue) {
	for i := range q.round {
		for j := range q.round[i].Responses {
			if m := &q.round[i].Responses[j]; m.To == l.self {
				l.own.put(m)
			} else {
				l.outgoing.Put(q.group.id, m)
			}
		}
	}
	clear(q.round)
	q.round = q.round[:0]
	if q.roundBytes > 0 {
		q.rounds.Add(1)
	}
	q.hold(-q.roundBytes)
	q.roundBytes = 0
	l.own.giveTo(q.group)
}

// answer sends what deliver has collected: one call of the transport for each peer, one wake for each shard.
func (l *appendLane) answer() {
	l.outgoing.Flush()
	l.own.Wake()
}

// park keeps a queue's writes for another try.
func (l *appendLane) park(q *appendQueue, err error) {
	if q.full.Swap(true) {
		return
	}
	l.parked = append(l.parked, q)
	l.parking.Add(1)
	l.full(q.group, err)
	q.fill()
}

// unpark ends that, if the queue is parked.
func (l *appendLane) unpark(q *appendQueue) {
	if !q.full.Swap(false) {
		return
	}
	for i, p := range l.parked {
		if p == q {
			l.parked = append(l.parked[:i], l.parked[i+1:]...)
			break
		}
	}
	l.parking.Add(-1)
	q.drain()
	if !q.empty() {
		l.enqueue(q)
	}
}

// tick lets parked queues try again.
func (l *appendLane) tick() {
	if l.parking.Load() > 0 {
		l.retry.Store(true)
		l.task.Wake()
	}
}

// tryAgain tries the parked queues, the longest parked first. Those that were refused again go to the end.
func (l *appendLane) tryAgain() (wrote bool) {
	all, refusals := append([]*appendQueue(nil), l.parked...), 0
	for _, q := range all {
		if refusals == maxRetries || l.failed() {
			break
		}
		if q.discard.Load() && q.inRound {
			continue
		}
		wrote = l.tryAlone(q) || wrote
		if wrote = l.compact(q) || wrote; q.full.Load() {
			refusals++
		}
	}
	if n := min(refusals, len(l.parked)); n < len(l.parked) {
		l.parked = append(append([]*appendQueue(nil), l.parked[n:]...), l.parked[:n]...)
	}
	return wrote
}

// stop ends the lane: the log has failed.
func (l *appendLane) stop(err error) {
	if l.failure.CompareAndSwap(nil, &err) {
		l.fail(err)
		l.releaseAll()
	}
}

func (l *appendLane) failed() bool { return l.failure.Load() != nil }

// err returns why the lane has stopped, or nil.
func (l *appendLane) err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// drop forgets what a queue holds: its group has stopped.
func (l *appendLane) drop(q *appendQueue) {
	q.joint.reset()
	q.hold(-q.takenBytes)
	clear(q.taken)
	q.taken, q.takenBytes = q.taken[:0], 0
}

// leave makes the lane release a group: nothing that waits is written any more, as in a crash. If deletes is
// set, the group is deleted from the log, durably. partDone is called after that.
func (l *appendLane) leave(q *appendQueue, deletes bool) {
	l.mu.Lock()
	q.leaving, q.deletes = true, deletes
	l.departing = append(l.departing, q)
	l.mu.Unlock()
	l.enqueue(q)
	if l.failed() {
		l.releaseAll()
	}
}

// releaseAll releases the groups that leave a lane which has failed: it does nothing any more.
func (l *appendLane) releaseAll() {
	l.mu.Lock()
	all := l.departing
	l.departing = nil
	l.mu.Unlock()
	for _, q := range all {
		if q.deletes {
			q.refused = fmt.Errorf("millrace: group %d is not deleted: the log has failed: %w", q.group.id, l.err())
		}
		q.group.partDone(theAppendLane)
	}
}

func (q *appendQueue) isLeaving(l *appendLane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return q.leaving
}

// release is the lane's part of leave. It reports whether it wrote.
func (l *appendLane) release(q *appendQueue) (wrote bool) {
	if q.inRound || q.gone {
		return false // finish enqueues it again
	}
	if q.deletes && !q.deleted {
		err := l.append([]wal.Write{{Group: q.group.id, Delete: true}})
		switch verdictOn(err) {
		case written:
			q.deleted, l.sync = true, true
			l.join(q)
			return true
		case broken:
			l.stop(err)
			return false
		}
		q.refused = fmt.Errorf("millrace: group %d is not deleted: %w", q.group.id, err)
	}
	q.gone = true
	l.drop(q)
	l.unpark(q)
	q.hold(-q.held.Load())
	l.mu.Lock()
	l.departing = slices.DeleteFunc(l.departing, func(other *appendQueue) bool { return other == q })
	l.mu.Unlock()
	q.group.partDone(theAppendLane)
	return false
}

// answers are the answers of the lane to the groups of this host: given together, and with one wake for each
// shard.
type answers struct {
	messages []raftpb.Message // of one group
	sched.Woken
}

// put adds an answer, and drops those that it repeats. The last two are enough: answers come in pairs.
func (a *answers) put(m *raftpb.Message) {
	for j := len(a.messages) - 1; j >= max(0, len(a.messages)-2); j-- {
		if outbox.Supersedes(m, &a.messages[j]) {
			a.messages[j] = *m
			return
		}
	}
	a.messages = append(a.messages, *m)
}

// giveTo puts what was added into a group's inbox.
func (a *answers) giveTo(g *Group) {
	if len(a.messages) == 0 {
		return
	}
	g.inbox.putAnswers(a.messages)
	clear(a.messages)
	a.messages = a.messages[:0]
	if g.writes.awaitsAppend.Load() {
		a.Add(&g.seat)
	} else {
		g.wakeLazily()
	}
}
