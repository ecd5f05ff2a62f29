package apply

import (
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/internal/lock"
)

// Lanes call the state machines. There are a few lanes for all groups of a host, and a group is on one
// of them at a time. Groups that lead here come first, because their clients wait. Groups whose last round
// was long come last. After a long wait they come first, but one lane is left to the others. So
// slow machines hold quick ones up for one round, however many they are.
//
// A state machine that hangs holds its lane. Two rules keep that from the other groups (Look):
//
//   - A lane that has hung for Stall is reported (event.ApplyStalled), and another one is started in its
//     place.
//   - When every lane is in a call and none has taken a queue for Wait, although one waits, three lanes
//     are started for each that there is. So 1,000 machines that hang at once hold the others up for five
//     times Wait on a host with two lanes. If the machines only compute, lanes come free, or new lanes
//     get no processor: then no more are started.
//
// A lane is started only for a queue that has none. So there are never more lanes than groups, apart from the
// wanted ones. They stay when their machines return.
type Lanes struct {
	Wiring

	mu      lock.Mutex
	leaders sched.Ring[*Seat]
	others  sched.Ring[*Seat]
	slow    sched.Ring[*Seat] // their last round was long
	lanes   []*Lane
	idle    []*Lane
	wanted  int   // lanes, apart from those that hang; as Open was told
	onSlow  int   // lanes that work on slow queues
	took    int64 // when a lane has last taken a queue, in ticks that were not missed
}

// Wiring is what the lanes need of their host.
type Wiring struct {
	Now       func() time.Duration
	Ticks     func() int64 // that were not missed
	WaitTicks int64        // Wait, in ticks
	Start     func(name string, w env.Worker) env.Task
	Event     func(event.Event)
}

// Owner is a group as the lanes see it.
type Owner interface {
	ID() uint64
	// Leads reports whether the group leads here: its clients wait.
	Leads() bool
	// Round applies what waits, about maxBytes of it, and reports whether anything is left. It is called by
	// one lane at a time.
	Round(maxBytes int64) (left bool)
	// Wants reports whether a lane should come again. more: the round has left something, or it came
	// meanwhile. The lock of the lanes is held.
	Wants(more bool) bool
	// Released says that the lanes do nothing for the group any more.
	Released()
}

// Seat is the place of a group at the lanes. Init makes it one. The lock of the lanes guards it.
type Seat struct {
	owner   Owner
	ready   sched.Place[*Seat]
	running bool  // a lane works on it
	again   bool  // and there is more
	leaving bool  // the group is closed
	slow    bool  // the last round was long
	since   int64 // when running or waiting began, in ticks that were not missed
}

// Init makes it the seat of a group.
func (s *Seat) Init(of Owner) { s.owner, s.ready.Owner = of, s }

// Lane is one lane: env.Worker.
type Lane struct {
	pool *Lanes
	task env.Task

	// Guarded by the lock of the lanes.
	seat     *Seat // on which it works
	since    time.Duration
	reported bool
	slow     bool // the queue was slow when it was taken
	isIdle   bool
}

const (
	// Stall is how long one call of a state machine may take before it is reported.
	Stall = time.Second
	// Wait is how long queues wait while all lanes are in calls, before more lanes are started.
	Wait = Stall / 4
	// longRound is how long a round may take before its group comes behind those that are quicker.
	longRound = Stall / 20
	// lanesForEach is how many lanes are started for each that there is, when all are held.
	lanesForEach = 3
)

// Open starts n lanes. So many of them should not hang, from now on.
func (p *Lanes) Open(w Wiring, n int) {
	p.Wiring = w
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = n
	for range n {
		p.addLane()
	}
}

func (p *Lanes) addLane() {
	l := &Lane{pool: p}
	l.task = p.Start(fmt.Sprintf("apply %d", len(p.lanes)+1), l)
	p.lanes = append(p.lanes, l)
	p.makeIdle(l)
}

// Enqueue tells the lanes that a group has something for them.
func (p *Lanes) Enqueue(q *Seat) {
	leads := q.owner.Leads()
	p.mu.Lock()
	lane := p.line(q, leads)
	p.mu.Unlock()
	if lane != nil {
		lane.task.Wake()
	}
}

// line puts a group that has something into a line, unless it is in one or a lane works on it. It returns a
// lane that the caller must wake, or nil. The caller holds the lock.
func (p *Lanes) line(q *Seat, leads bool) (idle *Lane) {
	switch {
	case q.leaving:
	case q.running:
		q.again = true
	case q.ready.In() == nil:
		p.push(q, leads)
		return p.claimIdle()
	}
	return nil
}

func (p *Lanes) push(q *Seat, leads bool) {
	q.since = p.Ticks()
	switch {
	case q.slow:
		p.slow.Push(&q.ready)
	case leads:
		p.leaders.Push(&q.ready)
	default:
		p.others.Push(&q.ready)
	}
}

// waiting returns how many queues wait for a lane. The caller holds the lock.
func (p *Lanes) waiting() int { return p.leaders.Len() + p.others.Len() + p.slow.Len() }

// longest returns since when the queue waits that has waited for longest. The caller holds the lock.
func (p *Lanes) longest() (since int64) {
	since = math.MaxInt64
	for _, r := range []*sched.Ring[*Seat]{&p.leaders, &p.others, &p.slow} {
		if r.Len() > 0 {
			since = min(since, r.First().Owner.since)
		}
	}
	return since
}

