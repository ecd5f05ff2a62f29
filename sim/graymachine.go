package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// State machines that hang in the middle of Apply. Everywhere else in this package a worker does all of its
// work in one event; the fault "state machine stalls" only begins it later. Here a lane of a host is called
// in a goroutine, and the world waits until the call has returned or its state machine hangs. So still only
// one goroutine runs at a time, and the same seed gives the same run. A host whose lane hangs starts another
// one in its place, and reports the group.

// hangs are the calls of state machines that hang. hangsAt decides, before each command, whether the machine
// of a host hangs there, and for how long; forever is until release.
type hangs struct {
	w       *world
	hangsAt func(l *life, e statemachine.Entry) (for_ time.Duration)
	group   func(id uint64) bool // whose machines may hang; nil: those of all groups
	calls   []*machineCall       // under way
	current *machineCall         // that runs now
	over    bool
}

const forever = time.Duration(1<<63 - 1)

// machineCall is a call of a lane.
type machineCall struct {
	task     *task
	returned chan callResult
	hung     chan time.Duration
	goOn     chan struct{}
}

type callResult struct {
	more     bool
	panicked any
}

// call calls a worker. It returns when the worker has returned, or hangs in its state machine.
func (h *hangs) call(t *task) (more bool) {
	c := &machineCall{task: t, returned: make(chan callResult), hung: make(chan time.Duration), goOn: make(chan struct{})}
	h.current = c
	go func() {
		var r callResult
		defer func() {
			r.panicked = recover()
			c.returned <- r
		}()
		r.more = t.worker.RunOnce()
	}()
	return h.await(c)
}

func (h *hangs) await(c *machineCall) (more bool) {
	defer func() { h.current = nil }()
	select {
	case r := <-c.returned:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.more
	case d := <-c.hung:
		h.calls = append(h.calls, c)
		h.w.count(MachineStalls)
		h.w.record(fmt.Sprintf("%s: its state machine hangs", c.task.name))
		if d < forever {
			h.w.plan(d, c.task.name+": its state machine goes on", nil, func() { h.goOn(c) })
		}
		return false
	}
}

// goOn lets a call go on that hangs.
func (h *hangs) goOn(c *machineCall) {
	for i := range h.calls {
		if h.calls[i] != c {
			continue
		}
		h.calls = append(h.calls[:i:i], h.calls[i+1:]...)
		h.current = c
		hung := c.goOn
		c.goOn = make(chan struct{})
		close(hung)
		if t := c.task; h.await(c) {
			t.Wake()
		}
		return
	}
}

// release lets all calls go on, and none hang any more.
func (h *hangs) release() {
	h.over = true
	for len(h.calls) > 0 {
		h.goOn(h.calls[0])
	}
}

// hangingMachine is a state machine that may hang.
type hangingMachine struct {
	stateMachine
	hangs *hangs
}

