// Package sim runs whole hosts (the real runtime, log and transport framing) in one goroutine, from a seed,
// in virtual time. It injects faults beneath them. A disk loses un-synced writes (vfs/crashfs), fills up,
// hangs and fails. A network drops, duplicates, corrupts, delays, reorders and cuts. Clocks drift, and
// state machines hang. Hosts crash at any disk operation or are closed in the middle of work. Each run
// draws a pipeline and a mode of durability, and demands only what the mode promises (durability.go).
//
// A simulated host differs from one in production in only three values: its env.Env, its vfs.FS and its
// Transport. There is no "if simulated" anywhere.
//
// After every event the cluster is compared with what Raft promises (package property has the list, each
// property has a file of its own). The checks are written from public observations and naively, without the
// code under test. At the end faults stop. Then the cluster must elect, commit and converge, and answer every
// client that still waits, because safety alone is easy: a cluster that does nothing is safe.
//
// The same seed gives the same run, event for event. A failure prints its seed; run it again with a trace:
//
//	go test ./sim -run TestSeeds -count=1 -seed=4711 -events
//
// With -mode all seeds run in one mode of durability, as in -mode 'group-delay(5ms,0,0)'.
//
// Two trees of the source behave in the same way if they write the same hashes (observations.go):
//
//	go test ./sim -run TestSeeds -count=1 -seeds=300 -hashes=FILE
//
// RunMachine runs a user's machine in the same world (user.go), and returns a history of its operations.
//
// Reading order. The world: sim.go, world.go (time and workers), network.go, host.go (life and death of a
// host), disk.go, durability.go. What goes wrong: faults.go, nemesis.go and strike.go, phases.go (what it
// meets), descriptors.go, directorymove.go, poisonskip.go (commands that machines cannot apply), lies.go.
// Clients: client.go, packing.go (several commands in an entry). Judges: checks.go and property_*.go with
// wellness.go, rests.go, observations.go, cost.go, flight.go. Scenarios: scenario.go and the files that use
// it, each run with many seeds.
package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/wal"
)

// Options select a run.
type Options struct {
	Seed uint64
	// Mode, if set, is the mode of durability. Otherwise the seed draws one.
	Mode *wal.Mode
	// Faults is how much virtual time passes before faults stop; default 3 s.
	Faults time.Duration
	// Trace, if set, receives every event.
	Trace io.Writer
	// Observations, if set, receives everything that the run observes (observations.go).
	Observations io.Writer
	// EveryDuty makes each turn of a group call all its duties, wanted or not (env.Duties). The run must be
	// the same.
	EveryDuty bool
	// Choice leaves injections out (package coverage). Everything about an injection is drawn before, so the
	// rest of the run draws what it would have drawn. What package coverage has no row for happens all the
	// same: hosts that close, machines and reads that hang, impostors, lies.
	Choice coverage.Choice
	// FlightRecorder gives all hosts a flight recorder. At the end of each process its recordings are
	// replayed, and must be exact.
	FlightRecorder bool
	// Together makes clients hand in several commands at once, and gather their outcomes, as those of
	// reads (SubmitMany, SubmitRead).
	Together bool
	// BatchEntries gives no host host.Config.SingleEntries. Without it the seed draws which have it.
	BatchEntries bool

	groups   int  // so many; 0: the seed draws
	small    bool // three hosts and the asynchronous pipeline, for every seed
	hosts    int  // so many, if small
	calls    bool // the groups have commands
	objects  bool // the groups have objects
	durable  bool // the machine of a user is on a disk
	churn    bool // members change, for every seed
	upgrades bool // programs can do several versions, for every seed that may have that
	poison   bool // machines cannot apply some commands, for every seed that may have them
	still    bool // members do not change
	rests    bool // the faults rest at times (rests.go)

	publishes bool         // machines publish, for every seed
	watched   func(*world) // is called at the end, if set

	into *Report // if set, a scenario describes its run here
}

// Report describes a run.
type Report struct {
	Seed      uint64
	Hosts     int
	Groups    int
	Pipeline  string
	Mode      string
	Events    int
	Virtual   time.Duration
	Faults    Faults
	Leaders   int // terms that had a leader
	Submitted int
	Acked     int
	Impostors int    // hosts that ran under the id of another
	Refusals  int    // connections that a host refused because of the other end
	Reads     Reads  // that ended well, by kind
	Applied   uint64 // last index applied by all at the end, summed over the groups
	Flights   Flights
	Digest    uint64 // hash of the whole history: equal runs have equal digests
	Coverage  coverage.Matrix
	// Injections is how many ordinals were given to injections.
	Injections int
	// Verdicts is how often the verdicts of a cluster that was well were judged.
	Verdicts int
}

