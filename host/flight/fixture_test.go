package flight

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// fixture is three recorded cores on a network that loses, doubles and reorders, with slow disks, restarts,
// snapshots and changes of members, from one seed. It cares for no safety: other judges do (sim/core). It
// gives every input to the recorder.
type fixture struct {
	t       testing.TB
	rng     *rand.Rand
	now     time.Duration
	reads   raft.ReadOnlyOption
	members []*member
	net     []raftpb.Message
}

type member struct {
	w        *fixture
	id       uint64
	store    *store
	node     *Node
	log      *Log
	recorder *Recorder
	appends  []raftpb.Message
	applies  []raftpb.Message
	applied  uint64
	conf     raftpb.ConfState
	life     uint64
}

// store is a MemoryStorage that is slow to read old entries.
type store struct {
	*raft.MemoryStorage
	rng     *rand.Rand
	pending []uint64
}

func (s *store) EntriesFor(reader, lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if reader != raft.LocalApplyThread && s.rng.IntN(3) == 0 {
		s.pending = append(s.pending, reader)
		return nil, raft.ErrEntriesPending
	}
	return s.Entries(lo, hi, maxSize)
}

func (s *store) Changes(lo, hi uint64) (indexes []uint64, err error) {
	for i := lo; i < hi; i++ {
		entries, err := s.Entries(i, i+1, 1)
		if err != nil {
			return nil, err
		}
		if entries[0].Type.ChangesMembers() {
			indexes = append(indexes, i)
		}
	}
	return indexes, nil
}

func newFixture(t testing.TB, seed uint64, bound int64, data Data) *fixture {
	w := &fixture{t: t, rng: rand.New(rand.NewPCG(seed, 1)), reads: []raft.ReadOnlyOption{raft.ReadOnlyPromises, raft.ReadOnlySafe, raft.ReadOnlyLeaseBased}[seed%3]}
	conf := raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	for id := uint64(1); id <= 3; id++ {
		m := &member{w: w, id: id, conf: conf, store: &store{MemoryStorage: raft.NewMemoryStorage(), rng: w.rng}}
		m.store.SetConfState(conf)
		m.recorder = NewRecorder(bound, data, func() time.Duration { return w.now })
		m.log = m.recorder.Open(7)
		w.members = append(w.members, m)
		m.start()
	}
	return w
}

func (m *member) must(err error) {
	if err != nil {
		m.w.t.Helper()
		m.w.t.Fatalf("member %d: %v", m.id, err)
	}
}

func (m *member) start() {
	m.life++
	node, err := NewNode(raft.Config{
		ID: m.id, ElectionTick: 10, HeartbeatTick: 2, Seed: m.w.rng.Uint64(), Applied: m.applied, AsyncStorageWrites: true,
		ApplyRanges: m.life%2 == 0, MaxSizePerMsg: 300, MaxCommittedSizePerReady: 500, MaxInflightMsgs: 4, EntryOverheadBytes: 20,
		CheckQuorum: true, CheckAppends: true, PreVote: m.w.rng.IntN(2) == 0, ReadOnlyOption: m.w.reads, MaxUncommittedEntriesSize: 4000,
	}, m.store, m.log)
	m.must(err)
	m.node, m.appends, m.applies, m.store.pending = node, nil, nil, nil
	m.handle()
}

// run gives the world so many random inputs.
func (w *fixture) run(inputs int) {
	for range inputs {
		w.now += time.Millisecond
		m := w.members[w.rng.IntN(len(w.members))]
		m.input(w.rng.IntN(100))
		m.handle()
	}
}

func (m *member) input(what int) {
	n, rng, other := m.node, m.w.rng, 1+m.w.rng.Uint64N(3)
	st := n.BasicStatus()
	switch {
	case what < 8:
		n.TickN(1 + rng.IntN(3))
	case what < 9:
		n.Tick()
		n.TickQuiesced()
	case what < 10:
		n.TickMissed(1 + rng.IntN(30))
	case what < 45:
		m.w.deliver()
	case what < 60:
		m.saveOne()
	case what < 70:
		m.applyOne()
	case what < 82:
		_ = n.Step(raftpb.Message{Type: raftpb.MsgProp, From: m.id, Entries: []raftpb.Entry{{Data: make([]byte, rng.IntN(60))}, {Data: []byte("b")}}})
	case what < 83:
		kind := []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode}[rng.IntN(2)]
		_ = n.ProposeConfChange(raftpb.ConfChange{Type: kind, NodeID: other})
	case what < 86:
		_ = n.ReadIndex([]byte{1, 2, 3, 4, 5, 6, 7, byte(rng.IntN(256))})
	case what < 88:
		_, _ = n.HeardLeader(st.Term, other)
	case what < 90:
		_ = n.PeerActive(other)
	case what < 91:
		n.ReportUnreachable(other)
	case what < 92:
		n.ReportSnapshot(other, raft.SnapshotFinish+raft.SnapshotStatus(rng.IntN(2)))
	case what < 96:
		if pending := m.store.pending; len(pending) > 0 {
			m.store.pending = pending[1:]
			n.EntriesArrived(pending[0])
		}
	case what < 97:
		n.StretchPromise(rng.IntN(3))
		n.SetPulsed(rng.IntN(2) == 0)
	case what < 98:
		m.compact()
	case rng.IntN(3) > 0:
	default:
		m.rare(rng.IntN(6), other)
	}
}

