package outbox

import (
	"time"

	"github.com/millrace/millrace/host/internal/sched"
)

// An append without entries carries only the commit index. Under load the next append follows at once and
// carries it too; sent separately, such appends and their answers would be most of the messages. So a group
// holds them back (Batches.HoldEmpty), for maxHold at most or, while other groups of its shard wait, until
// the next tick. A host that waits for a command that it has forwarded is told the commit index at once.
const maxHold = time.Millisecond

// holdSlack is how much earlier a hold may end: a timer for less is not worth it, and clocks are not exact.
const holdSlack = maxHold / 8

// CommitDelay is since when a group holds something back, and the alarm that ends it. It belongs to the
// group's turn.
type CommitDelay struct {
	Alarm sched.Alarm

	since time.Duration // by the clock; 0: nothing is held back
}

// Step ends a turn's sending: it sends what was held back for long enough, and makes a later turn send the
// rest. It reports whether that is the next turn before long, since other groups wait (crowded). It reads
// the clock if it must.
func (h *CommitDelay) Step(o *Batches, crowded bool, clock func() time.Duration) (again bool) {
	if !o.Holding() {
		if h.since != 0 {
			h.since = 0
			h.Alarm.Clear()
		}
		return false
	}
	now := clock()
	if h.since == 0 {
		h.since = max(now, 1)
	}
	switch left := maxHold - (now - h.since); {
	case left <= holdSlack:
		o.FlushHeld()
		h.since = 0
		h.Alarm.Clear()
	case crowded:
		return true
	default:
		h.Alarm.Set(h.since+maxHold, now)
	}
	return false
}
