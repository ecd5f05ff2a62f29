package sched

import "time"

// Turner is a group as its shard sees it.
type Turner interface {
	// Begin takes what the next turn works on. It is called with the lock of the shard (Shard.Guard), as the
	// turn begins, in place of a lock of its own. now is the time by the clock: a turn need not read it.
	Begin(now time.Duration, crowded bool)
	// Turn runs one turn. It reports whether the group must run again, and at which tick it must run in any
	// case. crowded means that other groups wait. What the turn sends may go to out, until the worker
	// flushes.
	Turn(at Time, crowded bool, out Outbox) (again bool, due int64)
	// Deadline says what to do about a group whose tick has come while no turn of it runs or waits. It is
	// called with the lock of the shard.
	Deadline(at Time) Verdict
	// Confirmed is called, with the lock of the shard, if a Question of Deadline was answered with yes. It
	// returns the next tick at which the group is due, or that a turn must run now.
	Confirmed(at Time, since int64) (due int64, sleeps bool)
	// Left is called after the turn that was under way when the seat was left.
	Left()
	// Gathers and Gathered are those of env.Gatherer, for a group that runs alone.
	Gathers() bool
	Gathered(took time.Duration)
}

// Time is the time as a turn sees it, in ticks since the host was opened.
type Time struct {
	Ticks  int64
	Missed int64 // how many of them the process has missed
}

// Verdict is what follows when the tick of a group has come. The zero value: a turn.
type Verdict struct {
	Due   int64 // above now: it sleeps until this tick
	Asks  bool  // the host is asked (Settings.Answer), and a turn runs if the answer is no
	Since int64 // of the Question
}

// Question is whether a group may sleep on.
type Question struct {
	Turner Turner
	Since  int64
	Yes    bool // the answer

	seat *Seat
}

// Outbox collects what the turns of one worker send.
type Outbox interface {
	// Flush sends what was collected: no other group waits, or has waited for many turns.
	Flush()
}

// Seat is the place of a group in its shard. Its methods may be called by any goroutine.
type Seat struct {
	turner Turner
	shard  *Shard

	// Guarded by the lock of the shard.
	runnable   Place[*Seat]
	timer      Place[*Seat]
	due        int64 // the tick at which it is in the wheel
	closed     bool  // it has left the shard
	stuck      bool  // its turn hangs, and the shard goes on without it
	wokenStuck bool  // it was woken meanwhile
}

// Shard returns the shard of the seat.
func (seat *Seat) Shard() *Shard { return seat.shard }

// Close makes it a seat that never gets a turn, instead of Enter.
func (seat *Seat) Close(s *Shard) { seat.shard, seat.closed = s, true }

// Wake makes the group run a turn that begins after this call.
func (seat *Seat) Wake() { seat.wake(false) }

// WakeUrgently is Wake for elections and membership: the turn comes before those of other groups.
func (seat *Seat) WakeUrgently() { seat.wake(true) }

func (seat *Seat) wake(urgent bool) {
	s := seat.shard
	s.mu.Lock()
	fresh := s.enqueue(seat, urgent)
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
}

// WakeLazily makes the group run a turn before long: with its next wake, or at the next tick. It wakes
// nothing.
func (seat *Seat) WakeLazily() {
	s := seat.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueueLazily(seat)
}

// Give calls put with the lock of the shard held. If put returns true, Give is WakeLazily, too.
func (seat *Seat) Give(put func() (lazily bool)) {
	s := seat.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if put() {
		s.enqueueLazily(seat)
	}
}

// Leave makes the group run no more, and reports whether it does not run now. A turn that is under way is the
// last, and Turner.Left is called after it.
func (seat *Seat) Leave() (idle bool) {
	s := seat.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	seat.closed = true
	s.leave(seat)
	if s.worker.hold(seat) || seat.stuck {
		return false
	}
	if s.worker.turn == seat {
		s.worker.turn = nil // which would keep the group in memory
	}
	return true
}

// Due returns the tick at which the group is due, as its last turn said.
func (seat *Seat) Due() int64 {
	s := seat.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	return seat.due
}

// Runs returns for how long a turn of the group has been under way.
func (seat *Seat) Runs() (ran time.Duration, is bool) {
	s := seat.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range append(s.behind[:len(s.behind):len(s.behind)], s.worker) {
		if w.underWay() == seat {
			return s.settings.Now() - w.since, true
		}
	}
	return 0, false
}

// Woken collects groups that were given something, to wake each shard once for all of its groups, in the
// order in which they came. It is reused by all hosts of a process, so between two uses it names no shard.
// Otherwise an earlier use would decide about the order, and the hosts of earlier uses would stay in
// memory.
type Woken []shardSeats

type shardSeats struct {
	shard *Shard
	seats []*Seat
}

// Add adds a group.
func (w *Woken) Add(seat *Seat) {
	for i := range *w {
		if (*w)[i].shard == seat.shard {
			(*w)[i].seats = append((*w)[i].seats, seat)
			return
		}
	}
	n := len(*w)
	if n == cap(*w) {
		*w = append(*w, shardSeats{})
	}
	*w = (*w)[:n+1] // with the memory of an earlier use
	(*w)[n].shard, (*w)[n].seats = seat.shard, append((*w)[n].seats, seat)
}

// Wake wakes the groups, and forgets them.
func (w *Woken) Wake() {
	for i := range *w {
		of := &(*w)[i]
		of.shard.wakeAll(of.seats)
		clear(of.seats)
		of.shard, of.seats = nil, of.seats[:0]
	}
	*w = (*w)[:0]
}
