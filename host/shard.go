package host

import (
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/turn"
)

// shard runs the turns of its groups: those that have something to do wait in a ring, and each call runs one
// of them. A group belongs to one shard for life. Nothing in a turn may wait for a disk, a state machine or a
// network, so one goroutine is enough for a shard; a host has several shards to use several processors.
//
// What a group has to do is in its inbox. To give it something, put it there first and wake the group after:
// the shard takes the group out of the ring before the turn empties the inbox, so no wake is lost.
type shard struct {
	task      env.Task
	clock     *hostClock
	transport sender
	now       func() time.Duration
	// longTurn is how long a turn may take before its groups are not vouched for.
	longTurn time.Duration

	mu     sync.Mutex
	urgent ring[*Group] // elections and membership
	others ring[*Group]
	lazy   ring[*Group] // have something that can wait for the next tick
	wheel  wheel
	missed int64            // ticks in which this process did not run, since the host was opened
	due    []pulse.Question // belongs to the callback of the clock
	inARow int              // urgent turns since one of the others

	running  running
	worker   *shardWorker
	behind   []*shardWorker // were replaced while a turn hung
	schedule func(env.Worker) env.Task
	turns    uint64 // so far
}

// running is the turn under way.
type running struct {
	group *Group
	since time.Duration
}

// moment is the time as a turn sees it, in ticks since the host was opened.
type moment struct {
	ticks  int64
	missed int64 // how many of them the process has missed
}

// wake makes the group run a turn that begins after this call.
func (g *Group) wake() { g.wakeAs(false) }

func (g *Group) wakeAs(urgent bool) {
	s := g.shard
	s.mu.Lock()
	fresh := s.put(g, urgent)
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
}

// wakeLazily makes the group run a turn before long: with its next wake, or at the next tick. It wakes
// nothing.
func (g *Group) wakeLazily() {
	s := g.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.runnable.in == nil && !g.closed && !g.stuck {
		s.lazy.push(&g.runnable)
		s.clock.hasten()
	}
}

// put puts a group into a ring, and reports whether the shard must be woken for it.
func (s *shard) put(g *Group, urgent bool) (fresh bool) {
	switch {
	case g.stuck:
		g.wokenStuck = true
		return false
	case g.runnable.in == &s.urgent || g.runnable.in == &s.others && !urgent:
		return false
	case g.runnable.in == &s.others:
		g.runnable.leave()
	case g.runnable.in == &s.lazy:
		g.runnable.leave()
		fresh = true
	case g.closed:
		return false
	default:
		fresh = true
	}
	if urgent {
		s.urgent.push(&g.runnable)
	} else {
		s.others.push(&g.runnable)
	}
	s.clock.hasten()
	return fresh
}

// woken collects groups that were given something, to wake each shard once for all of its groups, in the
// order in which they came. It is reused by all hosts of a process, so between two uses it names no shard:
// else an earlier use would decide about the order, and the hosts of earlier uses would stay in memory.
type woken []shardGroups

type shardGroups struct {
	shard  *shard
	groups []*Group
}

func (w *woken) add(g *Group) {
	for i := range *w {
		if (*w)[i].shard == g.shard {
			(*w)[i].groups = append((*w)[i].groups, g)
			return
		}
	}
	n := len(*w)
	if n == cap(*w) {
		*w = append(*w, shardGroups{})
	}
	*w = (*w)[:n+1] // with the memory of an earlier use
	(*w)[n].shard, (*w)[n].groups = g.shard, append((*w)[n].groups, g)
}

// wake wakes the groups, and forgets them.
func (w *woken) wake() {
	for i := range *w {
		of := &(*w)[i]
		of.shard.wakeAll(of.groups)
		clear(of.groups)
		of.shard, of.groups = nil, of.groups[:0]
	}
	*w = (*w)[:0]
}

// wakeAll wakes groups of this shard with one lock and one wake.
func (s *shard) wakeAll(groups []*Group) {
	fresh := false
	s.mu.Lock()
	for _, g := range groups {
		fresh = s.put(g, false) || fresh
	}
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
}

