package conformance

import (
	"io"
	"log"
	"reflect"
	"unsafe"

	theirraft "go.etcd.io/raft/v3"
	theirs "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// theirCore is etcd-io/raft v3.6.0.
type theirCore struct {
	config  theirraft.Config
	storage *theirraft.MemoryStorage
	node    *theirraft.RawNode
}

func newTheirCore(s settings) core {
	storage := theirraft.NewMemoryStorage()
	return &theirCore{storage: storage, config: theirraft.Config{
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
		Logger:                    &theirraft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	}}
}

// setTheirElectionTimeout does for upstream's node what RawNode.SetElectionTimeout does for ours. Upstream
// has such a function only in a test of its own package, so this sets the field by name, and panics if there
// is no such field.
func setTheirElectionTimeout(node *theirraft.RawNode, ticks int) {
	protocol := reflect.ValueOf(node).Elem().FieldByName("raft").Elem()
	timeout := protocol.FieldByName("randomizedElectionTimeout")
	reflect.NewAt(timeout.Type(), unsafe.Pointer(timeout.UnsafeAddr())).Elem().SetInt(int64(ticks))
}

func (c *theirCore) restart() (err error) {
	c.config.Applied = must(c.storage.Snapshot()).Metadata.Index
	c.node, err = theirraft.NewRawNode(&c.config)
	return err
}

func (c *theirCore) tick(electionTimeout int) {
	setTheirElectionTimeout(c.node, electionTimeout)
	c.node.Tick()
}

func (c *theirCore) campaign() error             { return c.node.Campaign() }
func (c *theirCore) propose(data []byte) error   { return c.node.Propose(data) }
func (c *theirCore) reportUnreachable(id uint64) { c.node.ReportUnreachable(id) }
func (c *theirCore) advance()                    { c.node.Advance(theirraft.Ready{}) }

func (c *theirCore) transfer(to uint64) error {
	c.node.TransferLeader(to)
	return nil
}

func (c *theirCore) readIndex(context []byte) error {
	c.node.ReadIndex(context)
	return nil
}

func (c *theirCore) proposeChange(cc raftpb.ConfChangeI) error {
	return c.node.ProposeConfChange(theirChange(cc))
}

func (c *theirCore) applyChange(cc raftpb.ConfChangeI) raftpb.ConfState {
	var ours raftpb.ConfState
	translate(*c.node.ApplyConfChange(theirChange(cc)), &ours)
	return ours
}

// theirChange keeps the form, old or new, in which a change was written.
func theirChange(cc raftpb.ConfChangeI) theirs.ConfChangeI {
	if v1, ok := cc.AsV1(); ok {
		var c theirs.ConfChange
		translate(v1, &c)
		return c
	}
	var c theirs.ConfChangeV2
	translate(cc.AsV2(), &c)
	return c
}

func (c *theirCore) reportSnapshot(id uint64, arrived bool) {
	status := theirraft.SnapshotFailure
	if arrived {
		status = theirraft.SnapshotFinish
	}
	c.node.ReportSnapshot(id, status)
}

func (c *theirCore) step(wire []byte) error {
	var m theirs.Message
	if err := m.Unmarshal(wire); err != nil {
		return err
	}
	return c.node.Step(m)
}

func (c *theirCore) ready() (turn, bool) {
	if !c.node.HasReady() {
		return turn{}, false
	}
	rd := c.node.Ready()
	t := turn{entries: ourEntries(rd.Entries), committed: ourEntries(rd.CommittedEntries), mustSync: rd.MustSync}
	if s := rd.SoftState; s != nil {
		t.soft = &raft.SoftState{Lead: s.Lead, RaftState: raft.StateType(s.RaftState)}
	}
	translate(rd.HardState, &t.hard)
	translate(rd.Snapshot, &t.snapshot)
	for _, m := range rd.Messages {
		t.packets = append(t.packets, theirPacket(m))
	}
	for _, r := range rd.ReadStates {
		t.reads = append(t.reads, raft.ReadState{Index: r.Index, RequestCtx: r.RequestCtx})
	}
	return t, true
}

func theirPacket(m theirs.Message) packet {
	var p packet
	for _, response := range m.Responses {
		p.responses = append(p.responses, theirPacket(response))
	}
	m.Responses = nil
	p.wire = must(m.Marshal())
	check(p.Unmarshal(p.wire))
	return p
}

func ourEntries(entries []theirs.Entry) []raftpb.Entry {
	ours := make([]raftpb.Entry, len(entries))
	for i := range entries {
		translate(entries[i], &ours[i])
	}
	return ours
}

func (c *theirCore) state() state {
	s := c.node.BasicStatus()
	hard := raftpb.HardState{Term: s.Term, Vote: s.Vote, Commit: s.Commit}
	return state{HardState: hard, lead: s.Lead, role: s.RaftState.String(), applied: s.Applied}
}

func (c *theirCore) save(hard raftpb.HardState, entries []raftpb.Entry, snapshot raftpb.Snapshot) error {
	if !raft.IsEmptyHardState(hard) {
		var h theirs.HardState
		translate(hard, &h)
		check(c.storage.SetHardState(h))
	}
	if !raft.IsEmptySnap(snapshot) {
		var s theirs.Snapshot
		translate(snapshot, &s)
		if err := c.storage.ApplySnapshot(s); err != nil {
			return err
		}
	}
	batch := make([]theirs.Entry, len(entries))
	for i := range entries {
		translate(entries[i], &batch[i])
	}
	return c.storage.Append(batch)
}

func (c *theirCore) compact(through uint64, s raftpb.Snapshot) error {
	var conf theirs.ConfState
	translate(s.Metadata.ConfState, &conf)
	if _, err := c.storage.CreateSnapshot(s.Metadata.Index, &conf, s.Data); err != nil {
		return err
	}
	return c.storage.Compact(through)
}

func (c *theirCore) stored() stored {
	hard, _, err := c.storage.InitialState()
	check(err)
	s := stored{first: must(c.storage.FirstIndex())}
	translate(hard, &s.hard)
	translate(must(c.storage.Snapshot()), &s.snapshot)
	if last := must(c.storage.LastIndex()); last >= s.first {
		s.entries = ourEntries(must(c.storage.Entries(s.first, last+1, noLimit)))
	}
	return s
}

// translate converts a value of one make to the other through its bytes.
func translate[F, T any](from F, to *T) {
	wire := must(any(&from).(interface{ Marshal() ([]byte, error) }).Marshal())
	check(any(to).(interface{ Unmarshal([]byte) error }).Unmarshal(wire))
}