func (r Report) String() string {
	return fmt.Sprintf("seed %d: %d hosts, %d groups, %s, %s, %d events in %v of virtual time, %d leaders, %d of %d commands acknowledged, log of %d; %v",
		r.Seed, r.Hosts, r.Groups, r.Pipeline, r.Mode, r.Events, r.Virtual, r.Leaders, r.Acked, r.Submitted, r.Applied, r.Faults)
}

// Violation is a broken promise.
type Violation struct {
	Seed uint64
	Mode *wal.Mode // as in Options
	// Faults is how much virtual time passed before faults stopped.
	Faults time.Duration
	At     time.Duration
	// Property is what was broken.
	Property property.Name
	What     string
	// Choice is that of the run.
	Choice coverage.Choice

	scenario bool // the seed is that of a scenario, and not of Run
	user     bool // it is one of RunMachine
	rests    bool // it is one of Rests

	publishes bool // it is one of Subscriptions
}

func (v *Violation) Error() string {
	left := ""
	if !v.Choice.IsEmpty() {
		left = " " + v.Choice.String()
	}
	if v.scenario {
		return fmt.Sprintf("seed %d of the scenario, at %v: %s: %s\nreplay: call the scenario with sim.Options{Seed: %d, Trace: os.Stdout}", v.Seed, v.At, v.Property, v.What, v.Seed)
	}
	if v.user {
		return fmt.Sprintf("seed %d of the machine, at %v: %s: %s\nreplay: call sim.RunMachine with sim.Options{Seed: %d, Trace: os.Stdout}", v.Seed, v.At, v.Property, v.What, v.Seed)
	}
	mode := ""
	if v.Mode != nil {
		mode = fmt.Sprintf(" -mode='%v'", *v.Mode)
	}
	if v.Faults != defaultFaults {
		mode += fmt.Sprintf(" -faults=%v", v.Faults)
	}
	replay := fmt.Sprintf("TestSeeds -count=1 -seed=%d", v.Seed)
	if v.rests {
		replay = fmt.Sprintf("TestRests -count=1 -first=%d -rest-seeds=1", v.Seed)
	}
	if v.publishes {
		replay = fmt.Sprintf("TestSubscriptions -count=1 -first=%d -subscriptions=1", v.Seed)
	}
	return fmt.Sprintf("seed %d, at %v: %s: %s\nreplay: go test ./sim -run %s%s -events%s", v.Seed, v.At, v.Property, v.What, replay, mode, left)
}

// Run runs one seed. The error, if any, is a *Violation.
func Run(o Options) (report Report, err error) {
	if o.Faults == 0 {
		o.Faults = defaultFaults
	}
	w := newWorld(o)
	defer func() {
		report = w.report()
		if o.watched != nil {
			o.watched(w)
		}
		err = violation(recover())
	}()
	w.drawUpgrades(nil)
	w.startHosts()
	w.startClients()
	w.startUpgrades()
	w.reads.schedule()
	w.startNemesis()
	w.startImpostors()
	w.startChurn()
	w.startObjects()
	w.startStrikes(o.Faults)
	w.startShortages()
	w.startMoves()
	w.upgrade()
	if o.rests {
		w.passWithRests(o.Faults)
	} else {
		w.startPoison()
		w.pass(o.Faults)
	}
	w.endWell()
	return report, nil
}

// endWell stops the faults and demands what the cluster owes without them.
func (w *world) endWell() {
	w.stopFaults()
	began := w.effort()
	w.checkRecovery()
	w.checkCost(began)
	if w.user != nil {
		w.user.checkTimers()
	}
	w.checkAnswers()
	w.checkTimes()
	w.objects.handOver()
	if !w.runUntil(w.now+healTime+2*w.objectLife(), w.haveAllObjects) {
		w.breaks(property.Objects, "%v after the last fault a member lacks objects, or has too many: %s", healTime, w.describeObjects())
	}
	w.checkObjects()
	w.checkQuiet()
	w.checkRecovery() // the last answer may have halted machines, and a plan that ended late may have added a member
	w.checkStates()
	w.checkVersions()
	w.checkSubscribers()
	w.checkVerdicts()
	w.checkAtEnd()
	w.checkDisks()
	w.endBroken()
}

// violation converts the value that recover returned into the error of a run, or nil.
func violation(recovered any) error {
	v, ours := recovered.(*Violation)
	switch {
	case recovered == nil:
		return nil
	case !ours:
		panic(recovered)
	}
	return v
}

// splitSeed gives each part of the simulation its own random source, so that extra draws in one part do not
// change another part.
func splitSeed(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }
