package core

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// node is one node: the core, its storage workers and its state machine.
type node struct {
	w    *world
	id   uint64
	life int
	rn   *raft.RawNode // nil: it does not run
	disk disk

	tick, phase int // it ticks in each beat b with b % tick == phase
	paused      int // until this beat
	missed      int // ticks
	slow        int // beats that its disk takes longer
	tripAt      int // stage of the next Ready at which it crashes (synchronous mode); 0: none

	// What the state machine has: everything through applied. sum is over it.
	applied, sum uint64
	conf         raftpb.ConfState // as of applied

	appends, applications []raftpb.Message // queued
	appending             int              // how many of appends are being written
	applying              bool
	working               bool            // drain runs
	input                 *raftpb.Message // that it was just given; nil: a local one

	// What was last seen of it in this life.
	term, commit, last uint64
	leads              bool
	vote               raftpb.HardState // the last vote that it gave, in all its lives
}

// start starts the node from what its disk holds.
func (n *node) start() {
	s, w := &n.w.swarm, n.w
	if n.rn != nil {
		return
	}
	n.life++
	oldest := max(n.disk.live.snapshot.Metadata.Index, n.disk.live.base.Index)
	switch {
	case s.volatile, n.applied < oldest:
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
	}
	if s.leases {
		c.ReadOnlyOption = raft.ReadOnlyLeaseBased
	}
	rn, err := raft.NewRawNode(&c)
	if err != nil {
		violate("node %d does not start: %v", n.id, err)
	}
	n.rn, n.term, n.commit, n.last, n.leads, n.missed, n.paused = rn, 0, 0, 0, false, 0, 0
	n.tell(Event{Kind: EventStart, Index: n.applied})
	if w.trace != nil {
		w.trace("%d starts, applied %d, %+v, log from %d to %d", n.id, n.applied, n.disk.live.hs, n.disk.live.base.Index+1, n.disk.live.last())
	}
	n.moved()
}

// crash is a power cut.
func (n *node) crash(queued []raftpb.Message) {
	w := n.w
	if n.rn == nil {
		return
	}
	w.faults[Crashed]++
	torn := n.disk.lose(append(n.appends, queued...), w.rng, w.bug)
	if torn {
		w.faults[Torn]++
	}
	n.rn, n.appends, n.applications, n.appending, n.applying, n.leads, n.tripAt = nil, nil, nil, 0, false, false, 0
	n.life++ // what its workers have planned does not happen
	if w.trace != nil {
		w.trace("%d crashes (torn: %t): %+v, log from %d to %d", n.id, torn, n.disk.durable.hs, n.disk.durable.base.Index+1, n.disk.durable.last())
	}
	w.oracle.remembers(n)
	n.tell(Event{Kind: EventCrash, Disk: n.disk.durable.state()})
	w.plan(1+w.rng.IntN(20*beats), restarts, n)
}

func (n *node) ticks() {
	if n.paused > n.w.beat {
		n.missed++
		return
	}
	n.w.events++
	n.rn.Tick()
	n.moved()
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
	if n.rn == nil {
		w.outcome(m, raft.SnapshotFailure)
		return
	}
	n.resume()
	w.events++
	err := n.rn.Step(*m)
	if w.trace != nil {
		w.trace("%d hears %s %v", n.id, raft.DescribeMessage(*m, nil), err)
	}
	if refused, ok := err.(*raft.PeerError); ok {
		violate("node %d refuses a message of a correct peer: %v: %s", n.id, refused, raft.DescribeMessage(*m, nil))
	}
	w.outcome(m, raft.SnapshotFinish)
	n.input = m
	n.moved()
}

// hearsWorker takes an answer of a storage worker, or of the node to itself after a write.
func (n *node) hearsWorker(m *raftpb.Message) {
	n.resume()
	n.w.events++
	if n.w.trace != nil {
		n.w.trace("%d hears of its worker %s", n.id, raft.DescribeMessage(*m, nil))
	}
	if err := n.rn.Step(*m); err != nil {
		violate("node %d refuses an answer of its own worker: %v: %s", n.id, err, raft.DescribeMessage(*m, nil))
	}
	n.input = m
	n.moved()
}