// Apply applies the commands before the one at which it hangs, hangs, and applies the others.
func (m hangingMachine) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		if m.replica.life.dead {
			return crashfs.ErrCrashed
		}
		if m.hangs.group != nil && !m.hangs.group(m.replica.id) {
			// the machine of this group works
		} else if d := m.hangs.hangsAt(m.replica.life, entries[i]); d > 0 && !m.hangs.over {
			c := m.hangs.current
			goOn := c.goOn
			c.hung <- d
			<-goOn
		}
		if err := m.stateMachine.Apply(entries[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// callWorker calls a worker of a process.
func (t *task) callWorker() (more bool) {
	if h := t.life.w.hangs; h != nil && t.kind&env.StateMachine != 0 {
		return h.call(t)
	}
	counted := t.life.w.countLocks(t)
	more = t.worker.RunOnce()
	counted()
	return more
}

// machine returns the state machine of a replica.
func (w *world) machine(r *replica) statemachine.Machine {
	if w.hardware != nil {
		return nothing{}
	}
	if w.diverging != nil {
		return w.diverging.machine(r)
	}
	if w.hangs != nil {
		return hangingMachine{stateMachine{r}, w.hangs}
	}
	if w.packing != nil && w.packing.disks != nil {
		return w.packing.disks.machine(r)
	}
	if w.calls != nil {
		options := w.calls.CommandOptions
		options.Versions = r.can
		return host.Commands(callMachine{r}, options)
	}
	return stateMachine{r}
}

// StuckMachine is which state machines are stuck.
type StuckMachine int

// The kinds.
const (
	StuckAtLeader   StuckMachine = iota // that of the leader, until the end
	StuckEverywhere                     // all of them, at the same command
	SlowEverywhere                      // all of them, for about three election timeouts in each command
)

// StuckMachines runs one scenario with many seeds: three hosts, under load or nearly idle, and state machines
// that hang in Apply. It returns how long the leader has kept the leadership since its machine hung, and how
// often leaders have given their leadership up. If only the machine of the leader hangs, another host must
// lead within ten election timeouts. Then the scenario lasts for fifty more, in which no leader changes but
// by a hand-over. At the end the machines work, and the cluster must converge. The error, if any, is a
// *Violation.
func StuckMachines(o Options, kind StuckMachine) (took time.Duration, handOvers int, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.groupConfig.NonBlocking = false // it would be a broken promise
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		if kind == StuckAtLeader {
			w.net.drop = pick(rng, 0, 0, 0.02)
		}
		w.hangs = &hangs{w: w, hangsAt: func(*life, statemachine.Entry) time.Duration { return 0 }}
		w.startCalmly()
		w.clients.pace = pick(rng, 2*time.Millisecond, 50*time.Millisecond, 700*time.Millisecond)
		old, before, leaders := w.leader(), w.faults[HandOvers], w.leaders()
		began := w.hang(kind, rng, old)
		if !w.runUntil(w.now+healTime, func() bool { return *began > 0 }) {
			w.violate("no state machine comes to a command in %v: %s", healTime, w.positions())
		}
		if kind == StuckAtLeader {
			if !w.runUntil(*began+w.maxElection(), func() bool { l := w.leader(); return l != nil && l != old }) {
				w.violate("%v after its state machine has begun to hang host %d still leads, although the others have applied more: %s", w.maxElection(), old.id, w.positions())
			}
			took = w.now - *began
		}
		w.runUntil(w.now+5*w.maxElection(), func() bool { return false })
		handOvers = w.faults[HandOvers] - before
		if kind == StuckEverywhere && len(w.hangs.calls) != len(w.hosts) {
			w.violate("%d state machines hang, want all: %s", len(w.hangs.calls), w.positions())
		}
		if more := w.leaders() - leaders; more > handOvers && w.net.drop == 0 {
			w.violate("%d new leaders and %d hand-overs, although no message is lost: %s", more, handOvers, w.positions())
		}
		w.hangs.release()
		w.endWell()
	})
	return took, handOvers, err
}

// hang makes state machines hang starting at the next command, and returns when the first has begun to.
func (w *world) hang(kind StuckMachine, rng *rand.Rand, leader *machine) (began *time.Duration) {
	began = new(time.Duration)
	var poison uint64
	w.hangs.hangsAt = func(l *life, e statemachine.Entry) time.Duration {
		first := *began == 0
		switch {
		case kind == StuckAtLeader && (l.host != leader || !first):
			return 0
		case kind == StuckEverywhere && first && e.Index > w.ghosts[0].last(): // no machine is beyond it
			poison = e.Index
		case kind == StuckEverywhere && e.Index != poison:
			return 0
		}
		if first {
			*began = w.now
		}
		if kind == SlowEverywhere {
			return between(rng, 25*w.config.ElectionTimeout/10, 35*w.config.ElectionTimeout/10)
		}
		return forever
	}
	return began
}
