// Package core runs clusters of the core alone (package raft) in one goroutine, from one seed: it is the
// fast level of the simulator. It has no hosts, no log and no transport, only what the contract of package
// raft says about them: storage workers that are slow, whose writes a power cut tears in the order of the
// contract; a network that loses, duplicates, delays, reorders and cuts; clocks that run at different rates
// and stop; members that come and go. So it makes two million events and more in a second of a core, where
// package sim makes some ten thousand of whole hosts.
//
// A run draws what may go wrong in it, and how often (swarm.go). Each input of a node is followed by the
// checks of oracle.go, each of which costs a constant time: the table below says what they check. When the
// faults end, the cluster must elect a leader, commit, answer reads and agree within a stated time
// (heal.go).
//
//	property                                                thesis          checked by
//	at most one leader in a term                            §3.4            oracle.leads
//	a leader has all that was committed in earlier terms    §3.6.3          oracle.leads
//	one entry for a term and an index, with one before it   §3.5            oracle.written
//	what is committed is durable on a quorum                §3.5, §10.2.1   oracle.commits
//	what is committed stays, and is the same everywhere     §3.6.3          oracle.commits, oracle.applies
//	every member applies the same, in order, once           §3.6.3          oracle.applies
//	a member votes once in a term, and does not forget it   §3.4, §3.8      oracle.leaves
//	nothing is promised that the disk does not have         §3.8, §10.2     oracle.leaves
//	terms and commit indexes do not go back                 figure 3.1      oracle.moves
//	a read sees what was committed when it was asked        §6.4            oracle.answers
//	each change leads to one configuration everywhere       §4.3            oracle.changed
//
// The same seed gives the same run. A failure names its seed:
//
//	go test ./sim/core -run TestSeeds -count=1 -seed=4711 -events
package core

import (
	"fmt"
	"io"
	"math/rand/v2"
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

	bug bug // a mistake of the storage, for tests of the oracles
}

// defaultTicks lets about ten leaders come and go.
const defaultTicks = 400

// Report describes a run.
type Report struct {
	Seed  uint64
	Nodes int
	// Events counts the inputs of the nodes (messages of peers, answers of storage workers, ticks, requests) and
	// the writes and applications that storage workers did.
	Events    uint64
	Ticks     int // until everything was in order again
	Committed uint64
	Leaders   int // terms that had a leader
	Reads     int // that were answered
	Faults    Faults
	Digest    uint64 // of everything that happened: equal runs have equal digests
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
	What  string
}

func (v *Violation) Error() string {
	ticks := ""
	if v.Ticks != defaultTicks {
		ticks = fmt.Sprintf(" -ticks=%d", v.Ticks)
	}
	return fmt.Sprintf("seed %d, at tick %d: %s\nreplay: go test ./sim/core -run TestSeeds -count=1 -seed=%d%s -events", v.Seed, v.At, v.What, v.Seed, ticks)
}

// Run runs one seed. The error, if any, is a *Violation, unless the run cannot be watched.
func Run(o Options) (report Report, err error) {
	if o.Ticks == 0 {
		o.Ticks = defaultTicks
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
				v = &Violation{What: fmt.Sprint(r)}
				if w.trace != nil {
					defer panic(r) // with its stack
				}
			}
			v.Seed, v.Ticks, v.At = o.Seed, o.Ticks, w.beat/beats
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

// violate ends the run.
func violate(format string, args ...any) { panic(&Violation{What: fmt.Sprintf(format, args...)}) }

// split returns a source of random numbers for a part of a run.
func split(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }
