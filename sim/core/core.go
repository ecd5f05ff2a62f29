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
//	property (property.go)                            thesis       checked by
//	one leader in a term                              §3.4         oracle.leads
//	leader completeness: it has all of earlier terms  §3.6.3       oracle.leads
//	log matching: one entry at an index of a term     §3.5         oracle.written
//	a quorum holds what is committed, durably         §3.5, §10.2  oracle.commits
//	committed entries stay, and are the same          §3.6.3       oracle.commits, oracle.applies
//	the same applied, in order, once, durable there   §3.6.3       oracle.applies, oracle.installs
//	one vote in a term, and it is not forgotten       §3.4, §3.8   oracle.leaves, oracle.remembers
//	promises are durable before they are made         §3.8, §10.2  oracle.leaves
//	nothing goes back: term, commit, cursors          fig. 3.1     oracle.moves
//	reads see what was committed when asked           §6.4         oracle.answered
//	the same members after each change                §4.3         oracle.changed, oracle.installs
//	recovery: all in order again after the faults     §3.9         world.heal
//	no complaint: no node stops or refuses another                 oracle.moves, node.hears
//	storage contract: writes that can be done         §10.2        oracle.written, image.write
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

	// Without names a property that is not checked, to see whether another one finds the same bug.
	Without Property

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

	Property Property // that was violated; Harmony if the core says so itself
}

func (v *Violation) Error() string {
	ticks := ""
	if v.Ticks != defaultTicks {
		ticks = fmt.Sprintf(" -ticks=%d", v.Ticks)
	}
	return fmt.Sprintf("seed %d, at tick %d: %s: %s\nreplay: go test ./sim/core -run TestSeeds -count=1 -seed=%d%s -events", v.Seed, v.At, v.Property, v.What, v.Seed, ticks)
}

// Run runs one seed. The error, if any, is a *Violation.
func Run(o Options) (report Report, err error) {
	if o.Ticks == 0 {
		o.Ticks = defaultTicks
	}
	w := newWorld(o)
	defer func() {
		report = w.report()
		report.Seed = o.Seed
		if r := recover(); r != nil {
			v, ok := r.(*Violation)
			if !ok {
				// The core panics when an invariant of its own is broken.
				v = &Violation{Property: Harmony, What: fmt.Sprint(r)}
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

// split returns a source of random numbers for a part of a run.
func split(seed, part uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, part)) }
