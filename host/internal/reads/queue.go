package reads

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
)

// Reads (thesis §6.4). A read is told an index: when the state machine of this host has applied the log
// through it, the state includes everything that was acknowledged, by any member, before the read began. No
// read is written to the log.
//
//	reader                    turn of the group                          the leader, if it is another host
//	Start ──────► fresh
//	                          all fresh reads get one number: question ──► joins the next round of the core:
//	              asked                                                    heartbeats to a quorum, which answer
//	                          answer: number, index                   ◄──  number, index
//	              applying    all reads through that number wait
//	                          until index is applied here
//	Poll, Wait ◄─ done
//
// There is one question under way in a group, and one round at its leader; reads that begin meanwhile wait
// for the next. So the number of messages does not depend on the number of readers.
//
// Invariant: an answer serves the reads that had begun when its question was asked, and no later ones. The
// number of a question is new in the life of the host, and an answer names that life too (record.go). An
// answer may come late, after another question or another leader: it still serves the reads through its
// number, since what it says was true after they had begun.
//
// A question may be lost. It is repeated, with a new number, after a heartbeat interval, and at once when
// another leader is known. A leader repeats its round with each heartbeat.

// bytesOf is about the memory that a read takes. It counts against the budget.
const bytesOf = 320

// Settings say whose reads a Queue has.
type Settings struct {
	Group, Self uint64               // the group, and which member of it this is
	Life        uint64               // of this host; answers name it
	Interval    int64                // ticks between two heartbeats
	Budget      *budget.Budget       // for what waits
	Now         func() time.Duration // times reads; nil: they are not timed
}

// Wiring is the group as its reads see it, and what they ask of it. Its methods may be called from any
// goroutine, except where noted, and do not wait.
type Wiring interface {
	Applied() uint64                   // the state machine of this host has the log through it
	Boottime() time.Duration           // env.Clock.Boottime
	Halts() uint64                     // how often the state machine has halted
	WorksSince(halts uint64) bool      // the group lives, and its machine works, and has not halted since Halts
	WaitEnd(ctx context.Context) error // the error of a wait whose context has ended

	Step()                         // makes a turn call Round.Step
	Exclude()                      // makes an apply lane call Queue.RunBetween
	Overloaded() error             // the error of a read for which the budget has no space
	Number() uint64                // another at each call, in the life of this host
	Send(to uint64, record []byte) // to another member
	AskQuorum(number uint64) bool  // begins a round of this leader; false: not now. Round calls it in a turn
}

// Queue is the reads of a group that wait, and what other members have sent about theirs.
type Queue struct {
	settings Settings
	wiring   Wiring

	mu                 lock.Mutex
	closed             error // not nil: the group has ended, or its machine is halted
	halted             bool  // closed is until Resume
	fresh              sched.Ring[*Read]
	asked              sched.Ring[*Read] // numbers do not decrease
	applying           heap
	between            sched.Ring[*Read] // wait for the apply lane (between.go)
	bytes              int64
	latest             confirmed
	ended              endings
	questions, answers []Record // of other members, for the turn, one of each host at most

	took *outcome.Histogram // of reads that were answered; nil: they are not timed

	next        atomic.Uint64 // the lowest index that a read waits for, less 1; MaxUint64: none waits
	unconfirmed atomic.Int64  // reads in fresh and asked
	refresh     atomic.Bool   // a question is wanted, even if no read waits for it
	came        atomic.Bool   // there are records for the turn
	betweens    atomic.Int64  // reads in between
	committed   atomic.Uint64 // what may have been acknowledged: the commit index, stored before clients learn it
	lease       atomic.Pointer[leaseState]
	counts      counters
}

// counters are of one group.
type counters struct {
	linearizable, bounded, atLeast, leaseServed, leaseMissed, rounds, refused atomic.Uint64
}

// Counts are about the reads of a group on this host. Package host says what they mean (ReadMetrics).
type Counts struct {
	Linearizable, Bounded, AtLeast uint64
	LeaseServed, LeaseMissed       uint64
	Rounds                         uint64
	Refused                        uint64
}

// confirmed is an index that a quorum has confirmed for a question asked at that time. Everything that was
// acknowledged until then is in the log through index.
type confirmed struct {
	index uint64
	at    time.Duration
}

// Init makes a queue ready.
func (q *Queue) Init(s Settings, w Wiring) {
	q.settings, q.wiring = s, w
	if s.Now != nil {
		q.took = new(outcome.Histogram)
	}
	q.next.Store(math.MaxUint64)
}

