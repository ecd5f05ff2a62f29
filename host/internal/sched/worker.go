package sched

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/internal/lock"
)

// A turn must not wait, but a state machine that is declared NonBlocking may break its promise. Then the
// shard is taken over: another worker runs the turns of the other groups, and the group that hangs is left
// behind until its turn returns. Its host does not vouch for it meanwhile. At most one worker for each group
// is left behind.

// Worker runs the turns of a shard: env.Gatherer. One of them does so at a time.
type Worker struct {
	*Shard
	task env.Task

	// Guarded by the lock of the shard.
	turn    *Seat         // the latest; phase says whether it is under way
	since   time.Duration // of that turn
	retired bool          // another one runs the turns
	idle    bool          // it was retired, and its last turn has returned

	// phase makes most ends of a turn need no lock. Each of its changes is made under the lock of the shard,
	// except that from free to ended.
	phase atomic.Uint32

	// Owned by its turns.
	due    int64  // the tick at which the wheel had the group when its turn began; 0: it must be set
	outbox Outbox // what they send while other groups wait
	unsent int    // turns whose messages may be in it
}

// The phases of a turn.
const (
	ended uint32 = iota // or none has begun
	free                // under way, and may end without the lock
	held                // under way, and ends under the lock: a caller must know when
)

// RunOnce implements env.Worker: one turn of one group.
func (w *Worker) RunOnce() (more bool) {
	seat, at, crowded := w.Begin()
	if seat == nil {
		w.flush() // a group that waited was closed
		return false
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			panic(p) // the process ends, and must not wait for a lock
		}
		w.End(seat, true, turn.Never) // a function of the user ends this goroutine
	}()
	again, due := seat.turner.Turn(at, crowded, w.outbox)
	returned = true
	more, alone := w.End(seat, again, due)
	if w.unsent++; alone || w.unsent >= maxUnsentTurns {
		w.flush()
	}
	return more
}

func (w *Worker) flush() {
	w.unsent = 0
	w.outbox.Flush()
}

// maxUnsentTurns is how many turns may pass before their messages go to the transport, while other groups
// wait. With one client in each of a thousand groups a turn has one message for a peer; sent by itself it
// costs a system call here and another there, more than the turn. Turns take microseconds, so a message waits
// for less than a millisecond.
const maxUnsentTurns = 32

// Begin takes the next group out of the ring, or returns nil: a turn of it is under way until End. crowded
// means that others wait behind it. RunOnce calls both.
func (w *Worker) Begin() (seat *Seat, at Time, crowded bool) {
	s := w.Shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.retired {
		return nil, Time{}, false
	}
	p := s.next()
	if p == nil {
		return nil, Time{}, false
	}
	s.turns++
	seat = p.Owner
	w.turn, w.since, w.due = seat, s.settings.Now(), 0
	if seat.timer.in != nil {
		w.due = seat.due
		s.wheel.set(seat, seat.due) // behind those that are due with it: they run in the order of their latest turns
	}
	w.phase.Store(free)
	crowded = s.urgent.n+s.others.n > 0
	seat.turner.Begin(crowded)
	return seat, s.now(), crowded
}

// underWay returns the group whose turn is under way, or nil. The caller holds the lock.
func (w *Worker) underWay() *Seat {
	if w.phase.Load() == ended {
		return nil
	}
	return w.turn
}

// hold reports whether a turn of the group is under way, which then ends under the lock. The caller holds the
// lock.
func (w *Worker) hold(seat *Seat) bool {
	return w.turn == seat && (w.phase.CompareAndSwap(free, held) || w.phase.Load() == held)
}