func (m *member) rare(what int, other uint64) {
	switch what {
	case 0:
		m.start()
	case 1:
		_ = m.node.Campaign()
	case 2:
		_ = m.node.TransferLeader(other)
	case 3:
		_ = m.node.ForgetLeader()
	case 4:
		m.node.StepDown(3)
	case 5:
		m.node.SetElectionTimeout(12)
		m.node.Regain()
	}
}

// handle takes a Ready, if there is one.
func (m *member) handle() {
	for m.node.HasReady() {
		for _, msg := range m.node.Ready().Messages {
			switch msg.To {
			case raft.LocalAppendThread:
				m.appends = append(m.appends, msg)
			case raft.LocalApplyThread:
				m.applies = append(m.applies, msg)
			default:
				m.w.send(msg)
			}
		}
		m.must(m.node.Err())
	}
}

func (w *fixture) send(m raftpb.Message) {
	for range []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[w.rng.IntN(10)] {
		w.net = append(w.net, m)
	}
	if len(w.net) > 200 {
		w.net = w.net[100:]
	}
}

func (w *fixture) deliver() {
	if len(w.net) == 0 {
		return
	}
	i := 0
	if w.rng.IntN(4) == 0 {
		i = w.rng.IntN(len(w.net))
	}
	msg := w.net[i]
	w.net = append(w.net[:i:i], w.net[i+1:]...)
	for _, m := range w.members {
		if m.id == msg.To {
			_ = m.node.Step(msg)
			m.handle()
		}
	}
}

func (m *member) saveOne() {
	if len(m.appends) == 0 {
		return
	}
	msg := m.appends[0]
	m.appends = m.appends[1:]
	if msg.Snapshot != nil {
		for len(m.applies) > 0 {
			m.applyOne()
		}
		if err := m.store.ApplySnapshot(*msg.Snapshot); err == nil {
			m.applied, m.conf = msg.Snapshot.Metadata.Index, msg.Snapshot.Metadata.ConfState
		}
	}
	m.must(m.store.Append(msg.Entries))
	if msg.Term > 0 {
		m.must(m.store.SetHardState(raftpb.HardState{Term: msg.Term, Vote: msg.Vote, Commit: msg.Commit}))
	}
	for _, r := range msg.Responses {
		if r.To == m.id {
			_ = m.node.Step(r)
			m.handle()
		} else {
			m.w.send(r)
		}
	}
}

func (m *member) applyOne() {
	if len(m.applies) == 0 {
		return
	}
	msg := m.applies[0]
	m.applies = m.applies[1:]
	entries := msg.Entries
	if entries == nil {
		var err error
		entries, err = m.store.Entries(msg.Index+1, msg.Commit+1, 1<<30)
		m.must(err)
	}
	for _, e := range entries {
		m.applied = max(m.applied, e.Index)
		if e.Type == raftpb.EntryConfChange {
			var c raftpb.ConfChange
			m.must(c.Unmarshal(e.Data))
			m.conf = *m.node.ApplyConfChange(c)
			m.handle()
		}
	}
	for _, r := range msg.Responses {
		_ = m.node.Step(r)
		m.handle()
	}
}

func (m *member) compact() {
	st := m.node.BasicStatus()
	first, _ := m.store.FirstIndex()
	if at := min(m.applied, st.Durable); at >= first+5 && len(m.appends) == 0 && len(m.applies) == 0 && at == m.applied {
		if _, err := m.store.CreateSnapshot(at, &m.conf, []byte("state")); err == nil {
			m.store.SetConfState(m.conf)
			m.must(m.store.Compact(at - 2))
		}
	}
}

// file returns the recording of a member, written and read back.
func (m *member) file() *File {
	m.w.t.Helper()
	var b bytes.Buffer
	m.must(m.recorder.WriteTo(&b, Meta{Host: m.id, Tick: time.Millisecond}))
	f, err := Read(&b)
	m.must(err)
	if f.Cut {
		m.w.t.Fatal("a whole file counts as cut off")
	}
	return f
}

// replayed replays a recording and returns the result and the first difference.
func replayed(t testing.TB, f *File) (r Result, difference string) {
	t.Helper()
	r, err := Replay(context.Background(), f, 7, func(s *Step) error {
		if s.Differs != "" && difference == "" {
			difference = fmt.Sprintf("step %d (%v): %s", s.Number, s.Record.Kind, s.Differs)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, difference
}
