package conformance

import (
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// core is a RawNode, ours or theirs, with its storage, behind our types. It is all that a cluster of both
// makes needs. Messages between nodes are bytes that the sender's own codec wrote and the receiver's own
// codec reads; values within a node are translated through such bytes.
type core interface {
	tick(electionTimeout int) // the timeout is set first, because chance belongs to the cluster and not to the core
	campaign() error
	propose(data []byte) error
	proposeChange(c raftpb.ConfChangeI) error
	applyChange(c raftpb.ConfChangeI) raftpb.ConfState
	transfer(to uint64) error
	readIndex(context []byte) error
	reportUnreachable(id uint64)
	reportSnapshot(id uint64, arrived bool)
	step(wire []byte) error
	ready() (turn, bool) // false: there is nothing to do
	advance()
	state() state

	save(hard raftpb.HardState, entries []raftpb.Entry, snapshot raftpb.Snapshot) error
	compact(through uint64, snapshot raftpb.Snapshot) error
	stored() stored
	restart() error // from what is stored; entries are applied again, starting after the snapshot
}

// settings are the fields of Config that differ between clusters.
type settings struct {
	id                        uint64
	async                     bool
	preVote, checkQuorum      bool
	stepDownOnRemoval         bool
	disableForwarding         bool
	electionTicks             int
	maxSizePerMsg             uint64
	maxInflightMsgs           int
	maxInflightBytes          uint64
	maxCommittedSizePerReady  uint64
	maxUncommittedEntriesSize uint64
}

// turn is the work that a Ready asks for.
type turn struct {
	soft      *raft.SoftState
	hard      raftpb.HardState
	mustSync  bool
	entries   []raftpb.Entry
	snapshot  raftpb.Snapshot
	committed []raftpb.Entry
	packets   []packet
	reads     []raft.ReadState
	dropped   [][]byte // contexts of reads; ours only
}

// packet is a message, in two forms: as our codec reads it, without its responses, and as its sender's codec
// wrote it.
type packet struct {
	raftpb.Message
	wire      []byte
	responses []packet
}

// state is what a node shows of itself.
type state struct {
	raftpb.HardState
	lead    uint64
	role    string
	applied uint64
}

const leading = "StateLeader"

// stored is what a restart finds.
type stored struct {
	hard     raftpb.HardState
	snapshot raftpb.Snapshot
	first    uint64
	entries  []raftpb.Entry
}

// ourCore is the core of this repository.
type ourCore struct {
	config  raft.Config
	storage *raft.MemoryStorage
	node    *raft.RawNode
}

func newOurCore(s settings) core {
	storage := raft.NewMemoryStorage()
	return &ourCore{storage: storage, config: raft.Config{
		ID:                        s.id,
		ElectionTick:              s.electionTicks,
		HeartbeatTick:             1,
		Storage:                   storage,
		AsyncStorageWrites:        s.async,
		MaxSizePerMsg:             s.maxSizePerMsg,
		MaxInflightMsgs:           s.maxInflightMsgs,
		MaxCommittedSizePerReady:  s.maxCommittedSizePerReady,
		MaxUncommittedEntriesSize: s.maxUncommittedEntriesSize,
		PreVote:                   s.preVote,
		CheckQuorum:               s.checkQuorum,
		StepDownOnRemoval:         s.stepDownOnRemoval,
		DisableProposalForwarding: s.disableForwarding,
		MaxInflightBytes:          s.maxInflightBytes,
	}}
}

func (c *ourCore) restart() (err error) {
	c.config.Applied = must(c.storage.Snapshot()).Metadata.Index
	c.node, err = raft.NewRawNode(&c.config)
	return err
}

func (c *ourCore) tick(electionTimeout int) {
	c.node.SetElectionTimeout(electionTimeout)
	c.node.Tick()
}

func (c *ourCore) campaign() error                           { return c.node.Campaign() }
func (c *ourCore) propose(data []byte) error                 { return c.node.Propose(data) }
func (c *ourCore) proposeChange(cc raftpb.ConfChangeI) error { return c.node.ProposeConfChange(cc) }
func (c *ourCore) transfer(to uint64) error                  { return c.node.TransferLeader(to) }
func (c *ourCore) readIndex(context []byte) error            { return c.node.ReadIndex(context) }
func (c *ourCore) reportUnreachable(id uint64)               { c.node.ReportUnreachable(id) }
func (c *ourCore) advance()                                  { c.node.Advance(raft.Ready{}) }

func (c *ourCore) applyChange(cc raftpb.ConfChangeI) raftpb.ConfState {
	return *c.node.ApplyConfChange(cc)
}

func (c *ourCore) reportSnapshot(id uint64, arrived bool) {
	status := raft.SnapshotFailure
	if arrived {
		status = raft.SnapshotFinish
	}
	c.node.ReportSnapshot(id, status)
}

func (c *ourCore) step(wire []byte) error {
	var m raftpb.Message
	if err := m.Unmarshal(wire); err != nil {
		return err
	}
	return c.node.Step(m)
}

func (c *ourCore) ready() (turn, bool) {
	if err := c.node.Err(); err != nil {
		panic(err)
	}
	if !c.node.HasReady() {
		return turn{}, false
	}
	rd := c.node.Ready()
	t := turn{
		soft: rd.SoftState, hard: rd.HardState, mustSync: rd.MustSync,
		entries: rd.Entries, snapshot: rd.Snapshot, committed: rd.CommittedEntries,
		reads: rd.ReadStates, dropped: rd.DroppedReads,
	}
	for _, m := range rd.Messages {
		t.packets = append(t.packets, ourPacket(m))
	}
	return t, true
}

func ourPacket(m raftpb.Message) packet {
	var p packet
	for _, response := range m.Responses {
		p.responses = append(p.responses, ourPacket(response))
	}
	m.Responses = nil
	p.wire = must(m.Marshal())
	check(p.Unmarshal(p.wire))
	return p
}

func (c *ourCore) state() state {
	s := c.node.BasicStatus()
	return state{HardState: s.HardState, lead: s.Lead, role: s.RaftState.String(), applied: s.Applied}
}

func (c *ourCore) save(hard raftpb.HardState, entries []raftpb.Entry, snapshot raftpb.Snapshot) error {
	if !raft.IsEmptyHardState(hard) {
		check(c.storage.SetHardState(hard))
	}
	if !raft.IsEmptySnap(snapshot) {
		if err := c.storage.ApplySnapshot(snapshot); err != nil {
			return err
		}
	}
	return c.storage.Append(entries)
}

func (c *ourCore) compact(through uint64, s raftpb.Snapshot) error {
	if _, err := c.storage.CreateSnapshot(s.Metadata.Index, &s.Metadata.ConfState, s.Data); err != nil {
		return err
	}
	return c.storage.Compact(through)
}

func (c *ourCore) stored() stored {
	hard, _, err := c.storage.InitialState()
	check(err)
	s := stored{hard: hard, snapshot: must(c.storage.Snapshot()), first: must(c.storage.FirstIndex())}
	if last := must(c.storage.LastIndex()); last >= s.first {
		s.entries = must(c.storage.Entries(s.first, last+1, noLimit))
	}
	return s
}

const noLimit = 1 << 62

// must and check are for calls that cannot fail; a cluster reports a panic with its seed and step.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprintf("cannot fail: %v", err))
	}
}
