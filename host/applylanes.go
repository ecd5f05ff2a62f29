package host

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft"
)

// applyLanes call the state machines. There are a few lanes for all groups of a host, and a group is on one
// of them at a time. Groups that lead here come first, because their clients wait.
//
// A state machine that hangs holds its lane. The host then starts another lane in its place, up to
// maxSubstitutes, and reports the group (ApplyStalled).
type applyLanes struct {
	now   func() time.Duration
	ticks func() int64 // that were not missed, as of the last beat
	start func(name string, w env.Worker) env.Task
	event func(Event)

	mu      sync.Mutex
	leaders ring[*applyQueue]
	others  ring[*applyQueue]
	lanes   []*applyLane
	idle    []*applyLane
	wanted  int // lanes, apart from those that hang
}

// applyLane is one lane: env.Worker.
type applyLane struct {
	pool *applyLanes
	task env.Task

	// Guarded by the lock of the lanes.
	queue    *applyQueue // on which it works
	since    time.Duration
	reported bool
}

const (
	// maxSubstitutes bounds the lanes that replace those that hang.
	maxSubstitutes = 64
	// applyStall is how long one call of a state machine may take before it is reported.
	applyStall = time.Second
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
	p.lanes, p.idle = append(p.lanes, l), append(p.idle, l)
}

// enqueue tells the lanes that a queue has something.
func (p *applyLanes) enqueue(q *applyQueue) {
	leads := q.group.status.Load().Role == raft.StateLeader
	p.mu.Lock()
	var lane *applyLane
	switch {
	case q.leaving:
	case q.running:
		q.again = true
	case q.ready.in == nil:
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
	if leads {
		p.leaders.push(&q.ready)
	} else {
		p.others.push(&q.ready)
	}
}

func (p *applyLanes) takeIdle() *applyLane {
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	lane := p.idle[last]
	p.idle = p.idle[:last]
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
	next := p.leaders.pop()
	if next == nil {
		next = p.others.pop()
	}
	if next == nil {
		p.makeIdle(l)
		return nil, 0
	}
	q = next.owner
	q.running, q.since = true, p.ticks()
	l.queue, l.since, l.reported = q, p.now(), false
	if share = maxRoundBytes; p.leaders.n+p.others.n > 0 {
		share = maxShareBytes
	}
	return q, share
}

// makeIdle makes a lane idle, unless it is.
func (p *applyLanes) makeIdle(l *applyLane) {
	for _, other := range p.idle {
		if other == l {
			return
		}
	}
	p.idle = append(p.idle, l)
}

// give takes a queue back after a round, and reports whether the lane should look for another one.
func (p *applyLanes) give(l *applyLane, q *applyQueue, left bool) (more bool) {
	leads := q.group.status.Load().Role == raft.StateLeader
	p.mu.Lock()
	q.running, l.queue = false, nil
	gone := q.leaving
	if !gone && !q.failed && (left || q.again || !q.empty() && q.parkedAt() == 0 && !q.short) {
		p.push(q, leads)
	}
	q.again = false
	if more = p.leaders.n+p.others.n > 0; !more {
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
	q.ready.leave()
	running := q.running
	p.mu.Unlock()
	if !running {
		q.group.partDone(theApplyLanes)
	}
}

// look reports state machines that hang, and starts lanes in the place of those that they hold. When such a
// machine comes back there is a lane more than wanted, which the next one that hangs will need.
func (p *applyLanes) look() {
	var events []Event
	now, hang := p.now(), 0
	p.mu.Lock()
	for _, l := range p.lanes {
		if l.queue == nil || now-l.since < applyStall {
			continue
		}
		if hang++; !l.reported {
			l.reported = true
			events = append(events, ApplyStalled{Group: l.queue.group.id, For: now - l.since})
		}
	}
	var woken []*applyLane
	for len(p.lanes)-hang < p.wanted && len(p.lanes) < p.wanted+maxSubstitutes {
		p.addLane()
		if p.leaders.n+p.others.n > 0 {
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
