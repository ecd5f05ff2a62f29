package batches

import "time"

const (
	// A trial lasts for trialBatches batches, trialTime and trialRounds rounds, at least. Answers come in
	// lumps, one for each sync of a slow disk, and a trial must have many of them. Before it, warmBatches and
	// warmRounds pass that are not measured: their commands came under the rule before.
	trialBatches = 32
	trialTime    = 20 * time.Millisecond
	trialRounds  = 16
	warmBatches  = 8
	warmRounds   = 2
	// hopeless is which part of a trial must have passed before it may end early, 1/4, since commands take half
	// as long again under the other rule. Fewer rounds say little: answers of one may be missing.
	hopeless = 4
	// minGain is by which part of the time of a command the other rule must be better to be chosen: 1/16.
	minGain = 16
	// minStay and maxStay are how many trials the chosen rule has before the other one gets one again. Each
	// that the other one loses doubles the number. With the highest, less than 1 % of the batches are trials
	// of the other rule, so these are not the 99th percentile. A load under which commands take half as long
	// again as before, or a third less, makes the number the lowest.
	minStay, maxStay = 8, 128
)

// Choice is AtOnce or a Cohort, whichever makes commands take less time on this machine and under this load.
// It finds out by trials. The time of a command is what all have waited, and the integral over time of those
// that are pending, by how many were answered (Little's law).
//
// The other rule gets one trial in nine at first, and one in 129 when it keeps losing. It is chosen if it is
// better than the chosen one in the trial before it, and in the trial after it. So a stall of the machine in
// one trial, and a load that changes, do not make a rule look better. The zero Choice begins with AtOnce, and
// so does one after a time on a long line.
type Choice struct {
	cohort  Cohort
	chosen  int           // 0: AtOnce; 1: Cohort
	tried   int           // in this trial
	own     time.Duration // of the chosen rule, in its latest trial
	basis   time.Duration // the same, when the other one was tried last; 0: it was not
	other   time.Duration // of the other rule, which was better than own; 0: it was not
	stay    int           // trials of the chosen rule before the next of the other one
	trials  int           // of the chosen rule, since then
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

// TrialLasts returns how long a trial of a Choice lasts at least, with rounds as long as this.
func TrialLasts(round time.Duration) time.Duration { return max(trialTime, trialRounds*round) }

// Next implements Rule.
func (c *Choice) Next(s State) (v Verdict) {
	if s.isLong() {
		*c = Choice{measure: trial{since: s.Now, at: s.Now}}
		return AtOnce{}.Next(s)
	}
	c.measure.add(s)
	if c.measure.has(s, 1) || c.tried != c.chosen && c.measure.has(s, hopeless) && c.measure.isAbove(c.own+c.own/2) {
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

// Chosen implements Rule.
func (c *Choice) Chosen() Kind {
	if c.chosen == 0 {
		return Immediate
	}
	return Cohorts
}

// add counts what has passed since the latest State.
func (t *trial) add(s State) {
	t.area += time.Duration(t.pending) * (s.Now - t.at)
	t.at = s.Now
	if t.answered += s.Answered; !t.warm && t.batches >= warmBatches && s.Now-t.since >= warmRounds*s.Round {
		*t = trial{warm: true, since: s.Now, at: s.Now}
	}
}

// has reports whether a part of the trial has passed: 1/part.
func (t *trial) has(s State, part int) bool {
	return t.warm && t.answered > 0 && t.batches >= trialBatches/part && s.Now-t.since >= TrialLasts(s.Round)/time.Duration(part)
}

// isAbove reports whether commands take more time than this.
func (t *trial) isAbove(took time.Duration) bool { return t.area > took*time.Duration(t.answered) }

// end ends a trial, and says which rule is tried in the next one.
func (c *Choice) end(now time.Duration) {
	took := max(c.measure.area/time.Duration(c.measure.answered), 1)
	c.measure = trial{warm: true, since: now, at: now}
	was := c.tried
	switch {
	case c.tried != c.chosen && isBetter(took, c.own):
		c.other, c.tried = took, c.chosen // the next trial decides
	case c.tried != c.chosen:
		c.lose()
	case c.other > 0 && isBetter(c.other, took):
		c.own, c.basis = c.other, c.other
		c.chosen, c.tried, c.other, c.trials, c.stay = 1-c.chosen, 1-c.chosen, 0, 0, minStay
	case c.other > 0:
		c.own = took
		c.lose()
	default:
		c.own = took
		if c.basis > 0 && (2*took > 3*c.basis || 3*took < 2*c.basis) {
			c.stay = min(c.stay, minStay)
		}
		if c.trials++; c.trials >= c.stay {
			c.tried, c.basis = 1-c.chosen, took
		}
	}
	if c.tried != was {
		c.measure, c.cohort = trial{since: now, at: now}, Cohort{misses: c.cohort.misses, pause: c.cohort.pause}
	}
}

// isBetter reports whether a time of the other rule is clearly less than one of the chosen rule.
func isBetter(other, chosen time.Duration) bool { return other < chosen-chosen/minGain }

// lose keeps the chosen rule, for longer than before.
func (c *Choice) lose() {
	c.other, c.tried, c.trials, c.stay = 0, c.chosen, 0, min(max(2*c.stay, minStay), maxStay)
}
