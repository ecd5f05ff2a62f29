package host

import (
	"fmt"
	"slices"
)

// There are few slots for transfers of snapshots, and each transfer goes on for as long as it likes: a
// snapshot may be large, and a link slow. But no transfer keeps a slot from others for ever. If all slots are
// taken and one more transfer wants to begin, one that has moved almost nothing for slotTicks ends, and
// the other takes its place. That costs time only, since a transfer goes on where it ended.
//
// Without this rule a member that sends a block now and then, or asks for one, or whose Restore hangs, would
// keep all others from catching up.
//
// Rejected: a limit for the time of a transfer. How large a state is and how slow a link is not known.

// pace is how fast a transfer moves.
type pace struct {
	at    int64 // tick at which the present stretch began
	bytes int64 // that were moved before it
	slow  bool  // the last stretch has moved less than minSlotBytes
}

// minSlotBytes is what a transfer must move in slotTicks, if others wait.
const minSlotBytes = 1 << 20

// slotTicks is how long a transfer keeps its slot, however slow it is.
func (t *transfers) slotTicks() int64 { return 8 * t.idleTicks() }

// pass notes that a transfer has moved these bytes by now.
func (p *pace) pass(now, bytes, stretch int64) {
	if now-p.at >= stretch {
		*p = pace{now, bytes, bytes-p.bytes < minSlotBytes}
	}
}

// endSlowReceiving ends a transfer to this host that is slow, and reports whether there was one.
func (t *transfers) endSlowReceiving() bool {
	i := slices.IndexFunc(t.in, func(r *receiving) bool { return r.pace.slow && !r.running && r.stage != receivingInstalls })
	if i < 0 {
		return false
	}
	t.in[i].abort(fmt.Sprintf("it has moved less than %d bytes in %d ticks, and another one waits for its place", minSlotBytes, t.slotTicks()))
	return true
}

// endSlowSending makes a transfer of this host that is slow wait, and reports whether there was one. It also
// ends one that was asked for the same blocks again and again.
func (t *transfers) endSlowSending() bool {
	i := slices.IndexFunc(t.out, func(s *sending) bool {
		return s.isActive() && !s.running && (s.pace.slow || s.bytes > 4*s.published.bytes+minPinnedLog)
	})
	if i < 0 {
		return false
	}
	t.out[i].wait(int64(t.host.config.electionTicks()))
	return true
}
