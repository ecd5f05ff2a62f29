package raft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
)

// The clusters of these tests: nodes, their storage workers and the network between them. A script or chance
// moves them one step at a time; nothing happens by itself.
//
// The workers are as slow and as harsh as the contract permits. A write becomes visible when it is executed,
// but a write without responses is not synced, and a crash may lose it. A worker's answers to its own node
// wait in the inbox until they are delivered. A crash loses the inbox, and all but a prefix of the writes
// that were queued or not synced; the prefix ends in the middle of a write (torn_test.go). Messages that have
// left for a peer are still under way.

type testCluster struct {
	hosts []*host // hosts[i] has id i+1
	net   []raftpb.Message
	judge *judge
	order writeOrder // of the parts of a write
	disk  diskRules  // full_test.go
	// slow decides which reads take time; nil: none (storageread_test.go).
	slow func(reader uint64) bool
	// overtaken says that a node has lost its leadership while it was reading for a follower.
	overtaken bool
}

type host struct {
	cluster *testCluster
	cfg     Config
	node    *RawNode // nil while crashed

	slow     *slowStorage     // storage, as the node sees it
	storage  *MemoryStorage   // what the node reads: every executed write
	disk     *MemoryStorage   // what a crash leaves: every synced write
	unsynced []raftpb.Message // executed and not synced; after a crash also those that were queued
	full     bool             // the disk has no space for entries
	power    *powerLog        // what a power cut leaves, in a mode that acknowledges early; nil: what disk has

	appends, applies, inbox []raftpb.Message
	taken                   *Ready // synchronous mode: the Ready that is being processed
	stage                   syncStage

	incarnation int
	applied     uint64 // the state machine; it survives crashes if restart says so
	installed   int    // snapshots of others, in all runs
	refused     []error
	reads       int      // asked, in all runs: they make contexts that are never used twice
	answered    int      // reads
	heard       []string // answers and refusals of reads, for scripts to print
}

// syncStage is the next step for the Ready that was taken.
type syncStage int

const (
	toSave syncStage = iota
	toSend
	toApply
	toAdvance
)

func newTestCluster(nodes int, change func(*Config)) *testCluster {
	w := &testCluster{judge: newJudge(), order: inContractOrder}
	var voters []uint64
	for id := range uint64(nodes) {
		voters = append(voters, id+1)
	}
	for _, id := range voters {
		s := NewMemoryStorage()
		s.SetConfState(raftpb.ConfState{Voters: voters})
		cfg := testConfig(id, s)
		if change != nil {
			change(&cfg)
		}
		w.hosts = append(w.hosts, &host{cluster: w, cfg: cfg, disk: s})
	}
	return w
}

func (w *testCluster) start() {
	for _, h := range w.hosts {
		h.restart(0, 0)
	}
}

// foundation is how a cluster begins that will change its members: only the first hosts are members, and the
// others, whose disks are empty, must be able to learn everything from the log.
type foundation int

const (
	onEveryDisk foundation = iota // all hosts are members, and their storage says so
	bySnapshot
	byBootstrap
	bySnapshotAlone // without a hard state
)

func newGrowingCluster(nodes, founders int, f foundation, change func(*Config)) *testCluster {
	w := newTestCluster(nodes, change)
	var conf raftpb.ConfState
	var peers []Peer
	for id := uint64(1); id <= uint64(founders); id++ {
		conf.Voters = append(conf.Voters, id)
		peers = append(peers, Peer{ID: id})
	}
	for i, h := range w.hosts {
		h.disk = NewMemoryStorage()
		if f != byBootstrap && i < founders {
			if err := h.disk.ApplySnapshot(raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 1, Term: 1, ConfState: conf}}); err != nil {
				panic(err)
			}
			if f == bySnapshot {
				h.disk.hardState = raftpb.HardState{Term: 1, Commit: 1}
			}
		}
	}
	w.judge.founded = uint64(founders)
	for i := range conf.Voters {
		w.judge.confs[uint64(i)+1] = raftpb.ConfState{Voters: conf.Voters[:i+1]}
	}
	if f != byBootstrap {
		w.judge.founded = 1
		w.judge.committed = []committed{{entry: raftpb.Entry{Term: 1, Index: 1}, term: 1}}
		w.judge.confs = map[uint64]raftpb.ConfState{1: conf}
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

func (w *testCluster) host(id uint64) *host { return w.hosts[id-1] }

func (h *host) id() uint64 { return h.cfg.ID }

func (h *host) restart(unsyncedKept int, applied uint64) {
	h.recover(unsyncedKept, 0)
	h.storage = copyStorage(h.disk)
	applied = max(applied, h.disk.snapshot.Metadata.Index) // the snapshot that the state machine is restored from
	h.slow = &slowStorage{host: h, asOfApplied: asOfApplied{h.storage, h.cluster.judge.confAfter(applied, h.disk.snapshot.Metadata.ConfState)}}
	h.cfg.Storage, h.cfg.Applied = h.slow, applied
	node, err := NewRawNode(&h.cfg)
	if err != nil {
		panic(fmt.Sprintf("node %d does not restart: %v", h.id(), err))
	}
	h.node, h.applied = node, applied
	h.incarnation++
	h.cfg.Seed++
	h.checked()
}

// asOfApplied is the storage of an application that keeps the configuration with its state machine.
type asOfApplied struct {
	*MemoryStorage
	conf raftpb.ConfState
}

func (s asOfApplied) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	hs, _, err := s.MemoryStorage.InitialState()
	return hs, s.conf, err
}

