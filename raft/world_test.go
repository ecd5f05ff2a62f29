package raft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// The world of these tests: nodes, their storage workers and the network between them, moved one step at a time by a
// script or by chance. Nothing happens by itself.
//
// The workers are as slow and as harsh as the contract lets them be. A write becomes visible when it is executed, but
// one without responses is not synced: a crash may lose it. Answers of a worker to its own node wait in the inbox
// until they are delivered. A crash loses the queues, the inbox and what was not synced; what has left for a peer
// is still on its way.

type world struct {
	hosts []*host // hosts[i] has id i+1
	net   []pb.Message
	judge *judge
}

type host struct {
	world *world
	cfg   Config
	node  *RawNode // nil while crashed

	storage  *MemoryStorage // what the node reads: every executed write
	disk     *MemoryStorage // what a crash leaves: every synced write
	unsynced []pb.Message   // executed and not synced

	appends, applies, inbox []pb.Message
	taken                   *Ready // synchronous mode: the Ready that is being worked on
	stage                   syncStage

	incarnation int
	applied     uint64 // the state machine; it survives crashes when restart says so
	installed   int    // snapshots of others, in all lives
	refused     []error
	reads       int      // asked, in all lives: they make contexts that are never used twice
	answered    int      // reads
	heard       []string // answers and refusals of reads, for scripts to tell
}

// syncStage says what is to be done next for the Ready that was taken.
type syncStage int

const (
	toSave syncStage = iota
	toSend
	toApply
	toAdvance
)

func newWorld(nodes int, change func(*Config)) *world {
	w := &world{judge: newJudge()}
	var voters []uint64
	for id := range uint64(nodes) {
		voters = append(voters, id+1)
	}
	for _, id := range voters {
		s := NewMemoryStorage()
		s.SetConfState(pb.ConfState{Voters: voters})
		cfg := testConfig(id, s)
		if change != nil {
			change(&cfg)
		}
		w.hosts = append(w.hosts, &host{world: w, cfg: cfg, disk: s})
	}
	return w
}

func (w *world) start() {
	for _, h := range w.hosts {
		h.restart(0, 0)
	}
}

// foundation is how a cluster begins that is to change its members: only the first hosts are members, and the others, with
// nothing on their disks, must be able to learn all they need from the log.
type foundation int

const (
	onEveryDisk foundation = iota // all hosts are members, and their storage says so
	bySnapshot
	byBootstrap
	bySnapshotAlone // without a hard state
)

func newGrowingWorld(nodes, founders int, f foundation, change func(*Config)) *world {
	w := newWorld(nodes, change)
	var conf pb.ConfState
	var peers []Peer
	for id := uint64(1); id <= uint64(founders); id++ {
		conf.Voters = append(conf.Voters, id)
		peers = append(peers, Peer{ID: id})
	}
	for i, h := range w.hosts {
		h.disk = NewMemoryStorage()
		if f != byBootstrap && i < founders {
			if err := h.disk.ApplySnapshot(pb.Snapshot{Metadata: pb.SnapshotMetadata{Index: 1, Term: 1, ConfState: conf}}); err != nil {
				panic(err)
			}
			if f == bySnapshot {
				h.disk.hardState = pb.HardState{Term: 1, Commit: 1}
			}
		}
	}
	w.judge.founded = uint64(founders)
	for i := range conf.Voters {
		w.judge.confs[uint64(i)+1] = pb.ConfState{Voters: conf.Voters[:i+1]}
	}
	if f != byBootstrap {
		w.judge.founded = 1
		w.judge.committed = []committed{{entry: pb.Entry{Term: 1, Index: 1}, term: 1}}
		w.judge.confs = map[uint64]pb.ConfState{1: conf}
	}
	w.start()
	for _, h := range w.hosts[:founders] {
		if f == byBootstrap {
			if err := h.input(func(rn *RawNode) error { return rn.Bootstrap(peers) }); err != nil {
				panic(err)
			}
			h.work() // a founder is one when its disk says so
		}
	}
	return w
}

func (w *world) host(id uint64) *host { return w.hosts[id-1] }

func (h *host) id() uint64 { return h.cfg.ID }

func (h *host) restart(unsyncedKept int, applied uint64) {
	for _, m := range h.unsynced[:unsyncedKept] {
		write(h.disk, m)
	}
	h.unsynced = nil
	h.storage = copyStorage(h.disk)
	applied = max(applied, h.disk.snapshot.Metadata.Index) // what the state machine is restored from
	h.cfg.Storage, h.cfg.Applied = asOfApplied{h.storage, h.world.judge.confAfter(applied, h.disk.snapshot.Metadata.ConfState)}, applied
	node, err := NewRawNode(&h.cfg)
	if err != nil {
		panic(fmt.Sprintf("node %d does not restart: %v", h.id(), err))
	}
	h.node, h.applied = node, applied
	h.incarnation++
	h.cfg.Seed++
	h.checked()
}

// asOfApplied is storage in the hands of an application that keeps the configuration with its state machine.
type asOfApplied struct {
	*MemoryStorage
	conf pb.ConfState
}

func (s asOfApplied) InitialState() (pb.HardState, pb.ConfState, error) {
	hs, _, err := s.MemoryStorage.InitialState()
	return hs, s.conf, err
}

func (h *host) crash() {
	h.node, h.appends, h.applies, h.inbox, h.taken = nil, nil, nil, nil, nil
}

// input gives the node something to do, and lets the judge look.
func (h *host) input(f func(*RawNode) error) error {
	if h.node == nil {
		return nil
	}
	err := f(h.node)
	if refused, ok := err.(*PeerError); ok {
		h.refused = append(h.refused, refused)
	}
	h.checked()
	return err
}

func (h *host) checked() {
	if err := h.node.Err(); err != nil {
		panic(fmt.Sprintf("node %d: %v", h.id(), err))
	}
	h.world.judge.look(h)
}

// takeReady moves what the node wants done into its queues and the network, and reports whether there was anything.
func (h *host) takeReady() (rd Ready, ok bool) {
	if h.node == nil || h.taken != nil || !h.node.HasReady() {
		return Ready{}, false
	}
	rd = h.node.Ready()
	for _, read := range rd.ReadStates {
		h.world.judge.answered(h, read)
		h.answered++
		h.heard = append(h.heard, fmt.Sprintf("%d may read %s at %d", h.id(), read.RequestCtx, read.Index))
	}
	for _, context := range rd.DroppedReads {
		h.heard = append(h.heard, fmt.Sprintf("%d is told that read %s is dropped", h.id(), context))
	}
	if !h.cfg.AsyncStorageWrites {
		h.taken, h.stage = &rd, toSave
		return rd, true
	}
	for _, m := range rd.Messages {
		switch m.To {
		case LocalAppendThread:
			h.appends = append(h.appends, m)
		case LocalApplyThread:
			h.applies = append(h.applies, m)
		default:
			h.world.judge.leaves(h, m) // must be nothing that waits for the disk
			h.world.send(m)
		}
	}
	return rd, true
}

func (w *world) send(m pb.Message) { w.net = append(w.net, m) }

// runAppend executes the first queued write and returns it.
func (h *host) runAppend() (done pb.Message, ok bool) {
	if len(h.appends) == 0 {
		return pb.Message{}, false
	}
	if h.appends[0].Snapshot != nil {
		for _, any := h.runApply(); any; _, any = h.runApply() { // as the contract asks
		}
	}
	done, h.appends = h.appends[0], h.appends[1:]
	write(h.storage, done)
	h.unsynced = append(h.unsynced, done)
	if len(done.Responses) > 0 {
		h.sync()
	}
	h.install(done.Snapshot)
	h.release(done.Responses)
	return done, true
}

