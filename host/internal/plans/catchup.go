package plans

import "slices"

// CatchUp says which learners have caught up, for the stage that promotes them. A learner has caught up
// when it needs less than an election timeout for what the log has got in the round before (thesis §4.2.1).
// Otherwise the group could wait that long for a quorum with the new voter. The zero value has begun no
// round.
type CatchUp struct {
	version uint64 // Roster.Changed of that for which the rounds are
	rounds  []round
}

// round is a round of a learner that catches up.
type round struct {
	id    uint64
	goal  uint64 // the end of the log when the round began
	since int64  // tick
}

// Begin begins again if the members have changed.
func (c *CatchUp) Begin(version uint64) {
	if c.version != version {
		*c = CatchUp{version: version}
	}
}

// IsLevel reports whether a learner has caught up. match is the end of what it acknowledged. It is 0 as
// long as the learner does not get the log as that grows. last is the end of the log, timeout are ticks.
func (c *CatchUp) IsLevel(id, match, last uint64, now, timeout int64) bool {
	at := slices.IndexFunc(c.rounds, func(r round) bool { return r.id == id })
	if at < 0 {
		c.rounds = append(c.rounds, round{id: id, goal: last, since: now})
		return false
	}
	r := &c.rounds[at]
	if match < r.goal {
		return false
	}
	level := now-r.since <= timeout
	r.goal, r.since = last, now
	return level
}