// End takes a group back after its turn, and reports whether any group waits, and whether no other does. It
// takes no lock if the group need not run again and is due when it was, unless the turn is held.
func (w *Worker) End(seat *Seat, again bool, due int64) (more, alone bool) {
	// The one that waits may be this group. What comes after the look wakes the shard.
	if waiting := w.waiting.Load(); !again && due == w.due && waiting != 1 && w.phase.CompareAndSwap(free, ended) {
		return waiting > 0, waiting == 0
	}
	s := w.Shard
	s.mu.Lock()
	w.turn = nil
	w.phase.Store(ended)
	retired := w.retired
	if retired {
		again = again || seat.wokenStuck
		w.idle, seat.stuck, seat.wokenStuck = true, false, false
	}
	closed := seat.closed
	if !closed {
		if again {
			s.enqueue(seat, false)
		}
		s.wheel.set(seat, due)
	}
	waiting := s.urgent.n + s.others.n
	more, alone = waiting > 0, waiting == 0 || waiting == 1 && (seat.runnable.in == &s.urgent || seat.runnable.in == &s.others)
	s.mu.Unlock()
	if retired && more {
		s.task.Wake() // the worker that runs the turns now
	}
	if closed {
		seat.turner.Left()
	}
	return more && !retired, alone || retired
}

// Gathers implements env.Gatherer. A worker that was replaced is woken once more, to be stopped.
func (w *Worker) Gathers() bool {
	w.mu.Lock()
	retired := w.retired
	w.mu.Unlock()
	return !retired && w.Shard.Gathers()
}

// relay is the task of the worker that runs the turns of a shard at present.
type relay struct {
	mu   lock.Mutex
	task env.Task
}

// Wake implements env.Task.
func (r *relay) Wake() {
	r.mu.Lock()
	task := r.task
	r.mu.Unlock()
	task.Wake()
}

// Stop implements env.Task.
func (r *relay) Stop() {
	r.mu.Lock()
	task := r.task
	r.mu.Unlock()
	task.Stop()
}

func (r *relay) replace(task env.Task) {
	r.mu.Lock()
	r.task = task
	r.mu.Unlock()
}

// Start schedules the first worker of the shard.
func (s *Shard) Start(schedule func(env.Worker) env.Task) {
	s.schedule = schedule
	s.worker = s.newWorker()
	s.worker.task = schedule(s.worker)
	s.task = &relay{task: s.worker.task}
}

func (s *Shard) newWorker() *Worker {
	return &Worker{Shard: s, outbox: s.settings.Outbox()}
}

// TakeOver replaces the worker if its turn hangs. It returns the group that is left behind, or nil, and for
// how long its turn has run.
func (s *Shard) TakeOver() (t Turner, ran time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seat := s.worker.underWay()
	if ran = s.settings.Now() - s.worker.since; seat == nil || ran <= s.settings.LongTurn || !s.worker.hold(seat) {
		return nil, 0
	}
	seat.stuck, seat.wokenStuck = true, true
	s.leave(seat)
	s.worker.retired = true
	s.behind = append(s.behind, s.worker)
	s.worker = s.newWorker()
	s.worker.task = s.schedule(s.worker)
	s.task.(*relay).replace(s.worker.task)
	s.worker.task.Wake()
	return seat.turner, ran
}

// Reap stops the workers that were replaced and have returned. They are asleep.
func (s *Shard) Reap() {
	for _, w := range s.claimIdle() {
		w.task.Stop()
	}
}

func (s *Shard) claimIdle() (idle []*Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.behind) == 0 {
		return nil
	}
	kept := s.behind[:0]
	for _, w := range s.behind {
		if w.idle {
			idle = append(idle, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(s.behind[len(kept):])
	s.behind = kept
	return idle
}

// Turn returns the group whose turn is under way, or nil.
func (w *Worker) Turn() Turner {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seat := w.underWay(); seat != nil {
		return seat.turner
	}
	return nil
}

// Stop stops the worker when its turn has returned.
func (w *Worker) Stop() { w.task.Stop() }

// Workers returns the workers that have not been stopped, for the end of the host.
func (s *Shard) Workers() []*Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Worker{s.worker}, s.behind...)
}