func (h *host) sync() {
	for _, m := range h.unsynced {
		write(h.disk, m)
	}
	h.unsynced = nil
}

// install puts a snapshot in the place of the state machine.
func (h *host) install(s *pb.Snapshot) {
	if s == nil {
		return
	}
	h.world.judge.installs(h, *s)
	h.applied = s.Metadata.Index
	h.installed++
}

// compact makes a snapshot of the state machine, and drops the log through an index at or below it.
func (h *host) compact(through uint64) {
	for _, s := range []*MemoryStorage{h.storage, h.disk} {
		if h.applied > s.snapshot.Metadata.Index {
			conf := h.world.judge.confAfter(h.applied, s.snapshot.Metadata.ConfState)
			if _, err := s.CreateSnapshot(h.applied, &conf, fmt.Appendf(nil, "state at %d", h.applied)); err != nil {
				panic(err)
			}
		}
		if err := s.Compact(through); err != nil && !errors.Is(err, ErrCompacted) {
			panic(err)
		}
	}
}

func (h *host) runApply() (done pb.Message, ok bool) {
	if len(h.applies) == 0 {
		return pb.Message{}, false
	}
	done, h.applies = h.applies[0], h.applies[1:]
	h.apply(done.Entries)
	h.release(done.Responses)
	return done, true
}

func (h *host) apply(entries []pb.Entry) {
	for _, e := range entries {
		if e.Index != h.applied+1 {
			panic(fmt.Sprintf("node %d applies entry %d after %d", h.id(), e.Index, h.applied))
		}
		h.world.judge.applies(h, e)
		h.applied = e.Index
		if e.Type != pb.EntryNormal {
			h.applyConfChange(e)
		}
	}
}

func (h *host) applyConfChange(e pb.Entry) {
	var c pb.ConfChangeI
	var v1 pb.ConfChange
	var v2 pb.ConfChangeV2
	if c = &v1; e.Type == pb.EntryConfChange {
		if err := v1.Unmarshal(e.Data); err != nil {
			panic(err)
		}
	} else if c = &v2; true {
		if err := v2.Unmarshal(e.Data); err != nil {
			panic(err)
		}
	}
	h.world.judge.changes(h, e.Index, *h.node.ApplyConfChange(c))
	h.checked()
}

func (h *host) release(responses []pb.Message) {
	for _, m := range responses {
		if m.To == h.id() {
			h.inbox = append(h.inbox, m)
			continue
		}
		h.world.judge.leaves(h, m)
		h.world.send(m)
	}
}

// hearOwn delivers one of the workers' answers.
func (h *host) hearOwn(i int) {
	m := h.inbox[i]
	h.inbox = append(h.inbox[:i:i], h.inbox[i+1:]...)
	if err := h.input(func(rn *RawNode) error { return rn.Step(m) }); err != nil {
		panic(fmt.Sprintf("node %d refuses its own worker: %v", h.id(), err))
	}
}

// runSync does the next step of the Ready that was taken in synchronous mode.
func (h *host) runSync() bool {
	if h.taken == nil {
		return false
	}
	rd := h.taken
	switch h.stage {
	case toSave:
		m := pb.Message{Entries: rd.Entries, Term: rd.HardState.Term, Vote: rd.HardState.Vote, Commit: rd.HardState.Commit}
		if !IsEmptySnap(rd.Snapshot) {
			m.Snapshot = &rd.Snapshot
		}
		write(h.storage, m)
		h.unsynced = append(h.unsynced, m)
		if rd.MustSync || m.Snapshot != nil {
			h.sync()
		}
		h.install(m.Snapshot)
	case toSend:
		for _, m := range rd.Messages {
			h.world.judge.leaves(h, m)
			h.world.send(m)
		}
	case toApply:
		h.apply(rd.CommittedEntries)
	case toAdvance:
		h.taken = nil
		_ = h.input(func(rn *RawNode) error { rn.Advance(*rd); return nil })
	}
	h.stage++
	return true
}

