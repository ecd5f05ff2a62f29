package appendlane

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Lane makes the writes of all groups durable, and then gives the answers that waited for them. Each
// round takes what was queued meanwhile, in one write call and one sync. This is group commit: after a long
// sync, the next covers more. A round is two pieces of work, the write and the sync, so that a
// simulated crash can come between them. If the log's mode may delay a flush (wal.ModeGroupDelay), more
// writes join the round until the delay ends.
//
// A round takes at most workqueue.MaxRoundBytes. While several groups wait, each gets at most MaxShareBytes
// of it, and goes to the back of the ring for the rest. So a group with much to write delays others by one
// share.
//
// An error of the log is final: nothing more is written or answered (docs/internals/durability.md §5, point
// 3), and every group stops. An invalid write stops its group only. A full disk parks a group (Queue).
type Lane struct {
	Settings
	Progress
	task  env.Task
	later env.Timer // wakes the lane

	mu        lock.Mutex
	ready     sched.Ring[*Queue]
	departing []*Queue // of groups that leave

	retry    atomic.Bool // parked queues may be tried again
	caughtUp atomic.Bool // the log's mark of amnesia must be removed
	parking  atomic.Int32
	failure  atomic.Pointer[error]

	// Owned by RunOnce.
	batch    []*Queue // of the write call under way
	writes   []wal.Write
	round    []*Queue // written, to be synced and answered
	parked   []*Queue // refused by a full disk
	sync     bool     // the round, as far as it is written, holds something that must be durable
	outgoing outbox.Batches
	own      answers
}

// Settings are what a lane is made of.
type Settings struct {
	Log   Log
	Self  uint64        // this host
	To    outbox.Sender // other hosts
	Ticks func() int64  // that were not missed
	Fail  func(error)   // stops every group
}

// Log is the log of a host, as its one writer needs it. An error is final, except wal.ErrDiskFull,
// wal.ErrInvalidWrite and wal.ErrBacklog of Append.
type Log interface {
	Append([]wal.Write) error
	// TakeSync returns what makes durable what was appended; nil: there is nothing, or it may wait so long.
	TakeSync() (f Flush, wait time.Duration, err error)
	Sync() error
	CaughtUp() error // ends its amnesia
}

// Flush makes durable what the log has captured for it.
type Flush interface {
	Wait() error
	Complete() (more bool, err error)
}

// Progress is what others may look at while the lane works.
type Progress struct {
	Working atomic.Bool   // in the middle of a piece of work, or with a round that is not synced
	Pieces  atomic.Uint64 // of work that were completed
}

// maxRetries bounds the parked queues that are refused again in one tick.
const maxRetries = 16

// New returns a lane. Start must be called before anything else.
func New(s Settings) *Lane { return &Lane{Settings: s, outgoing: outbox.Batches{To: s.To}} }

// Start gives the lane its task, which runs it, and a timer, which must wake the task.
func (l *Lane) Start(task env.Task, later env.Timer) { l.task, l.later = task, later }

// Task runs the lane. The end of the host stops it.
func (l *Lane) Task() env.Task { return l.task }

// Close ends a lane whose task is stopped.
func (l *Lane) Close() { l.later.Stop() }

// IsBusy reports whether the lane is in the middle of a write or a sync, or has work.
func (l *Lane) IsBusy() bool { return l.Working.Load() || l.waiting() > 0 }

// Parked returns how many queues a full disk has refused.
func (l *Lane) Parked() int { return int(l.parking.Load()) }

// Enqueue tells the lane that a queue has something.
func (l *Lane) Enqueue(q *Queue) {
	l.mu.Lock()
	fresh := l.line(q)
	l.mu.Unlock()
	if fresh {
		l.task.Wake()
	}
}

// Hand queues a message of a group, and makes the lane come to it.
func (l *Lane) Hand(q *Queue, m raftpb.Message) {
	fresh := false
	q.EnqueueAnd(m, func() { fresh = l.line(q) })
	if fresh {
		l.task.Wake()
	}
}

// line puts a queue into the line of those that are ready, and reports whether it was in none. The caller
// holds the lock.
func (l *Lane) line(q *Queue) (fresh bool) {
	if fresh = q.ready.In() == nil; fresh {
		l.ready.Push(&q.ready)
	}
	return fresh
}

// RunOnce implements env.Worker.
func (l *Lane) RunOnce() (more bool) {
	l.Working.Store(true)
	more = l.work()
	l.Working.Store(len(l.round) > 0)
	l.Pieces.Add(1)
	return more
}

func (l *Lane) work() (more bool) {
	switch {
	case l.Failed():
		return false
	case len(l.round) > 0 && l.finish():
		return true
	case l.Failed():
		return false
	}
	return l.removeMark() || l.write()
}

