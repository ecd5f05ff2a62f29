package core

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

// node is one node: the core, its storage workers and its state machine.
type node struct {
	w    *world
	id   uint64
	life int
	rn   *raft.RawNode // nil: it does not run
	disk disk

	settings *swarm // those of its present life, of which some may differ from those of others (settingschange.go)
	next     *swarm // those of its next life

	tick, phase int // it ticks in each beat b with b % tick == phase
	paused      int // until this beat
	missed      int // ticks
	slow        int // beats that its disk takes longer,
	slowUntil   int // until this beat; 0: until something else is drawn
	tripAt      int // stage of the next Ready at which it crashes (synchronous mode); 0: none
	storage         // what is wrong with its disk (storage.go)
	stages          // of its snapshots, and of its end (stages.go)

	// What the state machine has: everything through applied. sum is over it.
	applied, sum uint64
	appliedTerm  uint64           // of the last entry that it applied in this life
	conf         raftpb.ConfState // as of applied

	appends, applications []raftpb.Message // queued
	appending             int              // how many of appends are being written
	applying              bool
	working               bool            // drain runs
	input                 *raftpb.Message // that it was just given; nil: a local one

	// What was last seen of it in this life.
	term, commit, last uint64
	role               raft.StateType
	transferee         uint64
	leads              bool
	recovers           uint64           // everything through it was committed when this life began
	ledFrom            uint64           // the end of its log when it became leader
	changes            []uint64         // the last changes of members in its log
	vote               raftpb.HardState // the last vote that it gave, in all its lives
}

// start starts the node from what its disk holds.
func (n *node) start() {
	w := n.w
	if n.rn != nil {
		return
	}
	forgets := n.settings.volatile // what its state machine had
	n.changeSettings()
	s := n.settings
	n.life++
	n.forgot = n.forgot && w.bug != keepsAuthority
	oldest := max(n.disk.live.snapshot.Metadata.Index, n.disk.live.base.Index)
	switch {
	case forgets, s.volatile, n.applied < oldest:
		n.applied = oldest
	case n.applied > oldest && w.rng.IntN(3) == 0: // its state machine was written now and then
		n.applied = oldest + w.rng.Uint64N(n.applied-oldest+1)
	}
	n.sum, n.conf = w.oracle.stateAt(n.applied), w.oracle.confAt(n.applied)
	c := raft.Config{
		ID: n.id, ElectionTick: s.election, HeartbeatTick: 1, Seed: w.rng.Uint64(), Storage: &n.disk, Applied: n.applied,
		AsyncStorageWrites: s.async, ApplyUnstable: s.volatile, ApplyRanges: s.ranges,
		MaxSizePerMsg: s.perMessage, MaxCommittedSizePerReady: s.perReady, MaxInflightMsgs: s.inflight,
		MaxUncommittedEntriesSize: s.uncommitted,
		CheckQuorum:               s.checkQuorum, CheckAppends: s.checkAppends, PreVote: s.preVote, StepDownOnRemoval: s.stepDown,
		WithoutAuthority: n.forgot, LacksTerms: n.forgot,
	}
	if n.forgot {
		c.Life = uint64(n.life)
	}
	if s.leases {
		c.ReadOnlyOption = raft.ReadOnlyLeaseBased
	}
	rn, err := raft.NewRawNode(&c)
	if err != nil {
		violate(property.Contract, "node %d does not start: %v", n.id, err)
	}
	n.rn, n.term, n.commit, n.last, n.leads, n.missed, n.paused = rn, 0, 0, 0, false, 0, 0
	n.recovers = uint64(len(w.oracle.ghost))
	n.tell(Event{Kind: EventStart, Index: n.applied})
	if w.trace != nil {
		w.trace("%d starts, applied %d, %+v, log from %d to %d", n.id, n.applied, n.disk.live.hs, n.disk.live.base.Index+1, n.disk.live.last())
	}
	n.moved()
}

// crash is a power cut, which counts as the given fault. It reports whether it happens. queued are writes
// that its workers do not have yet.
func (n *node) crash(as coverage.Fault, queued []raftpb.Message) bool {
	w := n.w
	if n.rn == nil || !w.injects(as, n) {
		return false
	}
	w.faults[Crashed]++
	kept := 0
	if as == coverage.Crash {
		kept = len(n.disk.unsynced)
	}
	rng := w.ofInjection()
	torn := n.disk.lose(append(n.underWay(), queued...), kept, as == coverage.TornWrite, rng, w.bug)
	if torn {
		w.faults[Torn]++
	}
	n.ends()
	if w.trace != nil {
		w.trace("%d crashes (torn: %t): %+v, log from %d to %d", n.id, torn, n.disk.durable.hs, n.disk.durable.base.Index+1, n.disk.durable.last())
	}
	w.oracle.remembers(n)
	n.tell(Event{Kind: EventCrash, Disk: n.disk.durable.state()})
	w.plan(1+rng.IntN(20*beats), restarts, n)
	return true
}

// ends ends a life. What its workers have planned does not happen.
func (n *node) ends() {
	n.rn, n.appends, n.applications, n.appending, n.applying, n.leads, n.tripAt = nil, nil, nil, 0, false, false, 0
	n.storage.ends()
	n.stages = stages{}
	n.life++
}