// deliver takes message i out of the network and hands it over.
func (w *world) deliver(i int) (pb.Message, error) {
	m := w.drop(i)
	return m, w.handOver(m)
}

func (w *world) handOver(m pb.Message) error {
	return w.host(m.To).input(func(rn *RawNode) error { return rn.Step(m) })
}

func (w *world) drop(i int) pb.Message {
	m := w.net[i]
	w.net = append(w.net[:i:i], w.net[i+1:]...)
	return m
}

// settle works off everything, except for messages that cut says are lost, until nothing is left to do.
func (w *world) settle(lost func(pb.Message) bool) {
	for round := 0; ; round++ {
		if round > 10_000 {
			panic("the world does not come to rest")
		}
		moved := false
		for _, h := range w.hosts {
			moved = h.work() || moved
		}
		for range len(w.net) {
			if lost != nil && lost(w.net[0]) {
				w.drop(0)
			} else {
				_, _ = w.deliver(0)
			}
			moved = true
		}
		if !moved {
			return
		}
	}
}

// work executes all that is queued at one host.
func (h *host) work() bool {
	moved := false
	for {
		_, ready := h.takeReady()
		_, appended := h.runAppend()
		_, applied := h.runApply()
		advanced := h.runSync()
		for len(h.inbox) > 0 {
			h.hearOwn(0)
		}
		if !ready && !appended && !applied && !advanced {
			return moved
		}
		moved = true
	}
}

func write(s *MemoryStorage, m pb.Message) {
	if m.Snapshot != nil {
		if err := s.ApplySnapshot(*m.Snapshot); err != nil {
			panic(fmt.Sprintf("snapshot through %d over one through %d: %v", m.Snapshot.Metadata.Index, s.snapshot.Metadata.Index, err))
		}
	}
	if m.Term != 0 {
		_ = s.SetHardState(pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit})
	}
	if err := s.Append(m.Entries); err != nil {
		panic(fmt.Sprintf("write of %d entries from %d leaves a hole: %v", len(m.Entries), m.Entries[0].Index, err))
	}
}

func copyStorage(s *MemoryStorage) *MemoryStorage {
	return &MemoryStorage{hardState: s.hardState, snapshot: s.snapshot, base: s.base, entries: slices.Clone(s.entries)}
}

// ask asks for a read, in the name of one that was never used.
func (h *host) ask(name string) error {
	h.reads++
	context := fmt.Sprintf("%s/%d.%d", name, h.id(), h.reads)
	h.world.judge.asked(context)
	return h.input(func(rn *RawNode) error { return rn.ReadIndex([]byte(context)) })
}

// allEntries is the node's log as the node sees it, from its first index on.
func allEntries(rn *RawNode) []pb.Entry {
	ents, err := rn.raft.log.entries(rn.raft.log.firstIndex(), rn.raft.log.lastIndex()+1, noLimit)
	if err != nil {
		panic(err)
	}
	return ents
}

// judge holds what must never be contradicted: thesis figure 3.2, and the storage contract.
type judge struct {
	leaders   map[uint64]string        // term: the node, and which of its lives, that led it
	entries   map[entryID]rememberedIn // every entry ever seen in a log
	committed []committed              // committed[i] has index i+1
	confs     map[uint64]pb.ConfState  // after each committed change, as the first node that applied it has it
	founded   uint64                   // founding changes are in force before they are applied, so they are not compared
	reads     map[string]uint64        // what was committed anywhere when a read was asked
}

type rememberedIn struct {
	prevTerm uint64
	data     []byte
}

type committed struct {
	entry pb.Entry
	term  uint64 // in which it was first seen to be committed
}

func newJudge() *judge {
	return &judge{leaders: map[uint64]string{}, entries: map[entryID]rememberedIn{}, confs: map[uint64]pb.ConfState{}, reads: map[string]uint64{}}
}

