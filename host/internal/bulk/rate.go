package bulk

import (
	"fmt"
	"slices"
)

// There are few slots for transfers, and each transfer goes on for as long as it likes: a content may be
// large, and a link slow. But no transfer keeps a slot from others for ever. If all slots are taken and one
// more transfer wants to begin, one that has moved almost nothing for SlotTicks ends, and the other takes its
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

// minSlotBytes is what a transfer must move in SlotTicks, if others wait.
const minSlotBytes = 1 << 20

// SlotTicks is how long a transfer keeps its slot, however slow it is.
func (t *Transfers) SlotTicks() int64 { return 8 * t.idleTicks() }

// pass notes that a transfer has moved these bytes by now.
func (p *pace) pass(now, bytes, stretch int64) {
	if now-p.at >= stretch {
		*p = pace{now, bytes, bytes-p.bytes < minSlotBytes}
	}
}

// Class is what the transfers of one kind of content share on a host: slots, a rate, and counts.
// The lock of the transfers guards it.
type Class struct {
	all    *Transfers
	rate   rate
	counts Counts // without what is now
	single bool   // a member is sent one content at a time

	MaxSendings, MaxReceivings int // transfers at a time
}

// Counts are about the transfers of a class.
type Counts struct {
	Sending, Receiving       int    // now
	Sent, Received           uint64 // that have ended well
	Aborted                  uint64 // of both kinds; a fetch that starts over counts, too
	BytesSent, BytesReceived uint64
	Unwanted                 uint64 // blocks that came and were not asked for, or were here already
}

// NewClass adds a class, before the first transfer. If single is set, a member is sent one content of the
// class at a time: what is sent to it changes with the next try.
func (t *Transfers) NewClass(maxSendings, maxReceivings int, bytesPerSecond int64, single bool) *Class {
	c := &Class{all: t, rate: newRate(bytesPerSecond, t.settings.TicksPerSecond), single: single, MaxSendings: maxSendings, MaxReceivings: maxReceivings}
	t.classes = append(t.classes, c)
	return c
}

// sends returns how many transfers of the class are being sent.
func (c *Class) sends() (n int) {
	for _, s := range c.all.out {
		if s.IsActive() && s.class() == c {
			n++
		}
	}
	return n
}

// receives returns how many transfers of the class to this host use the network and the disk.
func (c *Class) receives() (n int) {
	for _, r := range c.all.in {
		if r.HasSlot() && r.class() == c {
			n++
		}
	}
	return n
}

// giveSendingSlot reports whether one more transfer may be sent. If all slots are taken, a slow transfer
// waits for it.
func (c *Class) giveSendingSlot() bool {
	return c.sends() < c.MaxSendings || c.endSlowSending()
}

// GiveReceivingSlot reports whether one more transfer may be received. If all slots are taken, a slow
// transfer ends for it. It is called in Do.
func (c *Class) GiveReceivingSlot() bool {
	return c.receives() < c.MaxReceivings || c.endSlowReceiving()
}

// endSlowReceiving ends a transfer to this host that is slow, and reports whether there was one.
func (c *Class) endSlowReceiving() bool {
	in := c.all.in
	i := slices.IndexFunc(in, func(r *Receiver) bool {
		return r.class() == c && r.pace.slow && !r.running && r.HasSlot()
	})
	if i < 0 {
		return false
	}
	in[i].Abort(fmt.Sprintf("it has moved less than %d bytes in %d ticks, and another one waits for its place", minSlotBytes, c.all.SlotTicks()))
	return true
}

// endSlowSending makes a transfer of this host that is slow wait, and reports whether there was one. It also
// ends one that was asked for the same blocks again and again.
func (c *Class) endSlowSending() bool {
	out := c.all.out
	i := slices.IndexFunc(out, func(s *Sender) bool {
		return s.class() == c && s.IsActive() && !s.running && (s.pace.slow || s.bytes > 4*s.size+MinPinnedLog)
	})
	if i < 0 {
		return false
	}
	out[i].Wait(c.all.settings.Election)
	return true
}

// now returns what is counted.
func (c *Class) now() Counts {
	m := c.counts
	m.Sending = c.sends()
	for _, r := range c.all.in {
		if r.class() == c {
			m.Receiving++
		}
	}
	return m
}

// rate is a token bucket in bytes and ticks. It bounds what a host sends of snapshots per tick, over
// all its groups. What was not used is kept for a short time only: a burst must not take the link from
// others.
type rate struct {
	perTick int64
	have    int64
	at      int64 // tick
}

// burstTicks is how many ticks' worth of bytes may be sent at once; at least a block may.
const burstTicks = 2

func newRate(bytesPerSecond int64, ticksPerSecond float64) rate {
	perTick := max(int64(float64(bytesPerSecond)/ticksPerSecond), 1)
	r := rate{perTick: perTick}
	r.have = r.most()
	return r
}

func (r *rate) most() int64 { return max(burstTicks*r.perTick, BlockBytes) }

// advance adds what the ticks through now allow.
func (r *rate) advance(now int64) {
	if now <= r.at {
		return
	}
	r.have = min(r.have+min(now-r.at, burstTicks+BlockBytes/r.perTick+1)*r.perTick, r.most())
	r.at = now
}

// blocks returns how many whole blocks may be sent now.
func (r *rate) blocks() int64 { return max(r.have, 0) / BlockBytes }

// spend takes bytes out.
func (r *rate) spend(bytes int64) { r.have -= bytes }
