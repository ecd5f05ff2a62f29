package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/raft"
)

// clients submit commands, each a text of its own, to whoever may take them, and note what became of each.
type clients struct {
	w         *world
	rng       *rand.Rand
	submitted int
	pace      time.Duration
	last      string // after the faults: the command that must be acknowledged
	finished  bool
}

type pending struct {
	command string
	outcome millrace.Pending
	giveUp  time.Duration // when the client stops waiting
}

// maxPending bounds the commands under way at one host.
const maxPending = 32

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
	i := c.w.hosts[c.rng.IntN(len(c.w.hosts))].alive
	if i == nil || i.process == nil || len(i.pending) >= maxPending {
		return
	}
	if i.process.Group().Status().Role != raft.StateLeader && c.rng.IntN(20) > 0 {
		return
	}
	c.submitted++
	command := fmt.Sprintf("command %d %0*d", c.submitted, c.rng.IntN(pick(c.rng, 200, 200, 200, 4000)), 0)
	if c.w.nemesis.stopped {
		c.last = command
	}
	p, err := i.process.Group().Submit([]byte(command))
	if err != nil {
		if !errors.Is(err, millrace.ErrStopped) && !errors.Is(err, millrace.ErrOverloaded) {
			c.w.violate("%s refuses a command: %v", i.name, err)
		}
		return
	}
	i.pending = append(i.pending, pending{command, p, c.w.now + time.Second})
}

// poll looks for outcomes of what was submitted to one host.
func (c *clients) poll(i *incarnation) {
	kept := i.pending[:0]
	for _, p := range i.pending {
		receipt, done, err := p.outcome.Poll()
		switch {
		case !done && c.w.now > p.giveUp: // its fate stays unknown
		case !done:
			kept = append(kept, p)
		case err == nil:
			c.w.ghost.acknowledge(c.w, p.command, receipt)
			if c.w.nemesis.stopped && p.command == c.last {
				c.finished = true
			}
		case errors.Is(err, millrace.ErrDropped) || errors.Is(err, millrace.ErrNotLeader) || errors.Is(err, millrace.ErrOverloaded):
			c.w.ghost.refused[p.command] = true
		case !millrace.MayHaveCommitted(err):
			c.w.violate("an outcome of no kind: %v", err)
		}
	}
	clear(i.pending[len(kept):])
	i.pending = kept
}

// finish makes the next command taken the last that is waited for.
func (c *clients) finish() { c.pace = 5 * time.Millisecond }
