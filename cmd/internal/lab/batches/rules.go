package batches

import (
	"time"

	held "github.com/millrace/millrace/host/batches"
	rules "github.com/millrace/millrace/sim/batches"
)

// contender is a rule that takes part.
type contender struct {
	name   string
	rule   func(at place) rules.Rule // nil: host decides
	host   held.Kind
	echoes bool
}

// twoStages is the name of the two-stage acknowledgement: a follower says at once that it has received an
// append, and later that it is durable; the leader begins the next batch at the former. No host sends the
// first of these answers. They are part of the model: each costs what a small frame costs at both ends, and
// the rule waits for exactly the time that it takes, which is the best that a host could do.
const twoStages = "two stages"

// contenders are the rules that are compared, the winner of earlier runs first.
var contenders = []contender{
	{name: "at once", host: held.Immediate},
	fixed(rules.Depth(1)),
	fixed(rules.Depth(2)),
	fixed(rules.Depth(4)),
	fixed(rules.Depth(8)),
	fixed(rules.Depth(32)),
	fixed(rules.Halfway{}),
	{name: twoStages, host: held.Immediate, echoes: true, rule: func(at place) rules.Rule {
		return rules.Spaced{By: 2*at.delay + time.Duration(jitter*float64(at.delay)), Named: twoStages}
	}},
	fixed(rules.Window(1)),
	fixed(rules.Window(2)),
	fixed(rules.Stages{}),
	{name: "cohort", host: held.Cohorts},
	{name: today, host: held.Automatic},
}

// gate returns the rule that holds commands before they come to the leader, or nil.
func (c contender) gate(at place) rules.Rule {
	if c.rule == nil {
		return nil
	}
	return c.rule(at)
}

func fixed(r rules.Rule) contender {
	return contender{name: r.Name(), host: held.Immediate, rule: func(place) rules.Rule { return r }}
}

// today is what a host does.
const today = "by trial"
