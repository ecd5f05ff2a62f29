package core

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// What a run may do, and how often. Each run draws its own mixture: a mixture of everything hides what needs
// the absence of something ("swarm testing", Groce and others, 2012).

// Fault is a kind of fault.
type Fault int

// The faults.
const (
	Lost       Fault = iota // messages
	Duplicated              // the same
	Late                    // the same, by more than an election timeout at times
	Cut                     // links that lose everything, in one direction
	Crashed                 // nodes that lose what is not durable
	Blackouts               // of all nodes at once
	Torn                    // writes of which a crash left a part
	Paused                  // nodes that do nothing for some time
	Slow                    // disks, for some time
	Drifting                // clocks
	Transfers               // of leadership that were asked for
	Changes                 // of members that were proposed
	StepDowns               // that leaders were asked for
	Compacted               // logs
	Installed               // snapshots
	Forgot                  // nodes whose disk lacks what they promised
	Regained                // authority
	Full                    // disks
	Jumps                   // of clocks
	Floods                  // of commands
	Corrupted               // frames
	Left                    // lives that ended in good order

	faultKinds
)

var faultNames = [faultKinds]string{"messages lost", "duplicated", "late", "links cut", "crashes", "blackouts", "torn writes", "pauses", "slow disks",
	"drifting clocks", "transfers", "changes of members", "leaders that step down", "compactions", "snapshots installed",
	"disks that lack something", "authorities regained", "full disks", "clocks that jump", "floods of commands", "frames corrupted", "ends in good order"}

func (f Fault) String() string { return faultNames[f] }

// Faults counts faults by kind.
type Faults [faultKinds]int

// Add adds the counts of another run.
func (f *Faults) Add(other Faults) {
	for kind, n := range other {
		f[kind] += n
	}
}

func (f Faults) String() string {
	var s []string
	for kind, n := range f {
		if n > 0 {
			s = append(s, fmt.Sprintf("%d %v", n, Fault(kind)))
		}
	}
	return strings.Join(s, ", ")
}

// swarm is what one run does. Odds are of 65,536.
type swarm struct {
	nodes, founders int
	async           bool
	volatile        bool // state machines begin empty after a crash
	ranges          bool
	preVote         bool
	checkQuorum     bool
	checkAppends    bool
	leases          bool
	members         bool // change
	stepDown        bool
	batch           bool // a node takes a Ready once in a beat, not after each input
	election        int
	inflight        int
	perMessage      uint64
	perReady        uint64
	uncommitted     uint64 // bytes of a leader
	compactAfter    uint64 // entries; 0: never
	keep            uint64 // entries that compaction leaves

	lose, duplicate, late  int // of each message
	delay, lateness        int // beats at most
	write, apply           int // beats that a worker takes at most
	answer                 int // beats that an answer of a worker to its own node takes at most
	propose, read          int // in each beat
	crash, pause, cut      int // in each tick
	blackout, slow         int
	transfer, change, quit int
	drift                  bool
}

func draw[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

func newSwarm(rng *rand.Rand) (s swarm) {
	yes := func() bool { return rng.IntN(2) == 0 }
	s.founders = draw(rng, 1, 2, 3, 3, 3, 3, 4, 5, 5)
	s.nodes = s.founders
	if s.members = rng.IntN(3) == 0; s.members {
		s.nodes += 1 + rng.IntN(5)
	}
	s.async = rng.IntN(4) > 0
	s.volatile, s.ranges = s.async && rng.IntN(3) == 0, s.async && yes()
	s.preVote, s.checkQuorum, s.stepDown, s.batch = yes(), yes(), yes(), yes()
	s.checkAppends = s.checkQuorum && yes()
	s.leases = s.checkQuorum && rng.IntN(3) == 0
	s.election = draw(rng, 5, 10, 10)
	s.inflight = draw(rng, 1, 2, 16, 256)
	s.perMessage = draw[uint64](rng, 0, 40, 1<<10, 1<<20)
	s.perReady = draw[uint64](rng, 1, 100, 1<<20)
	if yes() {
		s.compactAfter = draw[uint64](rng, 3, 20, 100)
		s.keep = draw[uint64](rng, 0, 1, 10)
	}
	rate := func(choices ...int) int {
		if yes() {
			return 0
		}
		return draw(rng, choices...)
	}
	s.lose, s.duplicate, s.late = rate(60, 600, 6000, 15000), rate(60, 600, 6000), rate(60, 600, 6000)
	s.delay = draw(rng, 0, 1, 4, 12)
	s.lateness = draw(rng, 16, 100, 900)
	s.write, s.apply, s.answer = draw(rng, 0, 1, 4, 20), draw(rng, 0, 1, 10), draw(rng, 0, 0, 1, 6)
	s.uncommitted = draw[uint64](rng, 50, 200, 1000, 10000)
	s.propose, s.read = draw(rng, 1000, 10000, 65536), draw(rng, 0, 500, 5000)
	s.crash, s.pause, s.cut = rate(300, 1500, 5000), rate(300, 1500), rate(500, 3000)
	s.blackout, s.slow = rate(100, 600), rate(300, 1500)
	s.transfer, s.quit = rate(500, 3000), rate(300)
	if s.members {
		s.change = draw(rng, 2000, 10000)
	}
	s.drift = yes() && !s.leases // a lease rests on clocks that run at about the same rate
	return s
}
