package outbox

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
)

// An append without entries carries only the commit index. Under load the next append follows at once and
// carries it too; sent separately, such appends and their answers would be most of the messages. So a group
// holds them back (Batches.HoldEmpty), for maxHold at most or, while other groups of its shard wait, until
// the next tick. A host that waits for a command that it has forwarded is told the commit index at once.
const maxHold = time.Millisecond

// holdSlack is how much earlier a hold may end: a timer for less is not worth it, and clocks are not exact.
const holdSlack = maxHold / 8

// CommitDelay is since when a group holds something back, and the timer that ends it. Step belongs to the
// group's turn.
type CommitDelay struct {
	Clock env.Clock
	Wake  func() // makes the group run a turn; the timer calls it

	timer env.Timer    // nil until it is needed
	set   atomic.Bool  // the timer is set
	since atomic.Int64 // by the clock; 0: nothing is held back
}

// Step ends a turn's sending: it sends what was held back for long enough, and makes a later turn send the
// rest. It reports whether that is the next turn before long, since other groups wait (crowded).
func (h *CommitDelay) Step(o *Batches, crowded bool) (again bool) {
	if !o.Holding() {
		h.since.Store(0)
		return false
	}
	now := int64(h.Clock.Now())
	since := h.since.Load()
	if since == 0 {
		since = max(now, 1)
		h.since.Store(since)
	}
	switch left := maxHold - time.Duration(now-since); {
	case left <= holdSlack:
		o.FlushHeld()
		h.since.Store(0)
	case crowded:
		return true
	default:
		h.start(left)
	}
	return false
}

func (h *CommitDelay) start(after time.Duration) {
	if h.timer == nil {
		h.timer = h.Clock.Timer(h.end)
	}
	if !h.set.Swap(true) {
		h.timer.Set(after)
	}
}

// end is called by the timer. What it was set for may have left with an append since then.
func (h *CommitDelay) end() {
	since := h.since.Load()
	left := maxHold - (h.Clock.Now() - time.Duration(since))
	switch {
	case since != 0 && left > holdSlack:
		h.timer.Set(left)
	case since != 0:
		h.set.Store(false)
		h.Wake()
	default:
		h.set.Store(false)
		if h.since.Load() != 0 && !h.set.Swap(true) { // a turn has just begun to hold something back
			h.timer.Set(maxHold)
		}
	}
}

// Stop ends the timer.
func (h *CommitDelay) Stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
}
