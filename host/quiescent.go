package host

import (
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
)

// A group is asleep while only pulses concern it: a follower hears its leader by a list, a leader's
// heartbeats are left to the list. Its deadlines still come, one in each election timeout, but a turn would
// only find that all is well and set the next one. So the shard looks for itself, without a turn, and moves
// the deadline. A turn that comes later finds the core as if it had been asked at each of them:
//
//	follower  its election timeout counts from the latest pulse. The turn tells the core of that one pulse.
//	leader    its check of the quorum succeeds if a quorum has answered pulses since the check before. Then the
//	          core's clock is set to that moment, and the next check is one timeout later.
//
// Ticks that the process has missed are for the core to judge: after them the group runs.

// asleep is what a turn leaves for that. It belongs to the turn, and between turns to the shard's lock.
type asleep struct {
	isIdle  bool  // the latest turn had nothing to do but to hear pulses
	remains int64 // ticks from the latest turn to the core's next deadline
}

// wakeAt returns when the shard must look at the group: at its deadline or, while it sleeps, at the heartbeat
// before, so that the deadlines of thousands of groups come together.
func (g *Group) wakeAt() int64 {
	if due := g.core.nextDue - g.core.nextDue%ticksPerHeartbeat; (g.pulse.asleep.isIdle || g.leadership.quietLead.pulsed) && due > g.core.at.ticks {
		return due
	}
	return g.core.nextDue
}

// hearsOn moves the deadline of a follower that sleeps and has heard its leader. It reports whether that is
// after now.
func (g *Group) hearsOn(now, missed int64) bool {
	c := g.pulse.cover.Cover()
	if c == nil || !g.pulse.asleep.isIdle || g.core.at.missed != missed {
		return false
	}
	heard := c.List.At() + missed
	if heard <= g.core.at.ticks {
		return false
	}
	g.core.nextDue = heard + g.pulse.asleep.remains
	return g.wakeAt() > now
}

// checksNext reports whether the group's next deadline is the check of the quorum, and the check before was
// at the core's present time.
func (g *Group) checksNext(missed int64) bool {
	return g.leadership.quietLead.pulsed && g.pulse.asleep.remains == int64(g.host.config.electionTicks()) && g.core.at.missed == missed
}

// Deadline implements sched.Turner.
func (s *seated) Deadline(at sched.Moment) sched.Verdict {
	switch g := (*Group)(s); {
	case g.hearsOn(at.Ticks, at.Missed):
		return sched.Verdict{Due: g.wakeAt()}
	case g.checksNext(at.Missed):
		return sched.Verdict{Asks: true, Since: g.leadership.quietLead.activeAt}
	}
	return sched.Verdict{}
}

// Confirmed implements sched.Turner: a quorum has answered pulses, so the check of the quorum succeeds.
func (s *seated) Confirmed(at sched.Moment, since int64) (due int64, sleeps bool) {
	g := (*Group)(s)
	if !g.checksNext(at.Missed) || g.leadership.quietLead.activeAt != since {
		return 0, false
	}
	g.core.at.ticks, g.leadership.quietLead.activeAt = at.Ticks, at.Ticks-at.Missed
	g.core.nextDue = at.Ticks + g.pulse.asleep.remains
	return g.wakeAt(), true
}

// groupPulse is what a group has heard of pulses, which stand for heartbeats while it is quiet.
type groupPulse struct {
	cover     pulse.Subscription // the pulses that speak for its leader
	asleep    asleep
	heardList *pulse.PeerPulses // of the last pulse that the core was told,
	heardN    int64             // and its number there
	idle      bool              // only its leader's pulses concern it
}