// write takes what is queued, up to a round, and passes it to the log.
func (l *Lane) write() (wrote bool) {
	if l.retry.Swap(false) {
		wrote = l.tryAgain()
	}
	var bytes int64
	for n := l.waiting(); n > 0 && bytes < workqueue.MaxRoundBytes && !l.Failed(); n-- {
		q, leaving := l.next()
		switch {
		case q == nil:
			n = 0
		case leaving:
			wrote = l.release(q) || wrote
		case l.compact(q):
			wrote = true
			l.Enqueue(q) // for the rest, if there is any
		case q.forget.Load():
			wrote = l.discard(q) || wrote
		case q.Full.Load():
			wrote = l.writeHardState(q, false) || wrote
		case l.installs(q):
			wrote = l.writeHardState(q, false) || wrote
		default:
			share := int64(workqueue.MaxShareBytes)
			if n == 1 && len(l.batch) == 0 {
				share = workqueue.MaxRoundBytes
			}
			if len(q.Dequeue(share, q.installed)) == 0 {
				continue
			}
			bytes += q.TakenBytes()
			q.makeWrites()
			l.batch = append(l.batch, q)
			if !q.Empty() {
				l.Enqueue(q)
			}
		}
	}
	return l.writeBatch() || wrote
}

func (l *Lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready.Len()
}

func (l *Lane) next() (q *Queue, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.ready.Pop()
	if p == nil {
		return nil, false
	}
	return p.Owner, p.Owner.leaving.Load()
}

