package host

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/sched"
)

// applyLanes call the state machines. There are a few lanes for all groups of a host, and a group is on one
// of them at a time. Groups that lead here come first, because their clients wait. Groups whose last round
// was long come last. Those that have waited for long come first, but one lane is left to the others. So
// slow machines hold quick ones up for one round, however many they are.
//
// A state machine that hangs holds its lane. Two rules keep that from the other groups (look):
//
//   - A lane that has hung for applyStall is reported (event.ApplyStalled), and another one is started in its
//     place.
//   - When every lane is in a call and none has taken a queue for applyWait, although one waits, three lanes
//     are started for each that there is. So 1,000 machines that hang at once hold the others up for five
//     times applyWait on a host with two lanes. If the machines only compute, lanes come free, or new lanes
//     get no processor: then no more are started.
//
// A lane is started only for a queue that has none. So there are never more lanes than groups, apart from the
// wanted ones. They stay when their machines return.
type applyLanes struct {
	now       func() time.Duration
	ticks     func() int64 // that were not missed
	waitTicks int64        // applyWait, in ticks
	start     func(name string, w env.Worker) env.Task
	event     func(event.Event)

	mu      sync.Mutex
	leaders sched.Ring[*applyQueue]
	others  sched.Ring[*applyQueue]
	slow    sched.Ring[*applyQueue] // their last round was long
	lanes   []*applyLane
	idle    []*applyLane
	wanted  int   // lanes, apart from those that hang; at least minApplyLanes
	onSlow  int   // lanes that work on slow queues
	took    int64 // when a lane has last taken a queue, in ticks that were not missed
}

// applyLane is one lane: env.Worker.
type applyLane struct {
	pool *applyLanes
	task env.Task

	// Guarded by the lock of the lanes.
	queue    *applyQueue // on which it works
	since    time.Duration
	reported bool
	slow     bool // the queue was slow when it was taken
	isIdle   bool
}

const (
	// applyStall is how long one call of a state machine may take before it is reported.
	applyStall = time.Second
	// applyWait is how long queues wait while all lanes are in calls, before more lanes are started.
	applyWait = applyStall / 4
	// longRound is how long a round may take before its group comes behind those that are quicker.
	longRound = applyStall / 20
	// lanesForEach is how many lanes are started for each that there is, when all are held.
	lanesForEach = 3
)

// grow starts lanes until n of them do not hang.
func (p *applyLanes) grow(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = n
	for range n {
		p.addLane()
	}
}

func (p *applyLanes) addLane() {
	l := &applyLane{pool: p}
	l.task = p.start(fmt.Sprintf("apply %d", len(p.lanes)+1), l)
	p.lanes = append(p.lanes, l)
	p.makeIdle(l)
}

// enqueue tells the lanes that a queue has something.
func (p *applyLanes) enqueue(q *applyQueue) {
	leads := q.group.life.status.leads.Load()
	p.mu.Lock()
	var lane *applyLane
	switch {
	case q.leaving:
	case q.running:
		q.again = true
	case q.ready.In() == nil:
		p.push(q, leads)
		lane = p.takeIdle()
	}
	p.mu.Unlock()
	if lane != nil {
		lane.task.Wake()
	}
}

func (p *applyLanes) push(q *applyQueue, leads bool) {
	q.since = p.ticks()
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
func (p *applyLanes) waiting() int { return p.leaders.Len() + p.others.Len() + p.slow.Len() }

// longest returns since when the queue waits that has waited for longest. The caller holds the lock.
func (p *applyLanes) longest() (since int64) {
	since = math.MaxInt64
	for _, r := range []*sched.Ring[*applyQueue]{&p.leaders, &p.others, &p.slow} {
		if r.Len() > 0 {
			since = min(since, r.First().Owner.since)
		}
	}
	return since
}

// pop takes out the queue that is next.
func (p *applyLanes) pop() *sched.Place[*applyQueue] {
	if p.slow.Len() > 0 && p.onSlow < len(p.lanes)-1 && p.ticks()-p.slow.First().Owner.since >= p.waitTicks {
		return p.slow.Pop()
	}
	for _, r := range []*sched.Ring[*applyQueue]{&p.leaders, &p.others} {
		if r.Len() > 0 {
			return r.Pop()
		}
	}
	return p.slow.Pop()
}

// awaited reports whether a queue waits for a lane, which look must see.
func (p *applyLanes) awaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting() > 0
}

