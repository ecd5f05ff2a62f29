package host

import (
	"time"

	"github.com/millrace/millrace/host/outcome"
)

const (
	minRetryAfter = time.Millisecond
	maxRetryAfter = 10 * time.Second
)

// overloaded returns the error for a command that does not fit.
func (g *Group) overloaded() error {
	commands, bytes := g.inbox.waitingCommands()
	e := &outcome.OverloadedError{Commands: commands, Bytes: bytes, Share: g.host.memory.waiting.Max, Behind: g.machine.backlog.Behind(g.machine.apply.Applied()), RetryAfter: g.host.config.HeartbeatInterval}
	if rate := g.proposals.drainRate.PerSecond(g.now()); rate > 0 {
		e.RetryAfter = time.Duration(min(float64(bytes)/rate, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	e.RetryAfter = min(max(e.RetryAfter, minRetryAfter), maxRetryAfter).Round(time.Microsecond)
	return e
}

// grantSpace ends the first waits for space, as many as fit.
func (g *Group) grantSpace() {
	if g.proposals.spaceWaiters.Waiting() > 0 {
		g.proposals.spaceWaiters.Grant(g.inbox.space())
	}
}

// countOverload counts commands that were refused for lack of memory.
func (g *Group) countOverload(n int) {
	g.proposals.overload.Commands.Add(n, g.host.clock.awakeAtBeat(), int64(2*g.host.config.electionTicks()))
}

// countNoSpace counts messages that were dropped for lack of memory.
func (g *Group) countNoSpace(n int) {
	g.proposals.overload.Messages.Add(n, g.host.clock.awakeAtBeat(), int64(2*g.host.config.electionTicks()))
}