// propose proposes commands. They carry their number, so that no two are equal.
func (n *node) propose(count int) {
	for range count {
		if n.rn == nil || n.paused > n.w.beat {
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
	if n.rn == nil || n.paused > n.w.beat {
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
		n.tell(Event{Kind: EventReady, Ready: &rd})
		for i := range rd.ReadStates {
			n.w.oracle.answered(n, &rd.ReadStates[i])
		}
		if !n.w.swarm.async {
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
}

// does does the work of a Ready, in synchronous mode.
func (n *node) does(rd *raft.Ready) {
	m := raftpb.Message{Entries: rd.Entries, Term: rd.HardState.Term, Vote: rd.HardState.Vote, Commit: rd.HardState.Commit}
	if !raft.IsEmptySnap(rd.Snapshot) {
		m.Snapshot = &rd.Snapshot
	}
	trip := n.tripAt
	if trip == 1 {
		n.crash([]raftpb.Message{m})
		return
	}
	if len(m.Entries) > 0 || m.Term != 0 || m.Snapshot != nil {
		n.store(&m, rd.MustSync || m.Snapshot != nil)
	}
	if trip == 2 {
		n.crash(nil)
		return
	}
	for i := range rd.Messages {
		n.says(&rd.Messages[i])
	}
	if trip == 3 {
		n.crash(nil)
		return
	}
	n.apply(rd.CommittedEntries)
	n.w.events++
	n.rn.Advance(*rd)
	n.w.oracle.moves(n)
}

// beginWrite gives the append worker what is queued, or the first part of it.
func (n *node) beginWrite() {
	if n.appending > 0 || len(n.appends) == 0 {
		return
	}
	w := n.w
	n.appending = len(n.appends)
	if w.rng.IntN(4) == 0 {
		n.appending = 1 + w.rng.IntN(len(n.appends))
	}
	w.plan(w.upTo(w.swarm.write)+n.slow, written, n).n = n.appending
}

// upTo draws a number of beats.
func (w *world) upTo(most int) int {
	if most == 0 {
		return 0
	}
	return w.rng.IntN(most + 1)
}

// writes is the end of a write of the first count messages: one sync for all of them.
func (n *node) writes(count int) {
	batch := n.appends[:count:count]
	n.appends, n.appending = n.appends[count:], 0
	sync := false
	for i := range batch {
		n.store(&batch[i], false)
		sync = sync || len(batch[i].Responses) > 0
	}
	if sync {
		n.disk.sync()
	}
	for i := range batch {
		n.release(batch[i].Responses)
	}
	n.beginWrite()
}

// store does one write.
func (n *node) store(m *raftpb.Message, sync bool) {
	if m.Snapshot != nil {
		for len(n.applications) > 0 { // as the contract asks
			n.applies()
		}
	}
	n.w.events++
	n.w.oracle.written(n, &n.disk.live, m)
	n.disk.do(m, sync)
	if m.Snapshot == nil {
		return
	}
	n.w.faults[Installed]++
	index, sum := sumOfState(m.Snapshot.Data)
	n.w.oracle.installs(n, m.Snapshot, index, sum)
	n.applied, n.sum, n.conf = index, sum, m.Snapshot.Metadata.ConfState
}

// release sends what waited for a worker.
func (n *node) release(responses []raftpb.Message) {
	for i := range responses {
		m := &responses[i]
		if m.To == n.id {
			n.w.plan(n.w.upTo(n.w.swarm.answer), answered, n).message = *m
			continue
		}
		n.says(m)
	}
}

// says sends a message to a peer.
func (n *node) says(m *raftpb.Message) {
	n.w.oracle.leaves(n, m)
	n.w.send(m)
}

func (n *node) beginApply() {
	if n.applying || len(n.applications) == 0 {
		return
	}
	n.applying = true
	if n.w.trace != nil {
		n.w.trace("%d begins to apply, %d queued", n.id, len(n.applications))
	}
	n.w.plan(n.w.upTo(n.w.swarm.apply), applied, n)
}

// applies does the first of the queued applications.
func (n *node) applies() {
	n.applying = false
	if len(n.applications) == 0 {
		return // an install did it
	}
	m := n.applications[0]
	n.applications = n.applications[1:]
	entries := m.Entries
	if len(entries) == 0 { // a range
		var err error
		if entries, err = n.disk.Entries(m.Index+1, m.Commit+1, 1<<62); err != nil {
			violate("node %d cannot read entries (%d,%d], which it is to apply: %v", n.id, m.Index, m.Commit, err)
		}
	}
	n.apply(entries)
	n.release(m.Responses)
	n.beginApply()
	if !n.w.swarm.batch {
		n.drain() // a change of members may have given it work
	}
}

// apply applies entries.
func (n *node) apply(entries []raftpb.Entry) {
	n.w.events++
	for i := range entries {
		e := &entries[i]
		n.sum = mix(n.sum, sumOf(e))
		n.w.oracle.applies(n, e)
		n.applied = e.Index
		if e.Type == raftpb.EntryNormal {
			continue
		}
		n.conf = *n.rn.ApplyConfChange(changeOf(e))
		n.tell(Event{Kind: EventConf, Index: e.Index, Term: e.Term, Conf: n.conf})
		n.w.oracle.changed(n, e.Index)
		n.w.oracle.moves(n)
	}
	if s := &n.w.swarm; s.compactAfter > 0 && len(entries) > 0 && n.applied-n.disk.durable.base.Index > s.compactAfter+s.keep {
		if n.disk.compact(n.applied, s.keep, state(n.applied, n.sum), n.conf) {
			n.w.faults[Compacted]++
			n.tell(Event{Kind: EventCompact, Index: n.disk.durable.base.Index})
		}
	}
}

func changeOf(e *raftpb.Entry) raftpb.ConfChangeI {
	if e.Type == raftpb.EntryConfChange {
		var c raftpb.ConfChange
		if err := c.Unmarshal(e.Data); err != nil {
			violate("entry %v is a change of members that cannot be read: %v", e.ID(), err)
		}
		return c
	}
	var c raftpb.ConfChangeV2
	if err := c.Unmarshal(e.Data); err != nil {
		violate("entry %v is a change of members that cannot be read: %v", e.ID(), err)
	}
	return c
}

// sumOf is a sum over what an entry is.
func sumOf(e *raftpb.Entry) uint64 {
	h := e.Term<<8 ^ uint64(e.Type)
	if len(e.Data) >= 8 {
		h = mix(h, binary.LittleEndian.Uint64(e.Data))
	}
	for _, b := range e.Data[min(8, len(e.Data)):min(24, len(e.Data))] {
		h = h*31 + uint64(b)
	}
	return mix(h, uint64(len(e.Data)))
}

// mix adds a number to a sum (the finalizer of SplitMix64).
func mix(sum, n uint64) uint64 {
	z := sum*0x9e3779b97f4a7c15 + n + 1
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