func (h *host) crash() {
	h.unsynced = append(h.unsynced, h.cluster.disk.round(h, h.appends)...)
	if h.taken != nil && h.stage == toSave {
		h.unsynced = append(h.unsynced, writeOf(h.taken))
	}
	h.node, h.appends, h.applies, h.inbox, h.taken = nil, nil, nil, nil, nil
}

// input gives the node an input, and lets the judge check it.
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
	h.cluster.judge.look(h)
}

// takeReady moves a Ready's work into the host's queues and the network, and reports whether there was any.
func (h *host) takeReady() (rd Ready, ok bool) {
	if h.node == nil || h.taken != nil || !h.node.HasReady() {
		return Ready{}, false
	}
	rd = h.node.Ready()
	for _, read := range rd.ReadStates {
		h.cluster.judge.answered(h, read)
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
			h.cluster.judge.leaves(h, m) // must not be a message that waits for the disk
			h.cluster.send(m)
		}
	}
	return rd, true
}

func (w *testCluster) send(m raftpb.Message) { w.net = append(w.net, m) }

// runAppend executes the first queued write and returns it.
func (h *host) runAppend() (done raftpb.Message, ok bool) {
	if len(h.appends) == 0 {
		return raftpb.Message{}, false
	}
	if h.appends[0].Snapshot != nil {
		for _, any := h.runApply(); any; _, any = h.runApply() { // as the contract asks
		}
	}
	done, h.appends = h.cluster.disk.raise(h, h.appends[0]), h.appends[1:]
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
		h.power.note(m)
	}
	h.unsynced = nil
}

// install replaces the state machine by a snapshot.
func (h *host) install(s *raftpb.Snapshot) {
	if s == nil {
		return
	}
	h.cluster.judge.installs(h, *s)
	h.applied = s.Metadata.Index
	h.installed++
}

// compact makes a snapshot of the state machine, and drops the log through an index at or below it. It does
// nothing while the state machine is ahead of the disk: a snapshot contains only what is durable.
func (h *host) compact(through uint64) {
	if h.applied > h.disk.last() {
		return
	}
	for _, s := range []*MemoryStorage{h.storage, h.disk} {
		if h.applied > s.snapshot.Metadata.Index {
			conf := h.cluster.judge.confAfter(h.applied, s.snapshot.Metadata.ConfState)
			if _, err := s.CreateSnapshot(h.applied, &conf, fmt.Appendf(nil, "state at %d", h.applied)); err != nil {
				panic(err)
			}
		}
		if err := s.Compact(through); err != nil && !errors.Is(err, ErrCompacted) {
			panic(err)
		}
	}
}

func (h *host) runApply() (done raftpb.Message, ok bool) {
	if len(h.applies) == 0 {
		return raftpb.Message{}, false
	}
	done, h.applies = h.applies[0], h.applies[1:]
	if len(done.Entries) == 0 { // a range
		var err error
		if done.Entries, err = h.storage.Entries(done.Index+1, done.Commit+1, noLimit); err != nil || uint64(len(done.Entries)) != done.Commit-done.Index {
			panic(fmt.Sprintf("node %d cannot read the range (%d,%d] that it is to apply: %v", h.id(), done.Index, done.Commit, err))
		}
	}
	h.apply(done.Entries)
	h.release(done.Responses)
	return done, true
}

func (h *host) apply(entries []raftpb.Entry) {
	for _, e := range entries {
		if e.Index != h.applied+1 {
			panic(fmt.Sprintf("node %d applies entry %d after %d", h.id(), e.Index, h.applied))
		}
		h.cluster.judge.applies(h, e)
		h.applied = e.Index
		if e.Type != raftpb.EntryNormal {
			h.applyConfChange(e)
		}
	}
}

func (h *host) applyConfChange(e raftpb.Entry) {
	var c raftpb.ConfChangeI
	var v1 raftpb.ConfChange
	var v2 raftpb.ConfChangeV2
	if c = &v1; e.Type == raftpb.EntryConfChange {
		if err := v1.Unmarshal(e.Data); err != nil {
			panic(err)
		}
	} else if c = &v2; true {
		if err := v2.Unmarshal(e.Data); err != nil {
			panic(err)
		}
	}
	h.cluster.judge.changes(h, e.Index, *h.node.ApplyConfChange(c))
	h.checked()
}