// advance tells the shard the time, and wakes the groups that are due.
func (s *shard) advance(now, missed int64) {
	fresh := false
	s.mu.Lock()
	s.missed = missed
	s.wheel.advance(now, func(g *Group) {
		switch {
		case !s.rests(g):
			fresh = s.put(g, true) || fresh
		case g.hearsOn(now, missed):
			s.wheel.set(g, g.wakeAt())
		case g.checksNext(missed):
			s.due = append(s.due, pulse.Question{Leader: (*pulseLeader)(g), Since: g.activeAt})
		default:
			fresh = s.put(g, true) || fresh
		}
	})
	for p := s.lazy.pop(); p != nil; p = s.lazy.pop() {
		fresh = s.put(p.owner, false) || fresh
	}
	s.mu.Unlock()
	if fresh {
		s.task.Wake()
	}
	s.leadOn(now, missed)
}

// restsFor reports whether nothing runs, waits, or is due in fewer ticks.
func (s *shard) restsFor(ticks int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent.n+s.others.n+s.lazy.n == 0 && s.running.group == nil && len(s.behind) == 0 && !s.wheel.dueBefore(s.wheel.now+ticks)
}

// take takes the next group out of the ring. crowded means that others wait behind it.
func (s *shard) take(w *shardWorker) (g *Group, at moment, crowded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.retired {
		return nil, moment{}, false
	}
	p := s.next()
	if p == nil {
		return nil, moment{}, false
	}
	s.turns++
	s.running, w.turn = running{p.owner, s.now()}, p.owner
	w.since = s.running.since
	return p.owner, moment{s.wheel.now, s.missed}, s.urgent.n+s.others.n > 0
}

// next takes the first urgent place or, after maxUrgentInARow of them, one of the others.
func (s *shard) next() *place[*Group] {
	if s.inARow < maxUrgentInARow || s.others.n == 0 {
		if p := s.urgent.pop(); p != nil {
			s.inARow++
			return p
		}
	}
	s.inARow = 0
	return s.others.pop()
}

// maxUrgentInARow bounds the urgent turns before one of another group. More deadlines than a processor can
// serve, or a peer that asks for votes without end, must not stop the commands of all groups.
const maxUrgentInARow = 16

// give takes a group back after its turn, and reports whether any group waits, and whether no other does.
func (s *shard) give(w *shardWorker, g *Group, again bool, due int64) (more, alone bool) {
	s.mu.Lock()
	w.turn = nil
	retired := w.retired
	if retired {
		again = again || g.wokenStuck
		w.idle, g.stuck, g.wokenStuck = true, false, false
	} else {
		s.running = running{}
	}
	closed := g.closed
	if !closed {
		if again {
			s.put(g, false)
		}
		s.wheel.set(g, due)
	}
	waiting := s.urgent.n + s.others.n
	more, alone = waiting > 0, waiting == 0 || waiting == 1 && (g.runnable.in == &s.urgent || g.runnable.in == &s.others)
	s.mu.Unlock()
	if retired && more {
		s.task.Wake() // the worker that runs the turns now
	}
	if closed {
		g.partDone(theTurn)
	}
	return more && !retired, alone || retired
}

// hangs reports whether a turn has been under way for more than a heartbeat interval.
func (s *shard) hangs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running.group != nil && s.now()-s.running.since > s.longTurn
}

// add makes a group run on this shard from now on.
func (s *shard) add(g *Group) {
	s.mu.Lock()
	g.shard, g.runnable.owner, g.timer.owner = s, g, g
	g.awaitsAppend.Store(true) // until its first turn says otherwise
	g.awaitsApply.Store(true)
	g.awaitsAcks.Store(true)
	g.at = moment{s.wheel.now, s.missed}
	g.wanted.Want(turn.All) // the first turn looks at everything
	g.stretchPromise(0)     // of the start
	s.mu.Unlock()
	g.wake()
}

// remove makes a group run no more, and reports whether it does not run now. A turn that is under way is the
// last, and partDone is called after it.
func (s *shard) remove(g *Group) (idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.closed = true
	g.runnable.leave()
	g.timer.leave()
	return s.running.group != g && !g.stuck
}

// Gathers implements env.Gatherer: a turn for many commands costs little more than one for a single command.
// It asks only if one group has something to do: with several, one gathers while another runs.
func (s *shard) Gathers() bool {
	s.mu.Lock()
	g := s.gatherer()
	s.mu.Unlock()
	return g != nil && g.gathers()
}

// Gathered implements env.Gatherer.
func (s *shard) Gathered(took time.Duration) {
	s.mu.Lock()
	p := s.others.first
	s.mu.Unlock()
	if p != nil {
		p.owner.gathered(took)
	}
}

func (s *shard) gatherer() *Group {
	if s.urgent.n > 0 || s.others.n != 1 {
		return nil
	}
	return s.others.first.owner
}