func (n *node) ticks() {
	if n.paused > n.w.beat {
		n.missed++
		return
	}
	if n.resume(); n.rn == nil {
		return
	}
	n.w.events++
	if n.full > n.w.beat && !n.leads {
		n.rn.TickQuiesced() // it cannot ask for votes
	} else {
		n.rn.Tick()
	}
	n.moved()
}

// acts reports whether the node takes what a client asks. After a pause it first learns how much time it has
// missed: a lease may have ended (seed 1132).
func (n *node) acts() bool {
	if n.rn == nil || n.paused > n.w.beat {
		return false
	}
	n.resume()
	return n.rn != nil
}

// resume is the end of a pause.
func (n *node) resume() {
	if n.rn == nil {
		return
	}
	if n.missed > 0 {
		n.w.events++
		n.rn.TickMissed(n.missed)
		n.missed = 0
		n.moved()
	}
}

// hears takes a message of a peer.
func (n *node) hears(m *raftpb.Message) {
	w := n.w
	n.resume()
	if n.rn == nil {
		w.outcome(m, raft.SnapshotFailure)
		return
	}
	w.events++
	err := n.rn.Step(*m)
	if w.trace != nil {
		w.trace("%d hears %s %v", n.id, raft.DescribeMessage(*m, nil), err)
	}
	if refused, ok := err.(*raft.PeerError); ok && !w.liar.explains(refused) {
		w.violate(property.Contract, "node %d refuses a message of a correct peer: %v: %s", n.id, refused, raft.DescribeMessage(*m, nil))
	}
	w.outcome(m, raft.SnapshotFinish)
	n.input = m
	n.moved()
}

// hearsWorker takes an answer of a storage worker, or of the node to itself after a write.
func (n *node) hearsWorker(m *raftpb.Message) {
	n.resume()
	if n.rn == nil || n.readFailed {
		return
	}
	n.w.events++
	if n.w.trace != nil {
		n.w.trace("%d hears of its worker %s", n.id, raft.DescribeMessage(*m, nil))
	}
	if err := n.rn.Step(*m); err != nil {
		n.w.violate(property.Contract, "node %d refuses an answer of its own worker: %v: %s", n.id, err, raft.DescribeMessage(*m, nil))
	}
	n.input = m
	n.moved()
}

// propose proposes commands. They carry their number, so that no two are equal.
func (n *node) propose(count int) {
	for range count {
		if !n.acts() {
			return
		}
		w := n.w
		w.events++
		w.proposals++
		size := 8
		if w.proposals%16 == 0 {
			size += w.rng.IntN(100)
		}
		data := binary.LittleEndian.AppendUint64(make([]byte, 0, size), w.proposals)
		err := n.rn.Propose(data[:size])
		if w.trace != nil {
			w.trace("%d proposes %d: %v", n.id, w.proposals, err)
		}
		n.moved()
	}
}

func (n *node) read() {
	if !n.acts() {
		return
	}
	n.w.events++
	context := n.w.oracle.asks()
	err := n.rn.ReadIndex(context)
	if n.w.trace != nil {
		n.w.trace("%d asks for read %x: %v", n.id, context, err)
	}
	n.moved()
}

// moved is called after each input.
func (n *node) moved() {
	n.w.oracle.moves(n)
	n.tell(Event{Kind: EventStep, Message: n.input})
	n.input = nil
	if !n.w.swarm.batch {
		n.drain()
	}
}

// drain takes the Readys.
func (n *node) drain() {
	if n.working {
		return // further out
	}
	n.working = true
	for n.rn != nil && n.rn.HasReady() {
		rd := n.rn.Ready()
		if n.readFailed {
			break
		}
		n.tell(Event{Kind: EventReady, Ready: &rd})
		for i := range rd.ReadStates {
			n.w.oracle.answered(n, &rd.ReadStates[i])
		}
		if !n.settings.async {
			n.does(&rd)
			continue
		}
		for i := range rd.Messages {
			switch m := &rd.Messages[i]; m.To {
			case raft.LocalAppendThread:
				n.appends = append(n.appends, *m)
			case raft.LocalApplyThread:
				n.applications = append(n.applications, *m)
			default:
				n.says(m)
			}
		}
		n.beginWrite()
		n.beginApply()
	}
	n.working = false
	if n.readFailed {
		n.failRead()
	}
	n.regain()
}

// does does the work of a Ready, in synchronous mode.
func (n *node) does(rd *raft.Ready) {
	m := raftpb.Message{Entries: rd.Entries, Term: rd.HardState.Term, Vote: rd.HardState.Vote, Commit: rd.HardState.Commit}
	if !raft.IsEmptySnap(rd.Snapshot) {
		m.Snapshot = &rd.Snapshot
	}
	trip := n.tripAt
	if trip == 1 && n.crash(coverage.PowerCut, []raftpb.Message{m}) {
		return
	}
	if len(m.Entries) > 0 || m.Term != 0 || m.Snapshot != nil {
		sync := rd.MustSync || m.Snapshot != nil
		if sync && n.armed != nil && n.failSync([]raftpb.Message{m}) {
			return
		}
		n.store(&m, sync)
	}
	if n.rn == nil {
		return
	}
	if trip == 2 && n.crash(coverage.PowerCut, nil) {
		return
	}
	for i := range rd.Messages {
		n.says(&rd.Messages[i])
	}
	if trip == 3 && n.crash(coverage.PowerCut, nil) {
		return
	}
	n.tripAt = 0
	n.apply(rd.CommittedEntries)
	n.w.events++
	n.rn.Advance(*rd)
	n.w.oracle.moves(n)
}
