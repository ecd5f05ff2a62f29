package host

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
)

// An append without entries carries only the commit index. Under load the next append follows at once and
// carries it too; sent separately, such appends and their answers would be most of the messages. So a group
// holds them back (outgoing.holdEmpty), for maxHold at most or, while other groups of its shard wait, until
// the next tick. A host that waits for a command that it has forwarded is told the commit index at once.
const maxHold = time.Millisecond

// holdSlack is how much earlier a hold may end: a timer for less is not worth it, and clocks are not exact.
const holdSlack = maxHold / 8

// held is since when a group holds something back, and the timer that ends it.
type held struct {
	timer env.Timer    // nil until it is needed
	set   atomic.Bool  // the timer is set
	since atomic.Int64 // by the host's clock; 0: nothing is held back
}

// sendHeld ends a turn's sending: it sends what was held back for long enough, and makes a later
// turn send the rest.
func (g *Group) sendHeld(crowded bool) {
	g.forwarders.due(g.node.BasicStatus().Commit, g.outgoing.flushHeldTo)
	if !g.outgoing.holding() {
		g.held.since.Store(0)
		return
	}
	now := int64(g.host.env.env.Clock.Now())
	since := g.held.since.Load()
	if since == 0 {
		since = max(now, 1)
		g.held.since.Store(since)
	}
	switch left := maxHold - time.Duration(now-since); {
	case left <= holdSlack:
		g.outgoing.flushHeld()
		g.held.since.Store(0)
	case crowded:
		g.wakeLazily()
	default:
		g.setHeldTimer(left)
	}
}

func (g *Group) setHeldTimer(after time.Duration) {
	if g.held.timer == nil {
		g.held.timer = g.host.env.env.Clock.Timer(g.endHold)
	}
	if !g.held.set.Swap(true) {
		g.held.timer.Set(after)
	}
}

// endHold is called by the timer. What it was set for may have left with an append since then.
func (g *Group) endHold() {
	since := g.held.since.Load()
	left := maxHold - (g.host.env.env.Clock.Now() - time.Duration(since))
	switch {
	case since != 0 && left > holdSlack:
		g.held.timer.Set(left)
	case since != 0:
		g.held.set.Store(false)
		g.wake()
	default:
		g.held.set.Store(false)
		if g.held.since.Load() != 0 && !g.held.set.Swap(true) { // a turn has just begun to hold something back
			g.held.timer.Set(maxHold)
		}
	}
}

// stop ends the timer.
func (h *held) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
