package host

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

// wakeAt returns when the shard must look at the group: at its deadline or, while it sleeps, at the heartbeat
// before, so that the deadlines of thousands of groups come together.
func (g *Group) wakeAt() int64 {
	if due := g.core.nextDue - g.core.nextDue%ticksPerHeartbeat; (g.pulse.quiescence.isIdle || g.leadership.quietLead.pulsed) && due > g.core.at.Ticks {
		return due
	}
	return g.core.nextDue
}

// hearsOn moves the deadline of a follower that sleeps and has heard its leader. It reports whether that is
// after now.
func (g *Group) hearsOn(now, missed int64) bool {
	c := g.pulse.subscription.Cover()
	if c == nil || !g.pulse.quiescence.isIdle || g.core.at.Missed != missed {
		return false
	}
	heard := c.List.At() + missed
	if heard <= g.core.at.Ticks {
		return false
	}
	g.core.nextDue = heard + g.pulse.quiescence.remains
	return g.wakeAt() > now
}

// checksNext reports whether the group's next deadline is the check of the quorum, and the check before was
// at the core's present time.
func (g *Group) checksNext(missed int64) bool {
	return g.leadership.quietLead.pulsed && g.pulse.quiescence.remains == int64(g.host.config.electionTicks()) && g.core.at.Missed == missed
}
