package snapshots

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/internal/lock"
)

// Lanes do the work of snapshots that may block on a disk or on a state machine: taking, and what else of
// snapshots reads and writes files. There are two for all groups of a host. So two groups at most load the
// disk at a time, and a group that hangs does not stop the others. A machine whose WriteTo hangs holds its
// lane: the host then starts another one in its place, one for each group at most, and reports it
// (event.SnapshotStalled).
//
// They also say which group may take a snapshot next. At most maxTakes are under way, from the capture to the
// end, because each holds a view of the state in memory; those that hang are not counted. A group gets a
// grant, and with it its apply lane captures. A grant that is not used until the next beat, because that
// machine hangs in Apply, is not counted any more.
type Lanes struct {
	Wiring

	mu      lock.Mutex
	ready   sched.Ring[*Work]
	lanes   []*Lane
	idle    []*Lane
	waiting sched.Ring[*Seat] // for a grant
	grants  int               // since the last beat, and not used
	takes   int               // under way
	hung    int               // of these
	slow    []*Seat           // Await that their log is durable; they need a turn for it
	later   []*Seat           // those with a tick at which to look again
	next    int64             // the first of these ticks
}

// Wiring is what the lanes need of their host.
type Wiring struct {
	Now   func() time.Duration
	Ticks func() int64 // that were not missed, as of the last beat
	Start func(name string, w env.Worker) env.Task
	Event func(event.Event)
}

// Tenant is a group as the lanes see it. They call it with no lock held, except where noted.
type Tenant interface {
	ID() uint64
	// IsLeaving reports whether the group is closed. The lanes' lock is held.
	IsLeaving() bool
	// Released is called when no lane works for a group that is leaving.
	Released()
	// Wake makes the group have a turn.
	Wake()
	// Granted is called when the group may capture.
	Granted()
	// Inspect is called when a tick of InspectLater has come.
	Inspect()
}

// Seat is the place of a group at the lanes. Init makes it one.
type Seat struct {
	tenant Tenant

	// Guarded by the lock of the lanes.
	running int                // pieces of work
	place   sched.Place[*Seat] // among those that wait for a grant
	at      int64              // tick at which to look again; 0: never
	timed   bool               // it is among those
}

// Init makes it the seat of a group.
func (s *Seat) Init(of Tenant) { s.tenant, s.place.Owner = of, s }

// SeatOfFormer returns a seat for the work that is left of a group that is not open any more.
func SeatOfFormer(group uint64) *Seat {
	s := &Seat{}
	s.Init(former(group))
	return s
}

// former implements Tenant.
type former uint64

func (f former) ID() uint64    { return uint64(f) }
func (former) IsLeaving() bool { return false }
func (former) Released()       {}
func (former) Wake()           {}
func (former) Granted()        {}
func (former) Inspect()        {}

// Lane is one lane: env.Worker.
type Lane struct {
	pool *Lanes
	task env.Task

	// Guarded by the lock of the lanes.
	work     *Work // on which it works
	since    time.Duration
	reported bool
}

// Work is work of a group for the lanes. It runs on one lane at a time. If the group is closed it does not
// run any more.
type Work struct {
	Seat  *Seat
	Doing string             // for people: "which writes a snapshot"
	Piece func() (more bool) // one bounded piece of it; it reports whether it knows of more
	Takes bool               // a piece that hangs is a take that hangs

	// Guarded by the lock of the lanes.
	place          sched.Place[*Work]
	running, again bool
	hangs          bool
}

const (
	// LaneCount is how many lanes work.
	LaneCount = 2
	maxTakes  = 2
	// Stall is how long one piece of work may take before it is reported. A part of 64 MiB is written and
	// synced in less on any disk, but a machine may write a large state in one piece.
	Stall = 30 * time.Second
)

// Open starts the lanes.
func (p *Lanes) Open(w Wiring) {
	p.Wiring = w
	p.mu.Lock()
	defer p.mu.Unlock()
	for range LaneCount {
		p.addLane()
	}
}