// look compares one node with everything that was seen before.
func (j *judge) look(h *host) {
	r := h.node.raft
	r.checkCursors()
	entries := allEntries(h.node)
	j.logMatching(h, entries)
	base := int(r.log.firstIndex() - 1) // what is at or below was applied somewhere, so it is known
	for i := base; i < int(r.log.committed); i++ {
		switch {
		case i >= len(j.committed):
			j.committed = append(j.committed, committed{entries[i-base], r.term})
		case j.committed[i].entry.Term != entries[i-base].Term:
			j.broken("node %d holds %v committed, but %v was", h.id(), idOf(entries[i-base]), idOf(j.committed[i].entry))
		}
	}
	if r.role == StateLeader {
		j.oneLeader(h, r.term)
		j.progress(h)
	}
}

// lacks reports whether a node's log surely does not hold an entry.
func lacks(rn *RawNode, id entryID) bool {
	term, err := rn.raft.log.term(id.index)
	return err != ErrCompacted && (err != nil || term != id.term)
}

// installs checks that a snapshot holds what was committed.
func (j *judge) installs(h *host, s pb.Snapshot) {
	index := s.Metadata.Index
	if index > uint64(len(j.committed)) || j.committed[index-1].entry.Term != s.Metadata.Term {
		j.broken("node %d installs a snapshot through %d of term %d, which is not what was committed", h.id(), index, s.Metadata.Term)
	}
	if index <= h.applied {
		j.broken("node %d installs a snapshot through %d over a state machine at %d", h.id(), index, h.applied)
	}
	if err := j.confAfter(index, s.Metadata.ConfState).Equivalent(s.Metadata.ConfState); err != nil {
		j.broken("node %d installs a snapshot through %d: %v", h.id(), index, err)
	}
}

// changes checks that a committed change leads to the same configuration on every node.
func (j *judge) changes(h *host, index uint64, have pb.ConfState) {
	want, known := j.confs[index]
	if index < j.founded {
		return
	} else if !known {
		j.confs[index] = have
	} else if err := have.Equivalent(want); err != nil {
		j.broken("node %d after the change at %d: %v", h.id(), index, err)
	}
}

// confAfter is the configuration after an entry; founded is the one before all changes.
func (j *judge) confAfter(index uint64, founded pb.ConfState) pb.ConfState {
	for ; index > 0; index-- {
		if conf, changed := j.confs[index]; changed {
			return conf
		}
	}
	return founded
}

// Log matching: an entry id names one entry, and by induction over the terms before it, one prefix.
func (j *judge) logMatching(h *host, entries []pb.Entry) {
	prevTerm, _ := h.node.raft.log.term(h.node.raft.log.firstIndex() - 1)
	for _, e := range entries {
		seen, known := j.entries[idOf(e)]
		switch {
		case !known:
			j.entries[idOf(e)] = rememberedIn{prevTerm, e.Data}
		case seen.prevTerm != prevTerm || !bytes.Equal(seen.data, e.Data):
			j.broken("node %d: entry %v is %q after term %d, elsewhere %q after term %d", h.id(), idOf(e), e.Data, prevTerm, seen.data, seen.prevTerm)
		}
		prevTerm = e.Term
	}
}

// oneLeader checks election safety, also across a node's lives, and leader completeness.
func (j *judge) oneLeader(h *host, term uint64) {
	me := fmt.Sprintf("node %d in its life %d", h.id(), h.incarnation)
	switch other, led := j.leaders[term]; {
	case led && other != me:
		j.broken("term %d is led by %s and by %s", term, other, me)
	case !led:
		j.leaders[term] = me
		for _, c := range j.committed {
			if c.term < term && lacks(h.node, idOf(c.entry)) {
				j.broken("%s leads term %d without entry %v, committed in term %d", me, term, idOf(c.entry), c.term)
			}
		}
	}
}

