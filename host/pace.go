package host

import (
	"fmt"
	"slices"
)

// There are few slots for transfers, and each transfer goes on for as long as it likes: a content may be
// large, and a link slow. But no transfer keeps a slot from others for ever. If all slots are taken and one
// more transfer wants to begin, one that has moved almost nothing for slotTicks ends, and the other takes its
// place. That costs time only, since a transfer goes on where it ended.
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

// transferClass is what the transfers of one kind of content share on a host: slots, a rate, and counts.
// transfers.mu guards it.
type transferClass struct {
	all                        *transfers
	maxSendings, maxReceivings int
	rate                       sendingRate
	counts                     TransferMetrics // without what is now
}

// sends returns how many transfers of the class are being sent.
func (c *transferClass) sends() (n int) {
	for _, s := range c.all.out {
		if s.isActive() && s.class() == c {
			n++
		}
	}
	return n
}

// receives returns how many transfers of the class to this host use the network and the disk.
func (c *transferClass) receives() (n int) {
	for _, r := range c.all.in {
		if r.hasSlot() && r.class() == c {
			n++
		}
	}
	return n
}

// giveSendingSlot reports whether one more transfer may be sent. If all slots are taken, a slow transfer
// waits for it.
func (c *transferClass) giveSendingSlot() bool {
	return c.sends() < c.maxSendings || c.endSlowSending()
}

// giveReceivingSlot reports whether one more transfer may be received. If all slots are taken, a slow
// transfer ends for it.
func (c *transferClass) giveReceivingSlot() bool {
	return c.receives() < c.maxReceivings || c.endSlowReceiving()
}

// endSlowReceiving ends a transfer to this host that is slow, and reports whether there was one.
func (c *transferClass) endSlowReceiving() bool {
	in := c.all.in
	i := slices.IndexFunc(in, func(r *receiving) bool {
		return r.class() == c && r.pace.slow && !r.running && r.hasSlot()
	})
	if i < 0 {
		return false
	}
	in[i].abort(fmt.Sprintf("it has moved less than %d bytes in %d ticks, and another one waits for its place", minSlotBytes, c.all.slotTicks()))
	return true
}

// endSlowSending makes a transfer of this host that is slow wait, and reports whether there was one. It also
// ends one that was asked for the same blocks again and again.
func (c *transferClass) endSlowSending() bool {
	out := c.all.out
	i := slices.IndexFunc(out, func(s *sending) bool {
		return s.class() == c && s.isActive() && !s.running && (s.pace.slow || s.bytes > 4*s.size+minPinnedLog)
	})
	if i < 0 {
		return false
	}
	out[i].wait(int64(c.all.host.config.electionTicks()))
	return true
}

// metrics returns what is counted.
func (c *transferClass) metrics() TransferMetrics {
	m := c.counts
	m.Sending = c.sends()
	for _, r := range c.all.in {
		if r.class() == c {
			m.Receiving++
		}
	}
	return m
}