func (p *Lanes) addLane() {
	l := &Lane{pool: p}
	l.task = p.Start(fmt.Sprintf("snapshots %d", len(p.lanes)+1), l)
	p.lanes, p.idle = append(p.lanes, l), append(p.idle, l)
}

// Enqueue makes a lane run the work. If it runs already it runs once more. It may be called from anywhere.
func (p *Lanes) Enqueue(w *Work) {
	p.mu.Lock()
	var lane *Lane
	switch {
	case w.Seat.tenant.IsLeaving():
	case w.running:
		w.again = true
	case w.place.In() == nil:
		w.place.Owner = w
		p.ready.Push(&w.place)
		lane = p.claimIdle()
	}
	p.mu.Unlock()
	if lane != nil {
		lane.task.Wake()
	}
}

func (p *Lanes) claimIdle() *Lane {
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	lane := p.idle[last]
	p.idle = p.idle[:last]
	return lane
}

// RunOnce implements env.Worker: one piece of work.
func (l *Lane) RunOnce() (more bool) {
	w := l.pool.claimWork(l)
	if w == nil {
		return false
	}
	left := false // stands if a function of the user ends this goroutine: env gives the lane another one
	defer func() { more = l.pool.give(l, w, left) }()
	left = w.Piece()
	return
}

// claimWork claims the next work, or makes the lane idle.
func (p *Lanes) claimWork(l *Lane) *Work {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.ready.Pop()
	if next == nil {
		p.makeIdle(l)
		return nil
	}
	w := next.Owner
	w.running = true
	w.Seat.running++
	l.work, l.since, l.reported = w, p.Now(), false
	return w
}

func (p *Lanes) makeIdle(l *Lane) {
	for _, other := range p.idle {
		if other == l {
			return
		}
	}
	p.idle = append(p.idle, l)
}

// give takes work back after a piece, and reports whether the lane should look for more.
func (p *Lanes) give(l *Lane, w *Work, left bool) (more bool) {
	p.mu.Lock()
	w.running, l.work = false, nil
	if w.hangs {
		w.hangs = false
		p.hung--
	}
	if (left || w.again) && !w.Seat.tenant.IsLeaving() {
		p.ready.Push(&w.place)
	}
	w.again = false
	w.Seat.running--
	gone := w.Seat.tenant.IsLeaving() && w.Seat.running == 0
	if more = p.ready.Len() > 0; !more {
		p.makeIdle(l)
	}
	p.mu.Unlock()
	if gone {
		w.Seat.tenant.Released()
	}
	return more
}

// Leave makes the lanes release a group that is leaving.
func (p *Lanes) Leave(s *Seat) {
	p.mu.Lock()
	for at := p.ready.First(); at != nil; {
		next := at.Next()
		if at.Owner.Seat == s {
			at.Leave()
		}
		at = next
	}
	s.place.Leave()
	p.drop(&p.later, s)
	p.drop(&p.slow, s)
	s.timed, s.at = false, 0
	running := s.running > 0
	p.mu.Unlock()
	if !running {
		s.tenant.Released()
	}
}

func (p *Lanes) drop(from *[]*Seat, s *Seat) {
	for i, other := range *from {
		if other == s {
			*from = append((*from)[:i], (*from)[i+1:]...)
			return
		}
	}
}

// Admit puts a group among those that wait for a grant, and grants.
func (p *Lanes) Admit(s *Seat) {
	p.mu.Lock()
	if s.place.In() == nil && !s.tenant.IsLeaving() {
		p.waiting.Push(&s.place)
	}
	granted := p.grant()
	p.mu.Unlock()
	tell(granted)
}

// grant gives grants to those that have waited for longest. The caller holds the lock, and tells them.
func (p *Lanes) grant() (granted []*Seat) {
	for p.waiting.Len() > 0 && p.takes-p.hung+p.grants < maxTakes {
		s := p.waiting.Pop().Owner
		p.grants++
		granted = append(granted, s)
	}
	return granted
}

