package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
)

// clients submit commands, each a different text, to hosts that may take them, and record each outcome.
type clients struct {
	w         *world
	rng       *rand.Rand
	submitted int
	pace      time.Duration
	largest   int // bytes of a command; 0: they are small
}

type pending struct {
	command string
	outcome ending
	since   time.Duration
}

// maxPending bounds the commands under way at one host. Commands that are more than a second old do not
// count, so that a host that was cut off is still asked. They must be answered in the end too.
const (
	maxPending     = 32
	maxPendingEver = 8 * maxPending
)

// mayTakeMore reports whether a host has few enough commands under way.
func (r *replica) mayTakeMore() bool {
	recent := 0
	for _, p := range r.pending {
		if r.life.w.now-p.since < time.Second {
			recent++
		}
	}
	for _, c := range r.calls {
		if r.life.w.now-c.since < time.Second {
			recent++
		}
	}
	return recent < maxPending && len(r.pending)+len(r.calls) < maxPendingEver
}

func (w *world) startClients() {
	w.clients.pace = pick(w.clients.rng, time.Millisecond, 4*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond)
	w.clients.schedule()
}

func (c *clients) schedule() {
	c.w.plan(between(c.rng, 0, 2*c.pace), "client", nil, func() {
		if c.w.finished() {
			return
		}
		c.submitOne()
		c.schedule()
	})
}

// submitOne prefers hosts that think they lead; there may be more than one.
func (c *clients) submitOne() {
	l := c.w.hosts[c.rng.IntN(len(c.w.hosts))].alive
	if l == nil || l.process == nil {
		return
	}
	r := l.replicas[c.rng.IntN(len(l.replicas))]
	if r.group == nil || r.ghost.finished || !r.mayTakeMore() || !r.ghost.has(l.host.id) {
		return
	}
	if !r.leads() && c.rng.IntN(20) > 0 && c.w.calls == nil {
		return
	}
	c.submitTo(r)
}

// submitTo submits a command to one replica, and others of the same moment.
func (c *clients) submitTo(r *replica) {
	c.submit(r)
	c.burst(r)
}

func (c *clients) submit(r *replica) {
	c.submitted++
	if c.w.user != nil {
		c.submitUser(r)
		return
	}
	command := fmt.Sprintf("command %d %0*d", c.submitted, c.rng.IntN(pick(c.rng, 200, 200, 200, 4000)), 0)
	if c.largest > 0 {
		command += strings.Repeat(".", c.rng.IntN(c.largest))
	}
	if c.w.options.Together && c.w.calls == nil {
		c.handTogether(r, command)
		return
	}
	c.hand(r, command)
}

// hand hands a command to one replica.
func (c *clients) hand(r *replica, command string) {
	if c.w.nemesis.stopped {
		r.ghost.lastCommand = command
	}
	if c.w.calls != nil {
		c.callTo(r, command)
		return
	}
	p, err := r.group.Submit([]byte(command))
	if err != nil {
		r.observeRefusal(err)
		if !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrOverloaded) && !isHalted(err) {
			c.w.breaks(property.Failures, "%s refuses a command: %v", r.name, err)
		}
		return
	}
	r.pending = append(r.pending, pending{command, p, c.w.now})
}

// poll collects the outcomes of the commands that were submitted to one replica.
func (c *clients) poll(r *replica) {
	c.pollCalls(r)
	c.w.objects.poll(r)
	r.pollTogether()
	kept := r.pending[:0]
	for _, p := range r.pending {
		receipt, done, err := p.outcome.Poll()
		if done {
			r.observeAnswer(p.command, receipt, err)
		}
		switch {
		case !done:
			kept = append(kept, p)
		case err == nil:
			r.ghost.acknowledge(c.w, r, p.command, receipt)
			if c.w.nemesis.stopped && p.command == r.ghost.lastCommand {
				r.ghost.finished = true
			}
		case outcome.MayHaveCommitted(err):
		case isRefusal(err):
			r.observeRefusal(err)
			r.ghost.refused[p.command] = true
		default:
			c.w.breaks(property.ExactlyOnce, "an outcome of unknown kind: %v", err)
		}
	}
	clear(r.pending[len(kept):])
	r.pending = kept
}

// observeRefusal notes that a command was refused for lack of memory, and counts those of a leader whose
// machine is too far behind.
func (r *replica) observeRefusal(err error) {
	if !errors.Is(err, outcome.ErrOverloaded) {
		return
	}
	r.life.sawOverload = true
	if r.group != nil && r.group.Metrics().Queues.Behind > 0 {
		r.life.host.w.count(LagRefusals)
	}
}

// isRefusal reports whether an error says that a command was certainly not committed.
func isRefusal(err error) bool {
	for _, refusal := range []error{outcome.ErrDropped, outcome.ErrNotLeader, outcome.ErrOverloaded, outcome.ErrStopped, outcome.ErrNotFounded, outcome.ErrMachineHalted} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// eachReplica calls f for each group of each process that runs.
func (w *world) eachReplica(f func(*replica)) {
	for _, h := range w.hosts {
		if h.alive != nil && h.alive.process != nil {
			for _, r := range h.alive.replicas {
				f(r)
			}
		}
	}
}

// finished reports whether the last command of each group is acknowledged.
func (w *world) finished() bool {
	for _, g := range w.ghosts {
		if !g.finished {
			return false
		}
	}
	return true
}

// finish makes the next command that a host takes the last one, for which the run waits.
func (c *clients) finish() { c.pace = 5 * time.Millisecond }