// Counts returns what was counted so far.
func (q *Queue) Counts() Counts {
	c := &q.counts
	return Counts{
		Linearizable: c.linearizable.Load(), Bounded: c.bounded.Load(), AtLeast: c.atLeast.Load(),
		LeaseServed: c.leaseServed.Load(), LeaseMissed: c.leaseMissed.Load(), Rounds: c.rounds.Load(), Refused: c.refused.Load(),
	}
}

// Took returns how long the reads of Start and StartApplied took that were answered, and whether they are
// timed.
func (q *Queue) Took() (h outcome.Histogram, timed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.took == nil {
		return h, false
	}
	return *q.took, true
}

// Start begins a read. With maxAge 0 it is linearizable; with more it is bounded, and may be done at once.
func (q *Queue) Start(r *Read, maxAge time.Duration) {
	began := q.clock()
	if !q.begin(r) {
		return
	}
	r.time(began)
	if r.counter = &q.counts.linearizable; maxAge > 0 {
		r.counter = &q.counts.bounded
	}
	if maxAge > 0 && q.closed == nil {
		c := q.latest
		if age := q.wiring.Boottime() - c.at; c.index > 0 && age <= maxAge {
			r.at = outcome.ReadAt{Index: c.index, Age: age}
			q.awaitApplied(r)
			q.unlock()
			if age > maxAge/2 {
				q.ask()
			}
			return
		}
	}
	if err := q.reserve(r); err != nil {
		q.mu.Unlock()
		r.refuse(err)
		return
	}
	q.fresh.Push(&r.place)
	q.countUnconfirmed()
	first := q.fresh.Len() == 1
	q.mu.Unlock()
	if first { // otherwise a turn is on its way, or the end of a round will bring one, or a leader
		q.wiring.Step()
	}
}

// StartApplied begins to wait until an index is applied on this host.
func (q *Queue) StartApplied(r *Read, index uint64) {
	began := q.clock()
	if !q.begin(r) {
		return
	}
	r.time(began)
	r.counter = &q.counts.atLeast
	defer q.unlock()
	r.at = outcome.ReadAt{Index: index}
	q.awaitApplied(r)
}

// begin takes the lock if this is the first use of a read, and reports whether it is. Who gives up the read
// needs the lock, too, and finds the read where it waits. Without the lock it would find nothing to end.
func (q *Queue) begin(r *Read) (first bool) {
	q.mu.Lock()
	if first = r.begin(q); !first {
		q.mu.Unlock()
	}
	return first
}

// clock returns the time by which reads are timed; 0: they are not.
func (q *Queue) clock() time.Duration {
	if q.settings.Now == nil {
		return 0
	}
	return q.settings.Now()
}

// ask makes a turn ask a question, if none is on its way.
func (q *Queue) ask() {
	if q.refresh.CompareAndSwap(false, true) {
		q.wiring.Step()
	}
}

// reserve takes memory for a read. The caller holds the lock.
func (q *Queue) reserve(r *Read) error {
	switch {
	case q.closed != nil:
		return q.closed
	case r.reserved:
		return nil
	case !q.settings.Budget.Reserve(q.bytes, bytesOf):
		q.counts.refused.Add(1)
		return q.wiring.Overloaded()
	}
	q.bytes += bytesOf
	r.reserved = true
	return nil
}

// end releases a read, whose outcome unlock tells. The caller holds the lock.
func (q *Queue) end(r *Read, err error) {
	r.place.Leave()
	q.applying.remove(r)
	if r.reserved {
		q.ended.bytes += bytesOf
		r.reserved = false
	}
	if q.took != nil && err == nil && r.timed {
		q.took.Add(q.settings.Now() - r.began)
		r.timed = false
	}
	q.ended.add(r, err)
}

// awaitApplied ends a read that has its index, at once or when it is applied here. The caller holds the lock.
func (q *Queue) awaitApplied(r *Read) {
	if q.closed == nil && q.wiring.Applied() >= r.at.Index {
		q.end(r, nil)
		return
	}
	if err := q.reserve(r); err != nil {
		q.end(r, err)
		return
	}
	r.place.Leave()
	q.applying.push(r)
	q.setNext()
	// It may have been applied just before next was set; then Applied did not find the read.
	q.endThrough(q.wiring.Applied())
}