// tell tells groups that they may capture.
func tell(granted []*Seat) {
	for _, s := range granted {
		s.tenant.Granted()
	}
}

// Begin turns a grant into a take, or reports that there is no room: the grant was not used for too long.
func (p *Lanes) Begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants = max(p.grants-1, 0)
	if p.takes-p.hung >= maxTakes {
		return false
	}
	p.takes++
	return true
}

// End ends a take that has begun, or, with began false, gives an unused grant back.
func (p *Lanes) End(began bool) {
	p.mu.Lock()
	if began {
		p.takes--
	} else {
		p.grants = max(p.grants-1, 0)
	}
	granted := p.grant()
	p.mu.Unlock()
	tell(granted)
}

// Await makes the group have turns until what it has written is durable.
func (p *Lanes) Await(s *Seat, is bool) {
	p.mu.Lock()
	p.drop(&p.slow, s)
	if is && !s.tenant.IsLeaving() {
		p.slow = append(p.slow, s)
	}
	p.mu.Unlock()
	if is {
		s.tenant.Wake()
	}
}

// InspectLater inspects a group again in some ticks, unless it does so earlier.
func (p *Lanes) InspectLater(s *Seat, ticks int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.tenant.IsLeaving() {
		return
	}
	if !s.timed {
		s.timed = true
		p.later = append(p.later, s)
	}
	s.at = p.Ticks() + max(ticks, 1)
	if len(p.later) == 1 || s.at < p.next {
		p.next = s.at
	}
}

// Tick is called at each beat of the clock. It reports work that hangs, and starts lanes in its place. It
// wakes groups that must say what is durable, and looks at groups whose tick has come.
func (p *Lanes) Tick() {
	var events []event.Event
	now, ticks, hang := p.Now(), p.Ticks(), 0
	p.mu.Lock()
	for _, l := range p.lanes {
		if l.work == nil || now-l.since < Stall {
			continue
		}
		if hang++; !l.reported {
			l.reported = true
			events = append(events, event.SnapshotStalled{Group: l.work.Seat.tenant.ID(), For: now - l.since, Doing: l.work.Doing})
			if l.work.Takes && !l.work.hangs {
				l.work.hangs = true
				p.hung++
			}
		}
	}
	var woken []*Lane
	for len(p.lanes)-hang < LaneCount {
		p.addLane()
		if p.ready.Len() > 0 {
			woken = append(woken, p.claimIdle())
		}
	}
	p.grants = 0
	granted := p.grant()
	slow := append([]*Seat(nil), p.slow...)
	due := p.dequeueDue(ticks)
	p.mu.Unlock()
	for _, l := range woken {
		l.task.Wake()
	}
	tell(granted)
	for _, s := range slow {
		s.tenant.Wake()
	}
	for _, s := range due {
		s.tenant.Inspect()
	}
	for _, e := range events {
		p.Event(e)
	}
}

// dequeueDue takes out those whose tick has come.
func (p *Lanes) dequeueDue(ticks int64) (due []*Seat) {
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

// HangsFor returns for how long work of a group hangs on a lane, and which.
func (p *Lanes) HangsFor(s *Seat) (doing string, since time.Duration, hangs bool) {
	now := p.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if l.work != nil && l.work.Seat == s && now-l.since >= Stall {
			return l.work.Doing, now - l.since, true
		}
	}
	return "", 0, false
}

// All returns the lanes, for the end of the host.
func (p *Lanes) All() []*Lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*Lane(nil), p.lanes...)
}

// Task returns the task of the lane.
func (l *Lane) Task() env.Task { return l.task }

// Doing says what the lane is in the middle of.
func (l *Lane) Doing() string {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if w := l.work; w != nil {
		return fmt.Sprintf("group %d, %s", w.Seat.tenant.ID(), w.Doing)
	}
	return "a snapshot lane"
}
