// Package core runs clusters of the core alone (package raft) in one goroutine, from one seed: it is the
// fast level of the simulator. It has no hosts, no log and no transport, only what the contract of package
// raft says about them. Storage workers are slow, and a power cut tears their writes in the order of the
// contract. A network loses, duplicates, delays, reorders and cuts. Clocks run at different rates and stop;
// members come and go. So it makes one and a half million events in a second of a core, where package sim
// makes some ten thousand of whole hosts.
//
// A run draws what may go wrong in it, and how often (swarm.go), and which faults wait for which phase of the
// cluster (strike.go). Each injection is counted by fault and phase, and single ones can be left out (package
// coverage). Each input of a node is followed by the checks of property_*.go, each of which costs a constant
// time; package property says what they check. When the faults end, the cluster must elect a leader, commit,
// answer reads and agree within a stated time (property_recovery.go).
//
// The same seed gives the same run. A failure names its seed:
//
//	go test ./sim/core -run TestSeeds -count=1 -seed=4711 -events
package core

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

// Options select a run.
type Options struct {
	Seed uint64
	// Ticks is how many ticks pass before faults end; default 400.
	Ticks int
	// Trace, if set, receives every event, a line each.
	Trace io.Writer
	// Watch, if set, is called after every step of a node (watch.go). The seed must have drawn asynchronous
	// mode.
	Watch func(*Event)

	// Choice leaves injections out (package coverage). Everything about an injection is drawn before, so the
	// rest of the run draws what it would have drawn. Leaders that step down and ends in good order happen
	// all the same.
	Choice coverage.Choice

	// Liar adds a member's name in which terms are told that are far ahead (liar.go).
	Liar bool

	// Unchecked names a property that is not checked, to see whether another one finds the same bug.
	Unchecked property.Name

	aim *coverage.Cell // of all strikes; nil: each draws one
	bug bug            // a mistake of the storage, for tests of the oracles
}

// DefaultTicks is how long faults last in a run of the core, in ticks: about ten leaders come and go.
const DefaultTicks = 400

// Report describes a run.
type Report struct {
	Seed  uint64
	Nodes int
	// Events counts the inputs of the nodes (messages of peers, answers of storage workers, ticks, requests)
	// and the writes and applications that storage workers did.
	Events    uint64
	Ticks     int // until everything was in order again
	Committed uint64
	Leaders   int // terms that had a leader
	Reads     int // that were answered
	Faults    Faults
	Digest    uint64 // of everything that happened: equal runs have equal digests
	Coverage  coverage.Matrix
	// Injections is how many ordinals were given to injections.
	Injections int
}

func (r Report) String() string {
	return fmt.Sprintf("seed %d: %d nodes, %d events in %d ticks, %d leaders, %d entries committed, %d reads; %v",
		r.Seed, r.Nodes, r.Events, r.Ticks, r.Leaders, r.Committed, r.Reads, r.Faults)
}

// Violation is a broken promise.
type Violation struct {
	Seed  uint64
	Ticks int // as in Options
	At    int // in ticks
	// Property is what was broken.
	Property property.Name
	What     string
	// Liar is as in Options.
	Liar bool
	// Choice is that of the run.
	Choice coverage.Choice
}

func (v *Violation) Error() string {
	ticks := ""
	if v.Ticks != DefaultTicks {
		ticks = fmt.Sprintf(" -ticks=%d", v.Ticks)
	}
	if v.Liar {
		ticks += " -liar"
	}
	if !v.Choice.IsEmpty() {
		ticks += " " + v.Choice.String()
	}
	return fmt.Sprintf("seed %d, at tick %d: %s: %s\nreplay: go test ./sim/core -run TestSeeds -count=1 -seed=%d -events%s", v.Seed, v.At, v.Property, v.What, v.Seed, ticks)
}

// Run runs one seed. The error, if any, is a *Violation, unless the run cannot be watched.
func Run(o Options) (report Report, err error) {
	if o.Ticks == 0 {
		o.Ticks = DefaultTicks
	}
	w := newWorld(o)
	if o.Watch != nil && !w.swarm.async {
		return Report{}, fmt.Errorf("core: seed %d runs in synchronous mode, which cannot be watched; take another seed (SettingsOf)", o.Seed)
	}
	defer func() {
		report = w.report()
		report.Seed = o.Seed
		if r := recover(); r != nil {
			v, ok := r.(*Violation)
			if !ok {
				// The core panics when an invariant of its own is broken.
				v = &Violation{Property: property.Contract, What: fmt.Sprint(r)}
				if w.trace != nil {
					defer panic(r) // with its stack
				}
			}
			v.Seed, v.Ticks, v.At, v.Choice, v.Liar = o.Seed, o.Ticks, w.beat/beats, o.Choice, o.Liar
			err = v
		}
	}()
	w.found()
	for w.beat < o.Ticks*beats {
		w.step()
	}
	w.heal()
	return Report{}, nil
}

// violate ends the run, unless the property is not checked. What follows then is as if no one had looked.
func (w *world) violate(of property.Name, format string, args ...any) {
	if of != w.unchecked {
		violate(of, format, args...)
	}
}

// violate ends the run.
func violate(of property.Name, format string, args ...any) {
	panic(&Violation{Property: of, What: fmt.Sprintf(format, args...)})
}

// split returns a source of random numbers for a part of a run.
func split(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }
