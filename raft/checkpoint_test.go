package raft

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// plainEntries writes entries whole.
type plainEntries struct{}

func (plainEntries) AppendEntries(b []byte, entries []raftpb.Entry) []byte {
	m := raftpb.Message{Entries: entries}
	return append(binary.AppendUvarint(b, uint64(m.Size())), m.Append(nil)...)
}

func (plainEntries) ReadEntries(b []byte) ([]raftpb.Entry, []byte, error) {
	n, k := binary.Uvarint(b)
	if k < 1 || n > uint64(len(b)-k) {
		return nil, nil, errShort
	}
	var m raftpb.Message
	err := m.Unmarshal(b[k : k+int(n)])
	return m.Entries, b[k+int(n):], err
}

// notState are the fields of a core that a checkpoint does not hold, by the end of their path, and why.
var notState = map[string]string{
	".raft.id": "Config", ".raft.cfg": "Config", ".raft.events": "Config", ".async": "Config",
	".log.storage": "Config", ".log.readers": "Config", ".log.applyUnstable": "Config", ".log.applyRanges": "Config",
	".log.overheadBytes": "Config", ".apply.maxBytes": "Config",
	".log.failure": "a core that has stopped has no checkpoint", ".onAdvance": "nor has one in the middle of a Ready",
	".out.now": "empty", ".out.afterAppend": "empty", ".out.ownAck": "empty", ".out.reads": "empty", ".out.droppedReads": "empty",
	".array.dead": "memory only", ".array.length": "memory only", ".start": "of a queue: memory only",
	".leader.voters": "follows from members", ".Inflights": "TestHiddenProgress",
	".snapshot.Metadata.ConfState": "of a snapshot: raftpb", ".live[0]": "EntryCodec",
}

func isState(path string) bool {
	for end := range notState {
		if strings.HasSuffix(path, end) && (end != ".start" || !strings.HasSuffix(path, ".raft.start")) {
			return false
		}
	}
	return true
}

// leaves visits every field below v that holds a value of its own.
func leaves(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	if !isState(path) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			leaves(reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem(), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Pointer:
		leaves(v.Elem(), path, visit)
	case reflect.Array:
		for i := range v.Len() {
			leaves(v.Index(i), path+"[]", visit)
		}
	case reflect.Slice:
		visit(path, v)
		if v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct {
			leaves(v.Index(0), path+"[0]", visit)
		}
	default:
		visit(path, v)
		if v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Pointer {
			for _, k := range v.MapKeys() {
				leaves(v.MapIndex(k), path+"[k]", visit)
			}
		}
	}
}

// change gives a leaf another value, and returns how to take that back.
func change(t *testing.T, path string, v reflect.Value) (restore func()) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		longer := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			longer.SetMapIndex(k, v.MapIndex(k))
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if value.Kind() == reflect.Pointer {
			value.Set(reflect.New(value.Type().Elem()))
		}
		longer.SetMapIndex(reflect.ValueOf(uint64(99)), value)
		v.Set(longer)
	default:
		t.Fatalf("%s is a %v, which this test cannot change", path, v.Kind())
	}
	return func() { v.Set(before) }
}

// fullNode is a node with something in every field. Such a node does not exist; the walk does not ask.
func fullNode(t *testing.T) *RawNode {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	r := rn.raft
	superseded := r.conf
	r.superseded = &superseded
	r.log.unstable.snapshot = &raftpb.Snapshot{Data: []byte("x"), Metadata: raftpb.SnapshotMetadata{Index: 1, Term: 1}}
	r.log.unstable.array.live = []raftpb.Entry{{Term: 1, Index: 2}}
	r.log.unstable.sizes.totals.array = []size{{encoded: 9, payload: 3}}
	r.log.apply.batches.array = []applyBatch{{through: 1}}
	r.log.changes.indexes = []uint64{3}
	r.candidate = &candidate{votes: map[uint64]bool{2: true}}
	r.leader = newLeader(r)
	r.leader.reads = reads{parked: []readRequest{{1, []byte("a")}}, waiting: []waitingRead{{readRequest{2, []byte("b")}, 3, 4}}, echoed: map[uint64]uint64{2: 1}}
	r.leader.returning = map[uint64]*returning{3: {epoch: 1}}
	return rn
}

func TestCheckpointHoldsEveryField(t *testing.T) {
	rn := fullNode(t)
	take := func() string {
		t.Helper()
		b, err := rn.AppendCheckpoint(nil, plainEntries{})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	whole, seen := take(), 0
	leaves(reflect.ValueOf(rn).Elem(), "", func(path string, v reflect.Value) {
		restore := change(t, path, v)
		if take() == whole {
			t.Errorf("a checkpoint does not hold %s; add it to the walk in checkpoint.go, or to notState with the reason", path)
		}
		restore()
		seen++
	})
	if take() != whole || seen < 90 {
		t.Errorf("%d fields were changed, and the node is as before: %t", seen, take() == whole)
	}
}

// What is read is what was written, for nodes of each role; and a checkpoint that is cut off is an error.
func TestCheckpointIsReadBack(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	check := func(role StateType) {
		t.Helper()
		if have := rn.BasicStatus().RaftState; have != role {
			t.Fatalf("it is %v, want %v", have, role)
		}
		written, err := rn.AppendCheckpoint([]byte("before"), plainEntries{})
		if err != nil || !bytes.HasPrefix(written, []byte("before")) {
			t.Fatal(err)
		}
		written = written[len("before"):]
		c := testConfig(1, s)
		read, err := NewFromCheckpoint(&c, written, plainEntries{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := read.AppendCheckpoint(nil, plainEntries{})
		if err != nil || !bytes.Equal(again, written) {
			t.Errorf("%v: read back it is %x, want %x: %v", role, again, written, err)
		}
		for n := range written {
			if _, err := NewFromCheckpoint(&c, written[:n], plainEntries{}); err == nil {
				t.Errorf("%v: %d of %d bytes are no error", role, n, len(written))
			}
		}
	}
	check(StateFollower)
	must(t, rn.Campaign())
	if _, err := rn.AppendCheckpoint(nil, plainEntries{}); err != ErrBusy {
		t.Errorf("with messages to hand out: %v", err)
	}
	rn.Ready()
	check(StateCandidate)
	elect(t, rn, s)
	check(StateLeader)
}

// The hidden part of a view is read back, and a window that is too long is refused.
func TestHiddenProgress(t *testing.T) {
	p := tracker.Progress{Next: 1, State: tracker.StateReplicate, Inflights: tracker.NewInflights(3, 0)}
	for range 3 {
		p.SentEntries(1, 10)
		p.SentCommit(2)
		p.Asked(7)
	}
	p.Inflights.FreeLE(1)
	p.SentEntries(2, 20) // the ring has wrapped
	h := p.Hidden()
	want := tracker.Hidden{SentCommit: 2, Asked: true, AskedAt: 7, Window: []tracker.InFlight{{Index: 2, Bytes: 10}, {Index: 3, Bytes: 10}, {Index: 5, Bytes: 20}}}
	var q tracker.Progress
	if !reflect.DeepEqual(h, want) || !q.SetHidden(h, 3, 0) || !reflect.DeepEqual(q.Hidden(), want) || q.Inflights.Bytes() != 40 {
		t.Errorf("%+v, and read back %+v", h, q.Hidden())
	}
	if q.SetHidden(h, 2, 0) {
		t.Error("three appends fit a window of two")
	}
}

// A role that no node has is damage.
func TestRoleOfACheckpoint(t *testing.T) {
	for role := StateFollower; role <= StatePreCandidate+2; role++ {
		var w, r checkpoint
		written := uint64(role)
		w.uints(&written)
		r.b, r.reads = w.b, true
		var have StateType
		r.role(&have)
		if known := role <= StatePreCandidate; known != (r.err == nil) || known && have != role {
			t.Errorf("role %d is read as %v: %v", role, have, r.err)
		}
	}
}

// A leader that was read back counts the acknowledgements of its followers as the one that was written.
func TestALeaderThatWasReadBackCommits(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	must(t, rn.Campaign())
	rn.Ready()
	elect(t, rn, s)
	b, err := rn.AppendCheckpoint(nil, plainEntries{})
	if err != nil {
		t.Fatal(err)
	}
	c := testConfig(1, s)
	read, err := NewFromCheckpoint(&c, b, plainEntries{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []*RawNode{rn, read} {
		st := node.BasicStatus()
		for _, from := range []uint64{2, 3} {
			must(t, node.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: from, To: 1, Term: st.Term, Index: st.LastIndex}))
		}
		if now := node.BasicStatus(); now.Commit != st.LastIndex {
			t.Errorf("both followers have entry %d, and the leader has committed through %d", st.LastIndex, now.Commit)
		}
	}
}

// Reads that were dropped are handed out before a checkpoint is taken.
func TestCheckpointAwaitsDroppedReads(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	rn.raft.out.droppedReads = append(rn.raft.out.droppedReads, []byte("read"))
	if _, err := rn.AppendCheckpoint(nil, plainEntries{}); err != ErrBusy {
		t.Errorf("with a read to hand out: %v", err)
	}
}

// A leader commits by counting, also if the refusal of a vote says that more is committed: then it tells its
// followers, too.
func TestALeaderLearnsNoCommitIndex(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	must(t, rn.Campaign())
	rn.Ready()
	elect(t, rn, s)
	r := rn.raft
	last := r.log.lastEntryID()
	if r.learnCommitted(last); r.log.committed != 0 {
		t.Errorf("a leader has learnt that entry %d is committed", r.log.committed)
	}
	r.becomeFollower(r.term, None)
	if r.learnCommitted(last); r.log.committed != last.Index {
		t.Errorf("a follower has learnt that entry %d is committed, want %d", r.log.committed, last.Index)
	}
}
