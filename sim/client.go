package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft"
)

// clients submit commands, each a different text, to hosts that may take them, and record each outcome.
type clients struct {
	w         *world
	rng       *rand.Rand
	submitted int
	pace      time.Duration
	last      string // the command that must be acknowledged after the faults
	finished  bool
}

type pending struct {
	command string
	outcome host.Pending
	since   time.Duration
}

// maxPending bounds the commands under way at one host. Commands that are more than a second old do not
// count, so that a host that was cut off is still asked. They must be answered in the end too.
const (
	maxPending     = 32
	maxPendingEver = 8 * maxPending
)

// mayTakeMore reports whether a host has few enough commands under way.
func (l *life) mayTakeMore() bool {
	recent := 0
	for _, p := range l.pending {
		if l.w.now-p.since < time.Second {
			recent++
		}
	}
	return recent < maxPending && len(l.pending) < maxPendingEver
}

func (w *world) startClients() {
	w.clients.pace = pick(w.clients.rng, time.Millisecond, 4*time.Millisecond, 20*time.Millisecond)
	w.clients.schedule()
}

func (c *clients) schedule() {
	c.w.plan(between(c.rng, 0, 2*c.pace), "client", nil, func() {
		if c.finished {
			return
		}
		c.submitOne()
		c.schedule()
	})
}

// submitOne prefers hosts that think they lead; there may be more than one.
func (c *clients) submitOne() {
	l := c.w.hosts[c.rng.IntN(len(c.w.hosts))].alive
	if l == nil || l.process == nil || !l.mayTakeMore() {
		return
	}
	if l.group.Status().Role != raft.StateLeader && c.rng.IntN(20) > 0 {
		return
	}
	c.submitted++
	command := fmt.Sprintf("command %d %0*d", c.submitted, c.rng.IntN(pick(c.rng, 200, 200, 200, 4000)), 0)
	if c.w.nemesis.stopped {
		c.last = command
	}
	p, err := l.group.Submit([]byte(command))
	if err != nil {
		if !errors.Is(err, host.ErrStopped) && !errors.Is(err, host.ErrOverloaded) {
			c.w.violate("%s refuses a command: %v", l.name, err)
		}
		return
	}
	l.pending = append(l.pending, pending{command, p, c.w.now})
}

// poll collects the outcomes of the commands that were submitted to one host.
func (c *clients) poll(l *life) {
	kept := l.pending[:0]
	for _, p := range l.pending {
		receipt, done, err := p.outcome.Poll()
		switch {
		case !done:
			kept = append(kept, p)
		case err == nil:
			c.w.ghost.acknowledge(c.w, p.command, receipt)
			if c.w.nemesis.stopped && p.command == c.last {
				c.finished = true
			}
		case host.MayHaveCommitted(err):
		case isRefusal(err):
			c.w.ghost.refused[p.command] = true
		default:
			c.w.violate("an outcome of unknown kind: %v", err)
		}
	}
	clear(l.pending[len(kept):])
	l.pending = kept
}

// isRefusal reports whether an error says that a command was certainly not committed.
func isRefusal(err error) bool {
	for _, refusal := range []error{host.ErrDropped, host.ErrNotLeader, host.ErrOverloaded, host.ErrStopped} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// everyoneIsAnswered: every proposal ends in one of three ways (errors.go in package host), and none of them
// is silence. The clients of a dead process learn its death from the connection; while a process lives, no
// client has to give up to get an answer.
func (w *world) everyoneIsAnswered() bool {
	for _, h := range w.hosts {
		if h.alive != nil && len(h.alive.pending) > 0 {
			return false
		}
	}
	return true
}

func (w *world) waiting() string {
	var s string
	for _, h := range w.hosts {
		if h.alive != nil && len(h.alive.pending) > 0 {
			p := h.alive.pending[0]
			s += fmt.Sprintf("%d at %s, the first for %.20q since %v; ", len(h.alive.pending), h.alive.name, p.command, p.since)
		}
	}
	return s + w.positions()
}

// finish makes the next command that a host takes the last one, for which the run waits.
func (c *clients) finish() { c.pace = 5 * time.Millisecond }