// unlock releases the lock, and tells the reads that have ended under it. Their readers may begin the next
// ones at once, and must not queue at a lock that is held until all are told.
func (q *Queue) unlock() {
	q.countUnconfirmed()
	ended := q.ended
	q.ended = endings{}
	q.bytes -= ended.bytes
	q.mu.Unlock()
	if ended.bytes > 0 {
		q.settings.Budget.Give(ended.bytes) // before a reader begins the next one
	}
	ended.tell()
}

// setNext publishes which index is waited for next.
func (q *Queue) setNext() {
	if next := q.applying.first(); next != nil {
		q.next.Store(next.at.Index - 1)
		return
	}
	q.next.Store(math.MaxUint64)
}

// endThrough ends the reads whose index is applied. The caller holds the lock.
func (q *Queue) endThrough(applied uint64) {
	for next := q.applying.first(); next != nil && next.at.Index <= applied; next = q.applying.first() {
		q.end(next, nil)
	}
	q.setNext()
}

// Applied is called, by a lane or by the turn, when entries through index are applied. It costs one load
// while no read waits.
func (q *Queue) Applied(index uint64) {
	if index <= q.next.Load() {
		return
	}
	q.mu.Lock()
	defer q.unlock()
	q.endThrough(index)
}

// giveUp ends a read for which its reader does not wait any more.
func (q *Queue) giveUp(r *Read, err error) {
	q.mu.Lock()
	defer q.unlock()
	if r.place.In() == nil && r.waitsAt == 0 {
		return // it is done, or its function runs
	}
	if r.place.In() == &q.between {
		q.betweens.Add(-1)
	}
	q.end(r, err)
	q.setNext()
}

// Close ends all reads with an error, and all later ones: the group has ended. The first error stays.
func (q *Queue) Close(why error) {
	q.mu.Lock()
	defer q.unlock()
	if q.closed == nil || q.halted {
		q.halted = false
		q.questions, q.answers = nil, nil
		q.refuse(why)
	}
}

// Suspend ends all reads, and later ones at once, until Resume: the machine is halted.
func (q *Queue) Suspend(why error) {
	q.mu.Lock()
	defer q.unlock()
	if q.closed == nil || q.halted {
		q.halted = true
		q.refuse(why)
	}
}

// Resume ends what Suspend has begun.
func (q *Queue) Resume() {
	q.mu.Lock()
	defer q.unlock()
	if q.halted {
		q.halted, q.closed = false, nil
	}
}

// refuse ends all reads with an error, and later ones at once. The caller holds the lock.
func (q *Queue) refuse(why error) {
	q.closed = why
	q.lease.Store(nil)
	for _, list := range []*sched.Ring[*Read]{&q.fresh, &q.asked, &q.between} {
		for p := list.Pop(); p != nil; p = list.Pop() {
			q.end(p.Owner, why)
		}
	}
	q.betweens.Store(0)
	for next := q.applying.first(); next != nil; next = q.applying.first() {
		q.end(next, why)
	}
	q.setNext()
}

// wait reports whether a read waits for a question or its answer, or a question is wanted without one. It
// takes no lock.
func (q *Queue) wait() bool {
	if q.refresh.Load() {
		return true
	}
	return q.unconfirmed.Load() > 0
}

// countUnconfirmed makes known how many reads wait for a question or its answer. The caller holds the lock.
func (q *Queue) countUnconfirmed() { q.unconfirmed.Store(int64(q.fresh.Len() + q.asked.Len())) }

// cover gives all reads that have begun a number, if they have none.
func (q *Queue) cover(number uint64) {
	q.mu.Lock()
	defer q.unlock()
	for p := q.fresh.Pop(); p != nil; p = q.fresh.Pop() {
		p.Owner.number = number
		q.asked.Push(p)
	}
}

// confirm takes an answer: the reads through number may rely on index. asked is when the question was asked;
// known is false if that was long ago.
func (q *Queue) confirm(number, index uint64, asked time.Duration, known bool) {
	q.mu.Lock()
	defer q.unlock()
	if known && (q.latest.index == 0 || asked > q.latest.at) {
		q.latest = confirmed{max(index, q.latest.index), asked}
	}
	for p := q.asked.First(); p != nil && p.Owner.number <= number; p = q.asked.First() {
		p.Leave()
		p.Owner.at = outcome.ReadAt{Index: index}
		q.awaitApplied(p.Owner)
	}
}
