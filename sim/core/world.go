package core

import (
	"fmt"
	"math/rand/v2"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

// beats is how many beats a tick has, for a clock that is exact. Everything happens in a beat.
const beats = 8

// horizon is how many beats ahead something can be planned. It is a power of two.
const horizon = 1 << 11

// world is the cluster and everything around it.
type world struct {
	swarm     swarm
	rng       *rand.Rand
	trace     func(format string, args ...any) // nil: none
	watch     func(*Event)                     // nil: none
	bug       bug
	unchecked property.Name
	nodes     []*node // nodes[i] has id i+1
	oracle    oracle
	planned   [horizon][]*event
	free      []*event // memory for more
	beat      int
	inBeat    bool // what is planned for this beat will still happen
	healing   bool
	end       healing
	// proposals numbers the commands, reads the contexts of reads.
	proposals uint64
	cut       [][]bool // cut[i][j]: what node i+1 sends to node j+1 is lost
	events    uint64
	digest    uint64
	ticks     int // in which everything was in order again
	faults    Faults

	sent    spent
	seed    uint64
	ledger  *coverage.Ledger
	side    *rand.Rand // draws strikes, and what else does not come from swarm
	strikes []strike
	bursts  bursts
	liar    *liar // nil: none
	mixed   bool  // nodes run different versions (settingschange.go)
	build   int   // beats that a snapshot takes at most,
	trim    int   // and then to cut the log
	// changing is the last entry that a change of members had when it was proposed.
	changing uint64
	changes  int // of members in it
}

// what is the kind of an event.
type what uint8

const (
	arrives    what = iota // message, at a node, from a peer
	answered               // message, at the node whose worker sent it
	written                // the first n of the queued writes are done
	applied                // the first of the queued applications is done
	restarts               //
	resumes                //
	reported               // the outcome of a snapshot, to its sender
	reconnects             // a node's links are mended
	space                  // a disk has space again
	built                  // a snapshot is complete
	trimmed                // the log behind it is cut
	leaves                 // a life ends in good order
	cancelled              // nothing
)

// event is something planned.
type event struct {
	what    what
	outcome raft.SnapshotStatus
	node    uint64
	life    int // in which it happens, except arrives, reconnects and space
	n       int
	message raftpb.Message
}

func newWorld(o Options) *world {
	w := &world{rng: split(o.Seed, 2), swarm: newSwarm(split(o.Seed, 1)), bug: o.bug, watch: o.Watch, unchecked: o.Unchecked, seed: o.Seed, side: split(o.Seed, 3), ledger: coverage.NewLedger(o.Choice)}
	w.mixed = drawMixed(w.side)
	w.build, w.trim = draw(w.side, 0, 0, 12, 60), draw(w.side, 0, 0, 4, 30)
	w.strikes = w.drawStrikes(o.Ticks*beats, o.aim)
	if o.Liar {
		w.liar = &liar{w: w, rng: split(o.Seed, 4)}
	}
	if o.Trace != nil {
		w.trace = func(format string, args ...any) {
			fmt.Fprintf(o.Trace, "%4d.%d %s\n", w.beat/beats, w.beat%beats, fmt.Sprintf(format, args...))
		}
		w.trace("%+v", w.swarm)
	}
	w.oracle.init(w)
	w.cut = make([][]bool, w.swarm.nodes)
	for i := range w.swarm.nodes {
		w.cut[i] = make([]bool, w.swarm.nodes)
		n := &node{w: w, id: uint64(i + 1), tick: beats, settings: &w.swarm}
		if w.mixed {
			n.next = w.swarm.mix(w.side)
		}
		n.disk.node = n
		if w.swarm.drift {
			if by := w.rng.IntN(5) - 2; w.ledger.Happens(coverage.ClockDrift) {
				n.tick += by
				w.faults[Drifting]++
			}
		}
		if !w.swarm.leases {
			n.phase = w.rng.IntN(n.tick)
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

// found makes the first members. Their logs begin with a snapshot of entry 1, which says who they are; all
// others begin with nothing.
func (w *world) found() {
	var conf raftpb.ConfState
	for id := range uint64(w.swarm.founders) {
		conf.Voters = append(conf.Voters, id+1)
	}
	w.oracle.founded(conf)
	for _, n := range w.nodes[:w.swarm.founders] {
		n.disk.durable = image{
			hs: raftpb.HardState{Term: 1, Commit: 1}, base: raftpb.EntryID{Term: 1, Index: 1},
			snapshot: raftpb.Snapshot{Data: state(1, 0), Metadata: raftpb.SnapshotMetadata{ConfState: conf, Index: 1, Term: 1}},
		}
		n.disk.live = n.disk.durable.clone()
		n.start()
	}
}

// step is one beat.
func (w *world) step() {
	w.beat++
	w.inBeat = true
	if w.beat%beats == 0 && !w.healing {
		w.strike()
		if w.liar != nil {
			w.liar.strike()
		}
	}
	if len(w.strikes) > 0 && !w.healing {
		w.hunt()
	}
	w.ask()
	for _, n := range w.nodes {
		if n.rn != nil && w.beat%n.tick == n.phase {
			n.ticks()
		}
	}
	// What happens may plan more for this beat.
	at := w.beat % horizon
	for i := 0; ; {
		for ; i < len(w.planned[at]); i++ {
			e := w.planned[at][i]
			if n := w.nodes[e.node-1]; n.paused > w.beat && e.what != restarts {
				again := &w.planned[n.paused%horizon]
				*again = append(*again, e)
				continue
			}
			w.happen(e)
			*e = event{}
			w.free = append(w.free, e)
		}
		if w.swarm.batch {
			for _, n := range w.nodes {
				n.drain()
			}
		}
		if i == len(w.planned[at]) {
			break
		}
	}
	w.inBeat = false
	w.planned[at] = w.planned[at][:0]
}

// plan plans an event some beats ahead, and a message sometimes before what was planned for that beat.
func (w *world) plan(ahead int, what what, n *node) *event {
	if !w.inBeat {
		ahead = max(ahead, 1)
	}
	if len(w.free) == 0 {
		events := make([]event, 64)
		for i := range events {
			w.free = append(w.free, &events[i])
		}
	}
	e := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	e.what, e.node, e.life = what, n.id, n.life
	at := &w.planned[(w.beat+min(ahead, horizon-1))%horizon]
	*at = append(*at, e)
	if last := len(*at) - 1; ahead > 0 && last > 0 && what == arrives && w.swarm.delay > 0 {
		other := w.rng.IntN(last + 1)
		(*at)[last], (*at)[other] = (*at)[other], (*at)[last]
	}
	return e
}

// happen does an event.
func (w *world) happen(e *event) {
	n := w.nodes[e.node-1]
	w.digest = mix(w.digest, uint64(w.beat)<<16|uint64(e.what)<<8|e.node)
	switch e.what {
	case arrives:
		n.hears(&e.message)
		return
	case reconnects:
		for i := range w.cut {
			w.cut[i][e.node-1], w.cut[e.node-1][i] = false, false
		}
		return
	case space:
		n.hasSpace()
		return
	case cancelled:
		return
	}
	if n.life != e.life {
		return
	}
	switch e.what {
	case answered:
		n.hearsWorker(&e.message)
	case written:
		n.writes(e.n)
	case applied:
		n.applies()
	case restarts:
		n.start()
	case built:
		n.publish()
	case trimmed:
		n.cut()
	case leaves:
		n.left()
	case resumes:
		n.resume()
	case reported:
		if n.rn != nil {
			w.events++
			n.rn.ReportSnapshot(uint64(e.n), e.outcome)
			n.moved()
		}
	}
}

// One run in ten has more than calmFrom events, as its clients flood the nodes with commands, each in a
// message of its own. Half of all time went into two runs in a hundred. So clients ask seldom from then on;
// faults go on.
const (
	calmFrom    = 50_000
	calmPropose = 500 // in each beat, of 65,536
)

// ask is what clients do in a beat.
func (w *world) ask() {
	s := &w.swarm
	if w.healing {
		if w.beat%(2*beats) == 0 {
			w.askAll()
		}
		return
	}
	propose := s.propose
	if w.events > calmFrom {
		propose = min(propose, calmPropose)
	}
	if w.rng.IntN(1<<16) < propose {
		w.nodes[w.rng.IntN(len(w.nodes))].propose(1 + w.rng.IntN(3))
		if leader := w.leader(); leader != nil {
			leader.propose(1)
		}
	}
	if s.read > 0 && w.rng.IntN(1<<16) < s.read {
		w.nodes[w.rng.IntN(len(w.nodes))].read()
	}
}

// leader returns the running leader of the highest term, or nil.
func (w *world) leader() (leader *node) {
	for _, n := range w.nodes {
		if n.rn != nil && n.leads && (leader == nil || n.term > leader.term) {
			leader = n
		}
	}
	return leader
}

func (w *world) report() Report {
	return Report{Nodes: len(w.nodes), Events: w.events, Ticks: w.ticks, Committed: uint64(len(w.oracle.ghost)), Leaders: len(w.oracle.leaders),
		Reads: w.oracle.answers, Faults: w.faults, Digest: w.digest, Coverage: w.ledger.Matrix, Injections: w.ledger.Injections()}
}
