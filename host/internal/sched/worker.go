package sched

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/turn"
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
	urgent bool   // one of them was urgent
	holds  bool   // no group waits, and the next RunOnce sends if none has come
	goesOn bool   // the last RunOnce was not the end of a run

	gathering Gathering // before it sends
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
	w.holds, w.goesOn = false, false
	if seat == nil {
		w.flush() // nothing has come, or a group that waited was closed
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
	w.unsent++
	switch {
	case w.unsent < maxUnsentTurns && alone && !more && w.mayHold():
		w.holds, more = true, true
	case w.unsent >= maxUnsentTurns || alone:
		w.flush()
	}
	w.goesOn = more
	return more
}

// mayHold reports whether the messages of the last turns may wait until the goroutines that are ready have
// run. These often bring something for other groups, whose messages then share the frames. The messages of a
// group alone never wait, nor do those of elections and deadlines.
func (w *Worker) mayHold() bool {
	return w.unsent > 1 && !w.urgent && w.gathering.Begins(0)
}

func (w *Worker) flush() {
	w.unsent, w.urgent = 0, false
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
	p, urgent := s.next()
	if p == nil {
		return nil, Time{}, false
	}
	w.urgent = w.urgent || urgent
	s.turns++
	seat = p.Owner
	w.turn, w.since, w.due = seat, s.settings.Now(), 0
	if seat.timer.in != nil {
		w.due = seat.due
		s.wheel.set(seat, seat.due) // behind those that are due with it: they run in the order of their latest turns
	}
	w.phase.Store(free)
	crowded = s.urgent.n+s.others.n > 0
	seat.turner.Begin(w.since, crowded)
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

// Gathers implements env.Gatherer: before a worker sends, and before the first turn of a run. A turn for many
// commands costs little more than one for a single command. It asks only if one group has something to do:
// with several, one gathers while another runs.
func (w *Worker) Gathers() bool {
	if w.holds || w.goesOn {
		return w.holds
	}
	t := w.Gatherer()
	return t != nil && t.Gathers()
}

// Gathered implements env.Gatherer.
func (w *Worker) Gathered(took time.Duration) {
	if w.holds {
		w.gathering.Ends(took, int(w.waiting.Load()))
		return
	}
	w.mu.Lock()
	p := w.others.first
	w.mu.Unlock()
	if p != nil {
		p.Owner.turner.Gathered(took)
	}
}

// Gatherer returns the group that may gather, or nil. A worker that was replaced is woken once more, to be
// stopped. It takes no lock if several groups wait, or none.
func (w *Worker) Gatherer() Turner {
	s := w.Shard
	if s.waiting.Load() != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.retired || s.urgent.n > 0 || s.others.n != 1 {
		return nil
	}
	return s.others.first.Owner.turner
}

// relay is the task of the worker that runs the turns of a shard at present.
type relay struct{ task atomic.Pointer[env.Task] }

func newRelay(task env.Task) *relay {
	r := &relay{}
	r.replace(task)
	return r
}

// Wake implements env.Task.
func (r *relay) Wake() { (*r.task.Load()).Wake() }

// Stop implements env.Task.
func (r *relay) Stop() { (*r.task.Load()).Stop() }

func (r *relay) replace(task env.Task) { r.task.Store(&task) }

// Start schedules the first worker of the shard.
func (s *Shard) Start(schedule func(env.Worker) env.Task) {
	s.schedule = schedule
	s.worker = s.newWorker()
	s.worker.task = schedule(s.worker)
	s.task = newRelay(s.worker.task)
}

func (s *Shard) newWorker() *Worker {
	return &Worker{Shard: s, outbox: s.settings.Outbox(), gathering: Gathering{Now: s.settings.Now}}
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

// Stop stops the worker when its turn has returned, and sends what it holds.
func (w *Worker) Stop() {
	w.task.Stop()
	w.flush()
}

// Workers returns the workers that have not been stopped, for the end of the host.
func (s *Shard) Workers() []*Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Worker{s.worker}, s.behind...)
}