// pop takes out the queue that is next.
func (p *Lanes) pop() *sched.Place[*Seat] {
	if p.slow.Len() > 0 && p.onSlow < len(p.lanes)-1 && p.Ticks()-p.slow.First().Owner.since >= p.WaitTicks {
		return p.slow.Pop()
	}
	for _, r := range []*sched.Ring[*Seat]{&p.leaders, &p.others} {
		if r.Len() > 0 {
			return r.Pop()
		}
	}
	return p.slow.Pop()
}

// Awaited reports whether a queue waits for a lane, which look must see.
func (p *Lanes) Awaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting() > 0
}

func (p *Lanes) claimIdle() *Lane {
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	lane := p.idle[last]
	p.idle, lane.isIdle = p.idle[:last], false
	return lane
}

// RunOnce implements env.Worker: one round of one group.
func (l *Lane) RunOnce() (more bool) {
	q, share := l.Begin()
	if q == nil {
		return false
	}
	left := true // stands if a function of the user ends this goroutine: env gives the lane another one
	defer func() { more = l.End(q, left) }()
	left = q.owner.Round(share)
	return
}

// Begin takes the next group, and how much of a round it may have. If there is none, the lane is idle.
func (l *Lane) Begin() (q *Seat, share int64) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.pop()
	if next == nil {
		p.makeIdle(l)
		return nil, 0
	}
	q, p.took = next.Owner, p.Ticks()
	q.running, q.since = true, p.took
	l.seat, l.since, l.reported, l.slow = q, p.Now(), false, q.slow
	if l.slow {
		p.onSlow++
	}
	if share = workqueue.MaxRoundBytes; p.waiting() > 0 {
		share = workqueue.MaxShareBytes
	}
	return q, share
}

// makeIdle makes a lane idle, unless it is.
func (p *Lanes) makeIdle(l *Lane) {
	if !l.isIdle {
		l.isIdle = true
		p.idle = append(p.idle, l)
	}
}

// End takes a group back after a round, and reports whether the lane should look for another one.
func (l *Lane) End(q *Seat, left bool) (more bool) {
	p, leads := l.pool, q.owner.Leads()
	now := p.Now()
	p.mu.Lock()
	q.running, l.seat, q.slow = false, nil, now-l.since >= longRound
	if l.slow {
		p.onSlow--
	}
	gone := q.leaving
	if !gone && q.owner.Wants(left || q.again) {
		p.push(q, leads)
	}
	q.again = false
	if more = p.waiting() > 0; !more {
		p.makeIdle(l)
	}
	p.mu.Unlock()
	if gone {
		q.owner.Released()
	}
	return more
}

// Leave makes the lanes release a group, when none of them works on it.
func (p *Lanes) Leave(q *Seat) {
	p.mu.Lock()
	q.leaving = true
	q.ready.Leave()
	running := q.running
	p.mu.Unlock()
	if !running {
		q.owner.Released()
	}
}

// Tick reports state machines that hang, and starts lanes for the queues that wait behind them. When such a
// machine comes back, there is a lane more than wanted. The next hang will need it.
func (p *Lanes) Tick() {
	var events []event.Event
	now, ticks, hung, busy := p.Now(), p.Ticks(), 0, 0
	p.mu.Lock()
	for _, l := range p.lanes {
		if l.seat == nil {
			continue
		}
		if busy++; now-l.since < Stall {
			continue
		}
		if hung++; !l.reported {
			l.reported = true
			events = append(events, event.ApplyStalled{Group: l.seat.owner.ID(), For: now - l.since})
		}
	}
	waiting := p.waiting()
	more := p.wanted - (len(p.lanes) - hung)
	if waiting > 0 && busy == len(p.lanes) && ticks-max(p.took, p.longest()) >= p.WaitTicks {
		more = max(more, min(lanesForEach*len(p.lanes), waiting))
	}
	var woken []*Lane
	for range more {
		if p.addLane(); len(woken) < waiting {
			woken = append(woken, p.claimIdle())
		}
	}
	p.mu.Unlock()
	for _, l := range woken {
		l.task.Wake()
	}
	for _, e := range events {
		p.Event(e)
	}
}

// All returns the lanes, for the end of the host.
func (p *Lanes) All() []*Lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Lane(nil), p.lanes...)
}

// Task runs the lane.
func (l *Lane) Task() env.Task { return l.task }

// Doing returns the group whose machine the lane is in the middle of.
func (l *Lane) Doing() (group uint64, is bool) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.seat == nil {
		return 0, false
	}
	return l.seat.owner.ID(), true
}

// Counts says how many lanes there are.
type Counts struct {
	Lanes, Busy, Hung int
	Substitutes       int // that were started in the place of others
}

// Counts counts the lanes.
func (p *Lanes) Counts() Counts {
	now := p.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count(now)
}

func (p *Lanes) count(now time.Duration) (c Counts) {
	c.Lanes, c.Substitutes = len(p.lanes), len(p.lanes)-p.wanted
	for _, l := range p.lanes {
		if l.seat == nil {
			continue
		}
		if c.Busy++; now-l.since >= Stall {
			c.Hung++
		}
	}
	return c
}

// State is what the lanes do for one group.
type State struct {
	Counts
	Waits   bool  // for a lane, or in one
	Running bool  // a lane works on it
	Since   int64 // when a lane began to, or since when it waits for one
}

// StateOf returns what the lanes do for a group.
func (p *Lanes) StateOf(q *Seat) State {
	now := p.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Counts: p.count(now), Waits: q.running || q.ready.In() != nil, Running: q.running, Since: q.since}
}