func (p *applyLanes) takeIdle() *applyLane {
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	lane := p.idle[last]
	p.idle, lane.isIdle = p.idle[:last], false
	return lane
}

// RunOnce implements env.Worker: one round of one group.
func (l *applyLane) RunOnce() (more bool) {
	q, share := l.pool.take(l)
	if q == nil {
		return false
	}
	left := true // stands if a function of the user ends this goroutine: env gives the lane another one
	defer func() { more = l.pool.give(l, q, left) }()
	left = q.applyRound(share)
	return
}

// take takes the next queue, or makes the lane idle.
func (p *applyLanes) take(l *applyLane) (q *applyQueue, share int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.pop()
	if next == nil {
		p.makeIdle(l)
		return nil, 0
	}
	q, p.took = next.Owner, p.ticks()
	q.running, q.since = true, p.took
	l.queue, l.since, l.reported, l.slow = q, p.now(), false, q.slow
	if l.slow {
		p.onSlow++
	}
	if share = maxRoundBytes; p.waiting() > 0 {
		share = maxShareBytes
	}
	return q, share
}

// makeIdle makes a lane idle, unless it is.
func (p *applyLanes) makeIdle(l *applyLane) {
	if !l.isIdle {
		l.isIdle = true
		p.idle = append(p.idle, l)
	}
}

// give takes a queue back after a round, and reports whether the lane should look for another one.
func (p *applyLanes) give(l *applyLane, q *applyQueue, left bool) (more bool) {
	leads := q.group.life.status.leads.Load()
	now := p.now()
	p.mu.Lock()
	q.running, l.queue, q.slow = false, nil, now-l.since >= longRound
	if l.slow {
		p.onSlow--
	}
	gone := q.leaving
	if !gone && !q.failed && (left || q.again || !q.empty() && q.parkedAt() == 0 && !q.short && q.halted() == nil) {
		p.push(q, leads)
	}
	q.again = false
	if more = p.waiting() > 0; !more {
		p.makeIdle(l)
	}
	p.mu.Unlock()
	if gone {
		q.group.partDone(theApplyLanes)
	}
	return more
}

// leave makes the lanes release a group. partDone is called when no lane works on it.
func (p *applyLanes) leave(q *applyQueue) {
	p.mu.Lock()
	q.leaving = true
	q.ready.Leave()
	running := q.running
	p.mu.Unlock()
	if !running {
		q.group.partDone(theApplyLanes)
	}
}

// look reports state machines that hang, and starts lanes for the queues that those keep from one. When such
// a machine comes back there is a lane more than wanted, which the next one that hangs will need.
func (p *applyLanes) look() {
	var events []event.Event
	now, ticks, hung, busy := p.now(), p.ticks(), 0, 0
	p.mu.Lock()
	for _, l := range p.lanes {
		if l.queue == nil {
			continue
		}
		if busy++; now-l.since < applyStall {
			continue
		}
		if hung++; !l.reported {
			l.reported = true
			events = append(events, event.ApplyStalled{Group: l.queue.group.id, For: now - l.since})
		}
	}
	waiting := p.waiting()
	more := p.wanted - (len(p.lanes) - hung)
	if waiting > 0 && busy == len(p.lanes) && ticks-max(p.took, p.longest()) >= p.waitTicks {
		more = max(more, min(lanesForEach*len(p.lanes), waiting))
	}
	var woken []*applyLane
	for range more {
		if p.addLane(); len(woken) < waiting {
			woken = append(woken, p.takeIdle())
		}
	}
	p.mu.Unlock()
	for _, l := range woken {
		l.task.Wake()
	}
	for _, e := range events {
		p.event(e)
	}
}

// all returns the lanes, for the end of the host.
func (p *applyLanes) all() []*applyLane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*applyLane(nil), p.lanes...)
}
