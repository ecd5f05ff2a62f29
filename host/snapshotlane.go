package host

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/sched"
)

// snapshotLanes do the work of snapshots that may block on a disk or on a state machine that writes its
// state: taking, and whatever else of snapshots reads and writes files. There are two lanes for all groups of
// a host, so that two groups at most load the disk at a time, and one that hangs does not stop the others.
// A machine whose WriteTo hangs holds its lane: the host then starts another one in its place, one for each
// group at most, and reports it (event.SnapshotStalled).
//
// They also say which group may take a snapshot next. At most maxTakes are under way, from the capture to the
// end, because each holds a view of the state in memory; those that hang are not counted. A group gets a
// grant, and with it its apply lane captures. A grant that is not used until the next beat, because that
// machine hangs in Apply, is not counted any more.
type snapshotLanes struct {
	now   func() time.Duration
	ticks func() int64 // that were not missed, as of the last beat
	start func(name string, w env.Worker) env.Task
	event func(event.Event)

	mu      sync.Mutex
	ready   sched.Ring[*laneWork]
	lanes   []*snapshotLane
	idle    []*snapshotLane
	waiting sched.Ring[*groupSnapshots] // for a grant
	grants  int                         // since the last beat, and not used
	takes   int                         // under way
	hung    int                         // of these
	slow    []*groupSnapshots           // await that their log is durable; they need a turn for it
	later   []*groupSnapshots           // those with a tick at which to look again
	next    int64                       // the first of these ticks
}

// snapshotLane is one lane: env.Worker.
type snapshotLane struct {
	pool *snapshotLanes
	task env.Task

	// Guarded by the lock of the lanes.
	work     *laneWork // on which it works
	since    time.Duration
	reported bool
}

// laneWork is work of a group for the snapshot lanes: a function that does one bounded piece of it per call
// and reports whether it knows of more. It runs on one lane at a time. If the group is closed it does not run
// any more.
type laneWork struct {
	group *Group
	doing string // for people: "which writes a snapshot"
	piece func() (more bool)

	// Guarded by the lock of the lanes.
	place          sched.Place[*laneWork]
	running, again bool
	takes          bool // a piece that hangs is a take that hangs
	hangs          bool
}

const (
	snapshotLaneCount = 2
	maxTakes          = 2
	// snapshotStall is how long one piece of work may take before it is reported: a part of 64 MiB is written
	// and synced in less on any disk, but a machine may write a large state in one piece.
	snapshotStall = 30 * time.Second
)

func (p *snapshotLanes) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range snapshotLaneCount {
		p.addLane()
	}
}

func (p *snapshotLanes) addLane() {
	l := &snapshotLane{pool: p}
	l.task = p.start(fmt.Sprintf("snapshots %d", len(p.lanes)+1), l)
	p.lanes, p.idle = append(p.lanes, l), append(p.idle, l)
}

// enqueue makes a lane run the work. If it runs already it runs once more. It may be called from anywhere.
func (p *snapshotLanes) enqueue(w *laneWork) {
	p.mu.Lock()
	var lane *snapshotLane
	switch {
	case w.group.isLeaving():
	case w.running:
		w.again = true
	case w.place.In() == nil:
		w.place.Owner = w
		p.ready.Push(&w.place)
		lane = p.takeIdle()
	}
	p.mu.Unlock()
	if lane != nil {
		lane.task.Wake()
	}
}

func (p *snapshotLanes) takeIdle() *snapshotLane {
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	lane := p.idle[last]
	p.idle = p.idle[:last]
	return lane
}

// RunOnce implements env.Worker: one piece of work.
func (l *snapshotLane) RunOnce() (more bool) {
	w := l.pool.takeWork(l)
	if w == nil {
		return false
	}
	left := false // stands if a function of the user ends this goroutine: env gives the lane another one
	defer func() { more = l.pool.give(l, w, left) }()
	left = w.piece()
	return
}

// takeWork takes the next work, or makes the lane idle.
func (p *snapshotLanes) takeWork(l *snapshotLane) *laneWork {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.ready.Pop()
	if next == nil {
		p.makeIdle(l)
		return nil
	}
	w := next.Owner
	w.running = true
	w.group.snapshots.onSnapshotLanes++
	l.work, l.since, l.reported = w, p.now(), false
	return w
}

func (p *snapshotLanes) makeIdle(l *snapshotLane) {
	for _, other := range p.idle {
		if other == l {
			return
		}
	}
	p.idle = append(p.idle, l)
}

// give takes work back after a piece, and reports whether the lane should look for more.
func (p *snapshotLanes) give(l *snapshotLane, w *laneWork, left bool) (more bool) {
	p.mu.Lock()
	w.running, l.work = false, nil
	if w.hangs {
		w.hangs = false
		p.hung--
	}
	if (left || w.again) && !w.group.isLeaving() {
		p.ready.Push(&w.place)
	}
	w.again = false
	w.group.snapshots.onSnapshotLanes--
	gone := w.group.isLeaving() && w.group.snapshots.onSnapshotLanes == 0
	if more = p.ready.Len() > 0; !more {
		p.makeIdle(l)
	}
	p.mu.Unlock()
	if gone {
		w.group.partDone(theSnapshotLanes)
	}
	return more
}

// leave makes the lanes release a group. partDone is called when no lane works for it.
func (p *snapshotLanes) leave(g *Group) {
	p.mu.Lock()
	for at := p.ready.First(); at != nil; {
		next := at.Next()
		if at.Owner.group == g {
			at.Leave()
		}
		at = next
	}
	s := &g.snapshots
	s.place.Leave()
	p.drop(&p.later, s)
	p.drop(&p.slow, s)
	s.timed, s.at = false, 0
	running := g.snapshots.onSnapshotLanes > 0
	p.mu.Unlock()
	if !running {
		g.partDone(theSnapshotLanes)
	}
}

