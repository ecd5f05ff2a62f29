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

// leadOn moves the deadlines of leaders that sleep, and wakes those that no quorum has answered. It is called
// by the clock, without the shard's lock: that of the pulses comes before it.
func (s *shard) leadOn(now, missed int64) {
	if len(s.due) == 0 {
		return
	}
	groupOf(s.due[0].Leader).host.pulses.AnswerAll(s.due)
	fresh := false
	s.mu.Lock()
	for _, l := range s.due {
		g := groupOf(l.Leader)
		if l.Answered && s.rests(g) && g.timer.in == nil && !g.closed && g.checksNext(missed) && g.activeAt == l.Since {
			g.at.ticks, g.activeAt = now, now-missed
			g.nextDue = now + g.remains
			s.wheel.set(g, g.wakeAt())
			continue
		}
		fresh = s.put(g, true) || fresh
	}
	s.mu.Unlock()
	clear(s.due)
	s.due = s.due[:0]
	if fresh {
		s.task.Wake()
	}
}

// rests reports whether no turn of the group is under way, or waits.
func (s *shard) rests(g *Group) bool {
	return g.runnable.in == nil && s.running.group != g && !g.stuck
}
