package sched

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/lock"
)

// Shard runs the turns of its groups. Groups that have something to do wait in a ring, and each call runs
// one of them. A group belongs to one shard for life. Nothing in a turn may wait for a disk, a state
// machine or a network, so one goroutine is enough for a shard. A host has several shards to use several
// processors.
//
// What a group has to do is in its inbox. To give it something, put it there first and wake the group
// after. The shard takes the group out of the ring before the turn empties the inbox, so no wake is lost.
// Both are one step under the lock (Turner.Begin), except for commands.
type Shard struct {
	settings Settings
	task     env.Task

	mu     lock.Mutex
	urgent Ring[*Seat] // elections and membership
	others Ring[*Seat]
	lazy   Ring[*Seat] // have something that can wait for the next tick
	wheel  wheel
	missed int64      // ticks in which this process did not run, since the host was opened
	asked  []Question // belongs to the callback of the clock
	inARow int        // urgent turns since one of the others

	waiting  atomic.Int64 // how many wait in urgent and others; changed under mu
	worker   *Worker
	behind   []*Worker // were replaced while a turn hung
	schedule func(env.Worker) env.Task
	turns    uint64 // so far
}

// Settings are what a shard needs of its host.
type Settings struct {
	Now      func() time.Duration
	LongTurn time.Duration // a turn that takes longer hangs: its group is not vouched for
	Hasten   func()        // a group was woken: the clock must beat at the end of the tick. The lock is held
	Outbox   func() Outbox // of a new worker
	// Answer answers questions, in place. The clock's callback calls it, without the lock.
	Answer func([]Question)
}

// New returns a shard, which runs nothing before Start.
func New(s Settings) *Shard { return &Shard{settings: s} }

// Guard returns the lock of the shard. It may guard what Turner.Begin takes. A caller that holds it calls
// no method of a shard or a seat.
func (s *Shard) Guard() *lock.Mutex { return &s.mu }

// Enter makes a group run on this shard from now on. begin is called with the lock held, before any turn.
func (s *Shard) Enter(seat *Seat, t Turner, begin func(at Time)) {
	s.mu.Lock()
	seat.turner, seat.shard, seat.runnable.Owner, seat.timer.Owner = t, s, seat, seat
	begin(s.now())
	s.mu.Unlock()
	seat.Wake()
}

// now is the time as of the last beat.
func (s *Shard) now() Time { return Time{s.wheel.now, s.missed} }

// enqueue adds a group into a ring, and reports whether the shard must be woken for it.
func (s *Shard) enqueue(seat *Seat, urgent bool) (fresh bool) {
	switch {
	case seat.stuck:
		seat.wokenStuck = true
		return false
	case seat.runnable.In() == &s.urgent || seat.runnable.In() == &s.others && !urgent:
		return false
	case seat.runnable.In() == &s.others:
		seat.runnable.Leave()
	case seat.runnable.In() == &s.lazy:
		seat.runnable.Leave()
		fresh = true
	case seat.closed:
		return false
	default:
		fresh = true
	}
	if urgent {
		s.urgent.Push(&seat.runnable)
	} else {
		s.others.Push(&seat.runnable)
	}
	s.countWaiting()
	s.settings.Hasten()
	return fresh
}

// enqueueLazily makes a group wait for the next wake or tick, unless it waits already. The caller holds the
// lock.
func (s *Shard) enqueueLazily(seat *Seat) {
	if seat.runnable.in == nil && !seat.closed && !seat.stuck {
		s.lazy.Push(&seat.runnable)
		s.settings.Hasten()
	}
}

// leave takes a group out of the ring and the wheel.
func (s *Shard) leave(seat *Seat) {
	seat.runnable.Leave()
	seat.timer.Leave()
	s.countWaiting()
}

// countWaiting makes known how many groups wait. The caller holds the lock.
func (s *Shard) countWaiting() { s.waiting.Store(int64(s.urgent.n + s.others.n)) }

// wakeAll wakes groups of this shard with one lock and one wake.
func (s *Shard) wakeAll(seats []*Seat) {
	fresh := false
	s.mu.Lock()
	for _, seat := range seats {
		fresh = s.enqueue(seat, false) || fresh
	}
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
}

// Advance tells the shard the time, and wakes the groups that are due. The clock of the host calls it.
func (s *Shard) Advance(at Time) {
	fresh := false
	s.mu.Lock()
	s.missed = at.Missed
	s.wheel.advance(at.Ticks, func(seat *Seat) {
		if s.rests(seat) {
			switch v := seat.turner.Deadline(at); {
			case v.Due > at.Ticks:
				s.wheel.set(seat, v.Due)
				return
			case v.Asks:
				s.asked = append(s.asked, Question{Turner: seat.turner, Since: v.Since, seat: seat})
				return
			}
		}
		fresh = s.enqueue(seat, true) || fresh
	})
	for p := s.lazy.Pop(); p != nil; p = s.lazy.Pop() {
		fresh = s.enqueue(p.Owner, false) || fresh
	}
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
	s.ask(at)
}

// ask asks whether groups may sleep on, and wakes those that may not. It is called without the lock: that of
// whatever answers comes before it.
func (s *Shard) ask(at Time) {
	if len(s.asked) == 0 {
		return
	}
	s.settings.Answer(s.asked)
	fresh := false
	s.mu.Lock()
	for i := range s.asked {
		q := &s.asked[i]
		if q.Yes && s.rests(q.seat) && q.seat.timer.in == nil && !q.seat.closed {
			if due, sleeps := q.Turner.Confirmed(at, q.Since); sleeps {
				s.wheel.set(q.seat, due)
				continue
			}
		}
		fresh = s.enqueue(q.seat, true) || fresh
	}
	s.mu.Unlock()
	clear(s.asked)
	s.asked = s.asked[:0]
	if fresh {
		s.task.Wake()
	}
}

// rests reports whether no turn of the group is under way, or waits.
func (s *Shard) rests(seat *Seat) bool {
	return seat.runnable.in == nil && s.worker.underWay() != seat && !seat.stuck
}

// RestsFor reports whether nothing runs, waits, or is due in fewer ticks.
func (s *Shard) RestsFor(ticks int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent.n+s.others.n+s.lazy.n == 0 && s.worker.underWay() == nil && len(s.behind) == 0 && !s.wheel.dueBefore(s.wheel.now+ticks)
}

// next takes the first urgent place or, after maxUrgentInARow of them, one of the others.
func (s *Shard) next() (p *Place[*Seat], urgent bool) {
	defer s.countWaiting()
	if s.inARow < maxUrgentInARow || s.others.n == 0 {
		if p := s.urgent.Pop(); p != nil {
			s.inARow++
			return p, true
		}
	}
	s.inARow = 0
	return s.others.Pop(), false
}

// maxUrgentInARow bounds the urgent turns before one of another group. More deadlines than a processor can
// serve, or a peer that asks for votes without end, must not stop the commands of all groups.
const maxUrgentInARow = 16

// Hangs reports whether a turn has been under way for too long.
func (s *Shard) Hangs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker.underWay() != nil && s.settings.Now()-s.worker.since > s.settings.LongTurn
}

// Counts returns the turns so far, and how many hang.
func (s *Shard) Counts() (turns uint64, hung int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.behind {
		if !w.idle {
			hung++
		}
	}
	return s.turns, hung
}