// writeBatch passes the writes of the batch to the log in one call. If the log refuses them, each queue is
// tried alone: one group's entries must not keep another's off the disk.
func (l *Lane) writeBatch() (wrote bool) {
	if len(l.batch) == 0 {
		return false
	}
	for _, q := range l.batch {
		l.writes = append(l.writes, q.withNewestVote()...)
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
func (l *Lane) append(writes []wal.Write) error {
	err := l.Log.Append(writes)
	if !errors.Is(err, wal.ErrBacklog) {
		return err
	}
	if err := l.Log.Sync(); err != nil {
		return err
	}
	return l.Log.Append(writes)
}

// tryAlone passes one queue's writes to the log.
func (l *Lane) tryAlone(q *Queue) (wrote bool) {
	if l.Failed() {
		return false
	}
	if writes := q.withNewestVote(); len(writes) > 0 {
		return l.judge(q, l.append(writes))
	}
	l.took(q)
	return true
}

// judge acts on what the log said to one queue's writes.
func (l *Lane) judge(q *Queue, err error) (wrote bool) {
	switch verdictOn(err) {
	case written:
		l.took(q)
		return true
	case noSpace:
		l.park(q, err)
		return l.writeHardState(q, false)
	case invalid:
		q.client.Fail(err)
		l.drop(q)
	default:
		l.stop(err)
	}
	return false
}

// took records that the log has what a queue was asked for.
func (l *Lane) took(q *Queue) {
	if len(q.joint.writes) > 0 {
		l.sync = true // only now: if a refused round set it, the sync of the round before would clear it
	}
	q.wrote()
	l.unpark(q)
	l.join(q)
}

// join puts a queue into the round.
func (l *Lane) join(q *Queue) {
	if !q.inRound {
		q.inRound = true
		l.round = append(l.round, q)
	}
}

// finish syncs the round and gives its answers: to peers directly, to this host through the groups. It
// returns false if it must wait, or must not answer at all.
func (l *Lane) finish() (done bool) {
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
		if q.forget.Load() || q.leaving.Load() {
			l.Enqueue(q)
		}
	}
	clear(l.round)
	l.round = l.round[:0]
	l.answer()
	return true
}

// flush makes what was written count, unless the log may wait for more.
func (l *Lane) flush() (wait time.Duration, err error) {
	f, wait, err := l.Log.TakeSync()
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
func (l *Lane) deliver(q *Queue) {
	for i := range q.round {
		for j := range q.round[i].Responses {
			if m := &q.round[i].Responses[j]; m.To == l.Self {
				l.own.add(m)
			} else {
				l.outgoing.Enqueue(q.group, m)
			}
		}
	}
	clear(q.round)
	q.round = q.round[:0]
	if q.roundBytes > 0 {
		q.rounds.Add(1)
	}
	q.Hold(-q.roundBytes)
	q.roundBytes = 0
	l.own.giveTo(q.client)
}

// answer sends what deliver has collected: one call of the transport for each peer, one wake for each shard.
func (l *Lane) answer() {
	l.outgoing.Flush()
	l.own.Wake()
}

// park keeps a queue's writes for another try.
func (l *Lane) park(q *Queue, err error) {
	if !q.Refuse(l.Ticks(), err) {
		return
	}
	l.parked = append(l.parked, q)
	l.parking.Add(1)
	q.client.DiskFull(err)
	q.StartOvertaking()
}

// unpark ends that, if the queue is parked.
func (l *Lane) unpark(q *Queue) {
	if !q.Full.Swap(false) {
		return
	}
	for i, p := range l.parked {
		if p == q {
			l.parked = append(l.parked[:i], l.parked[i+1:]...)
			break
		}
	}
	l.parking.Add(-1)
	q.StopOvertaking()
	if !q.Empty() {
		l.Enqueue(q)
	}
}

// Tick lets parked queues try again.
func (l *Lane) Tick() {
	if l.parking.Load() > 0 {
		l.retry.Store(true)
		l.task.Wake()
	}
}

// tryAgain tries the parked queues, the longest parked first. Those that were refused again go to the end.
func (l *Lane) tryAgain() (wrote bool) {
	all, refusals := append([]*Queue(nil), l.parked...), 0
	for _, q := range all {
		if refusals == maxRetries || l.Failed() {
			break
		}
		if q.forget.Load() && q.inRound {
			continue
		}
		wrote = l.tryAlone(q) || wrote
		if wrote = l.compact(q) || wrote; q.Full.Load() {
			refusals++
		}
	}
	if n := min(refusals, len(l.parked)); n < len(l.parked) {
		l.parked = append(append([]*Queue(nil), l.parked[n:]...), l.parked[:n]...)
	}
	return wrote
}

// stop ends the lane: the log has failed.
func (l *Lane) stop(err error) {
	if l.failure.CompareAndSwap(nil, &err) {
		l.Fail(err)
		l.releaseAll()
	}
}

func (l *Lane) Failed() bool { return l.failure.Load() != nil }

// Err returns why the lane has stopped, or nil.
func (l *Lane) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// drop forgets what a queue holds: its group has stopped.
func (l *Lane) drop(q *Queue) {
	q.joint.reset()
	q.DropTaken()
}

// Leave makes the lane release a group: nothing that waits is written any more, as in a crash. If deletes is
// set, the group is deleted from the log, durably. Client.Released is called after that.
func (l *Lane) Leave(q *Queue, deletes bool) {
	l.mu.Lock()
	q.deletes = deletes
	q.leaving.Store(true)
	l.departing = append(l.departing, q)
	l.mu.Unlock()
	l.Enqueue(q)
	if l.Failed() {
		l.releaseAll()
	}
}

// releaseAll releases the groups that leave a lane which has failed: it does nothing any more.
func (l *Lane) releaseAll() {
	l.mu.Lock()
	all := l.departing
	l.departing = nil
	l.mu.Unlock()
	for _, q := range all {
		if q.deletes {
			q.refused = fmt.Errorf("millrace: group %d is not deleted: the log has failed: %w", q.group, l.Err())
		}
		q.client.Released()
	}
}

// release is the lane's part of leave. It reports whether it wrote.
func (l *Lane) release(q *Queue) (wrote bool) {
	if q.inRound || q.gone {
		return false // finish enqueues it again
	}
	if q.deletes && !q.deleted {
		err := l.append([]wal.Write{{Group: q.group, Delete: true}})
		switch verdictOn(err) {
		case written:
			q.deleted, l.sync = true, true
			l.join(q)
			return true
		case broken:
			l.stop(err)
			return false
		}
		q.refused = fmt.Errorf("millrace: group %d is not deleted: %w", q.group, err)
	}
	q.gone = true
	l.drop(q)
	l.unpark(q)
	q.Hold(-q.Held())
	l.mu.Lock()
	l.departing = slices.DeleteFunc(l.departing, func(other *Queue) bool { return other == q })
	l.mu.Unlock()
	q.client.Released()
	return false
}

// answers are the answers of the lane to the groups of this host: given together, and with one wake for each
// shard.
type answers struct {
	messages []raftpb.Message // of one group
	sched.Woken
}

// add adds an answer, and drops those that it repeats. The last two are enough: answers come in pairs.
func (a *answers) add(m *raftpb.Message) {
	for j := len(a.messages) - 1; j >= max(0, len(a.messages)-2); j-- {
		if outbox.Supersedes(m, &a.messages[j]) {
			a.messages[j] = *m
			return
		}
	}
	a.messages = append(a.messages, *m)
}

// giveTo gives what was added to a group.
func (a *answers) giveTo(c Client) {
	if len(a.messages) > 0 {
		c.Answer(a.messages, &a.Woken)
		clear(a.messages)
		a.messages = a.messages[:0]
	}
}

// CatchUp makes the lane end the amnesia of a log whose groups all have authority.
func (l *Lane) CatchUp() {
	l.caughtUp.Store(true)
	l.task.Wake()
}

// removeMark ends the amnesia of the log, if all groups have authority.
func (l *Lane) removeMark() (done bool) {
	if !l.caughtUp.Swap(false) {
		return false
	}
	if err := l.Log.CaughtUp(); err != nil {
		l.stop(err)
		return false
	}
	return true
}
