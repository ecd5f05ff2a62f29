package sim

import (
	"slices"
	"time"
)

// Scenario is a kind of run with a name, for programs that run many seeds of several kinds. A scenario
// whose verdict needs many seeds at once, or an argument, is not among them: the tests of this package run
// it.
type Scenario struct {
	Name  string // lower case, with hyphens. Names do not change
	About string // one line
	// Faults is how long faults last in a run, in virtual time, unless Options say otherwise. 0 is a
	// scenario that tells its story to the end: it ignores Options.Faults.
	Faults time.Duration

	run func(Options) (Report, error)
}

// Run runs one seed. The error, if any, is a *Violation.
func (s Scenario) Run(o Options) (Report, error) { return s.run(o) }

// Scenarios returns all of them. The first one is Run.
func Scenarios() []Scenario { return slices.Clone(scenarios) }

// defaultFaults is how long faults last in a run.
const defaultFaults = 3 * time.Second

var scenarios = []Scenario{
	{"hosts", "whole hosts, every fault at random", defaultFaults, Run},
	{"churn", "the same, and members change in every run", defaultFaults, func(o Options) (Report, error) {
		o.churn = true
		return Run(o)
	}},
	{"rests", "the same, and faults rest until the verdicts of a cluster that is well were judged", defaultFaults, Rests},
	{"objects", "the same, and clients upload large objects and name them", defaultFaults, func(o Options) (Report, error) {
		return Run(withObjects(o))
	}},
	{"poison", "the same, and machines cannot apply some commands, which an operator makes all members skip", defaultFaults, func(o Options) (Report, error) {
		o.poison = true
		return Run(o)
	}},
	{"upgrades", "the same, and programs change the versions of their machines, and members are asked for upgrades", defaultFaults, func(o Options) (Report, error) {
		o.upgrades, o.calls = true, true
		return Run(o)
	}},
	story("snapshots", "snapshots all the time, and crashes at disk operations", Snapshots),
	story("catch-up", "a member behind the log of the others gets a snapshot, and all goes wrong meanwhile", CatchUp),
	story("lowered-memory", "hosts start again with less memory than the entries in their logs have needed", LoweredMemory),
	story("descriptors", "machines run out of descriptors again and again, while members restart and get snapshots", Descriptors),
	story("repairs", "logs that were repaired with something missing regain their authority", Repairs),
	story("blackouts", "a majority loses power in an unsafe mode of durability", Blackouts),
	story("founding", "a group is founded, and one of its hosts loses its directory", Founding),
	story("rescues", "a majority is gone for good, and one survivor becomes a new cluster", Rescues),
	story("elections", "the leader crashes beside a follower with a full disk", func(o Options) (time.Duration, error) { return Election(o, true) }),
	story("exactly-once", "frames repeat, leaders end, and each command takes effect once", func(o Options) (ExactlyOnceReport, error) {
		return ExactlyOnce(o, 2*time.Second)
	}),
	story("transfers", "the leader is asked to hand over, again and again", func(o Options) (int, error) {
		well, badly, err := Transfers(o)
		return well + badly, err
	}),
}

// story makes a Scenario of a function that has a report of its own kind.
func story[R any](name, about string, run func(Options) (R, error)) Scenario {
	return Scenario{Name: name, About: about, run: func(o Options) (report Report, err error) {
		o.into = &report
		_, err = run(o)
		return report, err
	}}
}
