package host

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/transport"
)

// A turn must not wait, but a state machine that is declared NonBlocking may break its promise. Then the
// shard is taken over: another worker runs the turns of the other groups, and the group that hangs is left
// behind until its turn returns. Its host does not vouch for it meanwhile. At most one worker for each group
// is left behind.

// shardWorker runs the turns of a shard: env.Gatherer. One of them does so at a time.
type shardWorker struct {
	*shard
	task    env.Task
	turn    *Group        // under way; guarded by the lock of the shard
	since   time.Duration // of that turn
	retired bool          // guarded by the lock of the shard: another one runs the turns
	idle    bool          // guarded by the same: it was retired, and its last turn has returned

	// Owned by its turns.
	outgoing outgoing // what they send while other groups wait
	unsent   int      // turns whose messages may be in it
}

// RunOnce implements env.Worker: one turn of one group.
func (w *shardWorker) RunOnce() (more bool) {
	g, at, crowded := w.take(w)
	if g == nil {
		w.flush() // a group that waited was closed
		return false
	}
	g.outgoing.to = w.sender(g)
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			panic(p) // the process ends, and must not wait for a lock
		}
		w.give(w, g, true, never) // a function of the user ends this goroutine
	}()
	again, due := g.runTurn(at, crowded)
	returned = true
	more, alone := w.give(w, g, again, due)
	if w.unsent++; alone || w.unsent >= maxUnsentTurns {
		w.flush()
	}
	return more
}

func (w *shardWorker) flush() {
	w.unsent = 0
	w.outgoing.flush()
}

// maxUnsentTurns is how many turns may pass before their messages go to the transport, while other groups
// wait. With one client in each of a thousand groups a turn has one message for a peer; sent by itself it
// costs a system call here and another there, more than the turn. Turns take microseconds, so a message waits
// for less than a millisecond.
const maxUnsentTurns = 32

// sender returns where a turn of a group sends. One that waits for the disk (pipelines basic and parallel)
// must not keep its messages until it ends: parallel is to send before it writes.
func (w *shardWorker) sender(g *Group) sender {
	if g.host.env.pipeline.AsyncStorageWrites() {
		return w
	}
	return w.transport
}

// Send implements sender for the turns of this worker: the messages leave when no other group waits, or after
// maxUnsentTurns.
func (w *shardWorker) Send(to uint64, batch []transport.Envelope) bool {
	p := w.outgoing.peer(to)
	p.batch = append(p.batch, batch...)
	return true
}

// Gathers implements env.Gatherer. A worker that was replaced is woken once more, to be stopped.
func (w *shardWorker) Gathers() bool {
	w.mu.Lock()
	retired := w.retired
	w.mu.Unlock()
	return !retired && w.shard.Gathers()
}

// relay is the task of the worker that runs the turns of a shard at present.
type relay struct {
	mu   sync.Mutex
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

// start schedules the first worker of a shard.
func (s *shard) start(schedule func(env.Worker) env.Task) {
	s.schedule = schedule
	s.worker = s.newWorker()
	s.worker.task = schedule(s.worker)
	s.task = &relay{task: s.worker.task}
}

func (s *shard) newWorker() *shardWorker {
	return &shardWorker{shard: s, outgoing: outgoing{to: s.transport}}
}

// takeOver replaces the worker if its turn has been under way for more than a heartbeat interval. It returns
// the group that is left behind, or nil, and for how long its turn has run.
func (s *shard) takeOver() (g *Group, ran time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.running.group
	if ran = s.now() - s.running.since; g == nil || ran <= s.longTurn {
		return nil, 0
	}
	g.stuck, g.wokenStuck = true, true
	g.runnable.leave()
	g.timer.leave()
	s.worker.retired = true
	s.behind = append(s.behind, s.worker)
	s.running = running{}
	s.worker = s.newWorker()
	s.worker.task = s.schedule(s.worker)
	s.task.(*relay).replace(s.worker.task)
	s.worker.task.Wake()
	return g, ran
}

// reap stops the workers that were replaced and have returned. They are asleep.
func (s *shard) reap() {
	for _, w := range s.takeIdle() {
		w.task.Stop()
	}
}

func (s *shard) takeIdle() (idle []*shardWorker) {
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

// doing says what the worker is in the middle of.
func (w *shardWorker) doing() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.turn; g != nil {
		return fmt.Sprintf("the turn of group %d", g.id)
	}
	return "a shard"
}

// workers returns the workers that have not been stopped, for the end of the host.
func (s *shard) workers() []*shardWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*shardWorker{s.worker}, s.behind...)
}

// lookForHungTurns takes over shards that hang. It is called by the clock.
func (h *Host) lookForHungTurns() {
	if !h.env.pipeline.AsyncStorageWrites() {
		return // its turns wait for the disk and the state machine
	}
	for _, s := range h.shards {
		s.reap()
		if g, ran := s.takeOver(); g != nil {
			h.leftBehind(g, ran)
		}
	}
}

// leftBehind stops vouching for a group that a shard has left behind. Its turn may have returned meanwhile,
// and another one may have found nothing to do, so the group is woken.
func (h *Host) leftBehind(g *Group, ran time.Duration) {
	h.pulses.Drop((*pulseLeader)(g))
	g.inbox.putExcepted() // so that its next turn sends heartbeats
	g.wake()
	h.events.emit(event.TurnStalled{Group: g.id, For: ran})
	h.env.logger.Warn("millrace: a turn of a group takes long; the other groups of its shard go on without it", "group", g.id, "host", h.config.ID, "for", ran)
}