func (p *snapshotLanes) drop(from *[]*groupSnapshots, s *groupSnapshots) {
	for i, other := range *from {
		if other == s {
			*from = append((*from)[:i], (*from)[i+1:]...)
			return
		}
	}
}

// admit puts a group among those that wait for a grant, and grants.
func (p *snapshotLanes) admit(s *groupSnapshots) {
	p.mu.Lock()
	if s.place.In() == nil && !s.group.isLeaving() {
		p.waiting.Push(&s.place)
	}
	granted := p.grant()
	p.mu.Unlock()
	capture(granted)
}

// grant gives grants to those that have waited for longest. The caller holds the lock, and captures.
func (p *snapshotLanes) grant() (granted []*groupSnapshots) {
	for p.waiting.Len() > 0 && p.takes-p.hung+p.grants < maxTakes {
		s := p.waiting.Pop().Owner
		p.grants++
		granted = append(granted, s)
	}
	return granted
}

// capture makes the apply lanes capture.
func capture(granted []*groupSnapshots) {
	for _, s := range granted {
		s.granted.Store(true)
		s.group.host.appliers.enqueue(s.group.machine.apply)
	}
}

// begin turns a grant into a take, or reports that there is no room: the grant was not used for too long.
func (p *snapshotLanes) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = max(p.grants-1, 0)
	if p.takes-p.hung >= maxTakes {
		return false
	}
	p.takes++
	return true
}

// end ends a take that has begun, or, with began false, gives an unused grant back.
func (p *snapshotLanes) end(began bool) {
	p.mu.Lock()
	if began {
		p.takes--
	} else {
		p.grants = max(p.grants-1, 0)
	}
	granted := p.grant()
	p.mu.Unlock()
	capture(granted)
}

// await makes the group have turns until what it has written is durable.
func (p *snapshotLanes) await(s *groupSnapshots, is bool) {
	p.mu.Lock()
	p.drop(&p.slow, s)
	if is && !s.group.isLeaving() {
		p.slow = append(p.slow, s)
	}
	p.mu.Unlock()
	if is {
		s.group.wake()
	}
}

// lookAgain looks at a group again in some ticks, unless it does so earlier.
func (p *snapshotLanes) lookAgain(s *groupSnapshots, ticks int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.group.isLeaving() {
		return
	}
	if !s.timed {
		s.timed = true
		p.later = append(p.later, s)
	}
	s.at = p.ticks() + max(ticks, 1)
	if len(p.later) == 1 || s.at < p.next {
		p.next = s.at
	}
}

// look is called at each beat of the clock. It reports work that hangs, starts lanes in its place, wakes
// groups that must say what is durable, and asks those for a snapshot whose time has come.
func (p *snapshotLanes) look() {
	var events []event.Event
	now, ticks, hang := p.now(), p.ticks(), 0
	p.mu.Lock()
	for _, l := range p.lanes {
		if l.work == nil || now-l.since < snapshotStall {
			continue
		}
		if hang++; !l.reported {
			l.reported = true
			events = append(events, event.SnapshotStalled{Group: l.work.group.id, For: now - l.since, Doing: l.work.doing})
			if l.work.takes && !l.work.hangs {
				l.work.hangs = true
				p.hung++
			}
		}
	}
	var woken []*snapshotLane
	for len(p.lanes)-hang < snapshotLaneCount {
		p.addLane()
		if p.ready.Len() > 0 {
			woken = append(woken, p.takeIdle())
		}
	}
	p.grants = 0
	granted := p.grant()
	slow := append([]*groupSnapshots(nil), p.slow...)
	due := p.takeDue(ticks)
	p.mu.Unlock()
	for _, l := range woken {
		l.task.Wake()
	}
	capture(granted)
	for _, s := range slow {
		s.group.wake()
	}
	for _, s := range due {
		s.lookAt()
	}
	for _, e := range events {
		p.event(e)
	}
}

// takeDue takes out those whose tick has come.
func (p *snapshotLanes) takeDue(ticks int64) (due []*groupSnapshots) {
	if len(p.later) == 0 || ticks < p.next {
		return nil
	}
	kept := p.later[:0]
	for _, s := range p.later {
		if s.at <= ticks {
			s.timed, s.at = false, 0
			due = append(due, s)
			continue
		}
		if len(kept) == 0 || s.at < p.next {
			p.next = s.at
		}
		kept = append(kept, s)
	}
	clear(p.later[len(kept):])
	p.later = kept
	return due
}

// hangs returns since when work of a group hangs on a lane, and which.
func (p *snapshotLanes) hangsFor(g *Group) (doing string, since time.Duration, hangs bool) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l.work != nil && l.work.group == g && now-l.since >= snapshotStall {
			return l.work.doing, now - l.since, true
		}
	}
	return "", 0, false
}

// all returns the lanes, for the end of the host.
func (p *snapshotLanes) all() []*snapshotLane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*snapshotLane(nil), p.lanes...)
}

// doing says what the lane is in the middle of.
func (l *snapshotLane) doing() string {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if w := l.work; w != nil {
		return fmt.Sprintf("group %d, %s", w.group.id, w.doing)
	}
	return "a snapshot lane"
}

// hostBulk is what is long: snapshots and objects, made, installed and sent.
type hostBulk struct {
	snapshotLanes snapshotLanes
	transfers     transfers
	uninstalled   map[uint64]error // why received snapshots of groups could not be installed; it is not changed after Open
}