func (h *host) release(responses []raftpb.Message) {
	for _, m := range responses {
		if m.To == h.id() {
			h.inbox = append(h.inbox, m)
			continue
		}
		h.cluster.judge.leaves(h, m)
		h.cluster.send(m)
	}
}

// hearOwn delivers one of the workers' answers.
func (h *host) hearOwn(i int) {
	m := h.inbox[i]
	h.inbox = append(h.inbox[:i:i], h.inbox[i+1:]...)
	if err := h.input(func(rn *RawNode) error { return stepAwaited(rn, m) }); err != nil {
		panic(fmt.Sprintf("node %d refuses its own worker: %v", h.id(), err))
	}
}

// runSync does the next step for the Ready that was taken in synchronous mode.
func (h *host) runSync() bool {
	if h.taken == nil {
		return false
	}
	rd := h.taken
	switch h.stage {
	case toSave:
		m := writeOf(rd)
		write(h.storage, m)
		h.unsynced = append(h.unsynced, m)
		if rd.MustSync || m.Snapshot != nil {
			h.sync()
		}
		h.install(m.Snapshot)
	case toSend:
		for _, m := range rd.Messages {
			h.cluster.judge.leaves(h, m)
			h.cluster.send(m)
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

// deliver removes message i from the network and hands it over.
func (w *testCluster) deliver(i int) (raftpb.Message, error) {
	m := w.drop(i)
	return m, w.handOver(m)
}

func (w *testCluster) handOver(m raftpb.Message) error {
	return w.host(m.To).input(func(rn *RawNode) error { return stepAwaited(rn, m) })
}

// stepAwaited steps a message. If the node says that it does not await such a message, the message must make
// no work.
func stepAwaited(rn *RawNode, m raftpb.Message) error {
	quiet := !rn.HasReady() && !awaited(rn, &m)
	err := rn.Step(m)
	if quiet && rn.HasReady() {
		panic(fmt.Sprintf("%v is not awaited, and makes work: %+v", DescribeMessage(m, nil), rn.Ready()))
	}
	return err
}

func awaited(rn *RawNode, m *raftpb.Message) bool {
	st := rn.BasicStatus()
	switch {
	case !rn.async:
		return true
	case m.From == LocalApplyThread:
		return rn.AwaitsApply()
	case m.From == LocalAppendThread || m.From == st.ID:
		return rn.AwaitsAppend()
	case m.Type == raftpb.MsgAppResp && !m.Reject && m.Term == st.Term && m.Index <= st.Commit:
		return rn.AwaitsAcks()
	}
	return true
}

func (w *testCluster) drop(i int) raftpb.Message {
	m := w.net[i]
	w.net = append(w.net[:i:i], w.net[i+1:]...)
	return m
}

// runIdle does all work, except for messages that cut says are lost, until nothing is left to do.
func (w *testCluster) runIdle(lost func(raftpb.Message) bool) {
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

// work executes everything that is queued at one host.
func (h *host) work() bool {
	moved := h.workWithoutReads()
	for h.node != nil && len(h.slow.waiting) > 0 {
		h.arrive(0)
		h.workWithoutReads()
		moved = true
	}
	return moved
}

func (h *host) workWithoutReads() bool {
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

// write does a write, whole.
func write(s *MemoryStorage, m raftpb.Message) {
	for _, do := range inContractOrder(m) {
		do(s)
	}
}

// writeOf returns the write of a synchronous Ready.
func writeOf(rd *Ready) raftpb.Message {
	m := raftpb.Message{Entries: rd.Entries, Term: rd.HardState.Term, Vote: rd.HardState.Vote, Commit: rd.HardState.Commit}
	if !IsEmptySnap(rd.Snapshot) {
		m.Snapshot = &rd.Snapshot
	}
	return m
}

func copyStorage(s *MemoryStorage) *MemoryStorage {
	return &MemoryStorage{hardState: s.hardState, snapshot: s.snapshot, base: s.base, entries: slices.Clone(s.entries)}
}

// ask asks for a read, with a context that was never used.
func (h *host) ask(name string) error {
	h.reads++
	context := fmt.Sprintf("%s/%d.%d", name, h.id(), h.reads)
	h.cluster.judge.asked(context)
	return h.input(func(rn *RawNode) error { return rn.ReadIndex([]byte(context)) })
}

// allEntries returns the node's log as the node sees it, starting at its first index.
func allEntries(rn *RawNode) []raftpb.Entry {
	if s, slow := rn.raft.log.storage.(*slowStorage); slow {
		s.honest = true
		defer func() { s.honest = false }()
	}
	ents, err := rn.raft.log.entries(None, rn.raft.log.firstIndex(), rn.raft.log.lastIndex()+1, noLimit)
	if err != nil {
		panic(err)
	}
	return ents
}