func (j *judge) progress(h *host) {
	r := h.node.raft
	for i := range r.leader.peers {
		if p := &r.leader.peers[i]; p.Progress.Match >= p.Progress.Next || p.Progress.Next > r.log.lastIndex()+1 {
			j.broken("leader %d on peer %d: match %d < next %d <= last+1 %d", h.id(), p.ID, p.Progress.Match, p.Progress.Next, r.log.lastIndex()+1)
		}
	}
	var own uint64
	for _, e := range allEntries(h.node) {
		if e.Index > r.log.applied && e.Index >= r.leader.termStart {
			own += uint64(len(e.Data))
		}
	}
	// Acknowledgements of the apply worker that overtake each other are counted late.
	if have := r.leader.uncommittedBytes; have < own || (have > own && len(h.inbox) == 0) {
		j.broken("leader %d counts %d uncommitted bytes, it has %d", h.id(), r.leader.uncommittedBytes, own)
	}
}

// applies checks state machine safety, and that what is applied is on the own disk.
func (j *judge) applies(h *host, e pb.Entry) {
	if int(e.Index) > len(j.committed) || j.committed[e.Index-1].entry.Term != e.Term || !bytes.Equal(j.committed[e.Index-1].entry.Data, e.Data) {
		j.broken("node %d applies %v, which is not what was committed", h.id(), idOf(e))
	}
	if term, err := h.disk.term(e.Index); err != nil || term != e.Term {
		j.broken("node %d applies %v ahead of its disk, which ends at %d", h.id(), idOf(e), h.disk.last())
	}
}

// leaves checks that a message which speaks for the disk says what the disk holds.
func (j *judge) leaves(h *host, m pb.Message) {
	hs, last := h.disk.hardState, h.disk.last()
	vouched := hs.Term == m.Term
	switch m.Type {
	case pb.MsgVote:
		vouched = vouched && hs.Vote == h.id()
	case pb.MsgVoteResp:
		vouched = vouched && (m.Reject || hs.Vote == m.To)
	case pb.MsgAppResp:
		vouched = vouched && (m.Reject || m.Index <= last)
	default:
		return
	}
	if m.Type == pb.MsgAppResp && !m.Reject && hs.Term == m.Term {
		j.acknowledged(h, m)
	}
	// Where the write already carried a later term, the message is late, not wrong.
	if !vouched && hs.Term <= m.Term {
		j.broken("node %d says %s; its disk is at term %d, vote %d, last %d", h.id(), describe(m), hs.Term, hs.Vote, last)
	}
}

// acknowledged checks that what a follower says it has is what its leader has.
func (j *judge) acknowledged(h *host, m pb.Message) {
	leader := h.world.host(m.To).node
	if leader == nil || leader.raft.role != StateLeader || leader.raft.term != m.Term {
		return
	}
	for i := h.disk.first(); i <= m.Index; i++ {
		if term, err := h.disk.term(i); err != nil || lacks(leader, entryID{term, i}) {
			j.broken("node %d says %s; entry %d is not its leader's", h.id(), describe(m), i)
		}
	}
}

func (j *judge) asked(context string) { j.reads[context] = uint64(len(j.committed)) }

// answered checks that a read sees all that anyone had learned to be committed when it was asked, and nothing that is not
// committed yet (thesis §6.4).
func (j *judge) answered(h *host, read ReadState) {
	floor, asked := j.reads[string(read.RequestCtx)]
	if !asked || read.Index < floor || read.Index > uint64(len(j.committed)) {
		j.broken("node %d may read %q at %d; when it was asked %d entries were committed, now %d are", h.id(), read.RequestCtx, read.Index, floor, len(j.committed))
	}
}

func (j *judge) broken(format string, args ...any) { panic("unsafe: " + fmt.Sprintf(format, args...)) }

func idOf(e pb.Entry) entryID { return entryID{term: e.Term, index: e.Index} }

func (id entryID) String() string { return fmt.Sprintf("%d@%d", id.index, id.term) }
