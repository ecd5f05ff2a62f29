package host

import "github.com/millrace/millrace/host/internal/sched"

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
	if due := g.nextDue - g.nextDue%ticksPerHeartbeat; (g.isIdle || g.pulsed) && due > g.at.ticks {
		return due
	}
	return g.nextDue
}

// hearsOn moves the deadline of a follower that sleeps and has heard its leader. It reports whether that is
// after now.
func (g *Group) hearsOn(now, missed int64) bool {
	c := g.cover.Cover()
	if c == nil || !g.isIdle || g.at.missed != missed {
		return false
	}
	heard := c.List.At() + missed
	if heard <= g.at.ticks {
		return false
	}
	g.nextDue = heard + g.remains
	return g.wakeAt() > now
}

// checksNext reports whether the group's next deadline is the check of the quorum, and the check before was
// at the core's present time.
func (g *Group) checksNext(missed int64) bool {
	return g.pulsed && g.remains == int64(g.host.config.electionTicks()) && g.at.missed == missed
}

// Deadline implements sched.Turner.
func (s *seated) Deadline(at sched.Moment) sched.Verdict {
	switch g := (*Group)(s); {
	case g.hearsOn(at.Ticks, at.Missed):
		return sched.Verdict{Due: g.wakeAt()}
	case g.checksNext(at.Missed):
		return sched.Verdict{Asks: true, Since: g.activeAt}
	}
	return sched.Verdict{}
}

// Confirmed implements sched.Turner: a quorum has answered pulses, so the check of the quorum succeeds.
func (s *seated) Confirmed(at sched.Moment, since int64) (due int64, sleeps bool) {
	g := (*Group)(s)
	if !g.checksNext(at.Missed) || g.activeAt != since {
		return 0, false
	}
	g.at.ticks, g.activeAt = at.Ticks, at.Ticks-at.Missed
	g.nextDue = at.Ticks + g.remains
	return g.wakeAt(), true
}
