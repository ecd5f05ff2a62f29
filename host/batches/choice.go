package batches

import "time"

const (
	// A trial lasts for trialBatches batches and trialTime, at least. Before it, warmBatches pass that are
	// not measured: their commands came under the rule before.
	trialBatches = 32
	trialTime    = 20 * time.Millisecond
	warmBatches  = 8
	// minGain is by which part of the time of a command the other rule must be better to be chosen: 1/16.
	minGain = 16
	// minStay and maxStay are how many trials the chosen rule has before the other one gets one again. Each
	// that the other one loses doubles the number.
	minStay, maxStay = 8, 64
)

// Choice is AtOnce or a Cohort, whichever makes commands take less time on this machine and under this load.
// It finds out by trials. The time of a command is what all have waited, and the integral over time of those
// that are pending, by how many were answered (Little's law).
//
// The other rule gets one trial in nine at first, and one in 65 when it keeps losing. The zero Choice begins
// with AtOnce.
type Choice struct {
	cohort  Cohort
	chosen  int // 0: AtOnce; 1: Cohort
	tried   int // in this trial
	took    [2]time.Duration
	stay    int // trials of the chosen rule before the next of the other one
	trials  int // of the chosen rule, since then
	measure trial
}

// trial is what commands take.
type trial struct {
	warm     bool
	since    time.Duration
	at       time.Duration // of the latest State
	pending  int           // commands that were pending then
	area     time.Duration // commands × time
	answered int
	batches  int
}

// Next implements Rule.
func (c *Choice) Next(s State) (v Verdict) {
	if s.isLong() {
		c.measure = trial{at: s.Now}
		return AtOnce{}.Next(s)
	}
	c.measure.add(s)
	if c.measure.isEnough(s.Now) {
		c.end(s.Now)
	}
	if c.tried == 0 {
		v = AtOnce{}.Next(s)
	} else {
		v = c.cohort.Next(s)
	}
	if c.measure.pending = s.Pending; v.Begins {
		c.measure.pending += s.Waiting
		c.measure.area += s.Waited
		c.measure.batches++
	}
	return v
}

// add counts what has passed since the latest State.
func (t *trial) add(s State) {
	t.area += time.Duration(t.pending) * (s.Now - t.at)
	t.at = s.Now
	if t.answered += s.Answered; !t.warm && t.batches >= warmBatches {
		*t = trial{warm: true, since: s.Now, at: s.Now}
	}
}

func (t *trial) isEnough(now time.Duration) bool {
	return t.warm && t.batches >= trialBatches && now-t.since >= trialTime && t.answered > 0
}

// end ends a trial, and says which rule is tried in the next one.
func (c *Choice) end(now time.Duration) {
	c.took[c.tried] = max(c.measure.area/time.Duration(c.measure.answered), 1)
	c.measure = trial{warm: true, since: now, at: now}
	was := c.tried
	switch other := 1 - c.chosen; {
	case c.tried == c.chosen:
		if c.trials++; c.trials >= c.stay {
			c.tried = other
		}
	case c.took[other] < c.took[c.chosen]-c.took[c.chosen]/minGain:
		c.chosen, c.trials, c.stay = other, 0, minStay
	default:
		c.tried, c.trials, c.stay = c.chosen, 0, min(max(2*c.stay, minStay), maxStay)
	}
	if c.tried != was {
		c.measure, c.cohort = trial{at: now}, Cohort{misses: c.cohort.misses, pause: c.cohort.pause}
	}
}
