// Command etcdraft37 holds nodes of etcd-io/raft v3.7.0 for the mixed clusters of conformance, which are
// linked with v3.6.0 and cannot be linked with both.
//
// # The protocol
//
// Each Request on standard input gets one Answer on standard output. Both are encoded by encoding/gob: each
// value follows its length in bytes, and a zero field is left out. The types are declared here and in the
// test that asks (child37_test.go); gob matches them by the names of their fields. A Raft message, entry,
// hard state, snapshot, configuration or membership change is encoded as protocol buffers, as on the network.
// The command ends when its input ends.
//
// Every Answer contains the state of the node after the request, and whether the node has a Ready, so that no
// request is needed for these. A panic of the library is an Answer too; the node is unusable after it.
package main

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"
	"runtime/debug"
	"unsafe"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Request is one input of one node.
type Request struct {
	Node uint64
	// Op names the input: new, restart, tick, campaign, propose, change, apply, transfer, read, unreachable,
	// snapshot, step, ready, advance, save, compact, stored.
	Op       string
	Settings Settings // new
	// Number is an election timeout in ticks (tick), a node (transfer, unreachable, snapshot), or an index
	// (compact).
	Number uint64
	// Yes: the snapshot has arrived; or the change is of the old form.
	Yes      bool
	Data     []byte // command, context, message or change
	Hard     []byte
	Entries  [][]byte
	Snapshot []byte
}

// Settings are the fields of raft.Config that differ between clusters.
type Settings struct {
	Async, PreVote, CheckQuorum, StepDownOnRemoval, DisableForwarding         bool
	ElectionTicks, MaxInflightMsgs                                            int
	MaxInflightBytes, MaxSizePerMsg, MaxCommittedPerReady, MaxUncommittedSize uint64
}

// Answer is the state after a request, and the result that was asked for.
type Answer struct {
	Error string
	// Kind of the error: dropped, not found, panic, other; "" is none.
	Kind string

	Term, Vote, Commit, Lead, Applied uint64
	Role                              string
	Ready                             bool

	Hard      []byte // ready, stored
	Entries   [][]byte
	Snapshot  []byte
	Committed [][]byte
	Packets   []Packet
	Reads     []Read
	First     uint64 // stored
	Conf      []byte // apply
}

// Packet is a message without its responses, and the responses.
type Packet struct {
	Wire      []byte
	Responses []Packet
}

// Read is a raft.ReadState.
type Read struct {
	Index   uint64
	Context []byte
}

func main() {
	in, out := gob.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	answers := gob.NewEncoder(out)
	nodes := map[uint64]*node{}
	for {
		var q Request
		err := in.Decode(&q)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = answers.Encode(handle(nodes, &q))
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "etcdraft37:", err)
			os.Exit(1)
		}
	}
}

// handle answers a request, even if the library panics.
func handle(nodes map[uint64]*node, q *Request) (a *Answer) {
	a = &Answer{}
	defer func() {
		if reason := recover(); reason != nil {
			a = &Answer{Kind: "panic", Error: fmt.Sprintf("%v\n%s", reason, debug.Stack())}
		}
	}()
	if q.Op == "new" {
		nodes[q.Node] = newNode(q.Node, q.Settings)
		return a
	}
	n := nodes[q.Node]
	if n == nil {
		panic(fmt.Sprintf("asked to %s node %d, which was not made", q.Op, q.Node))
	}
	err := n.do(q, a)
	switch {
	case err == nil:
	case errors.Is(err, raft.ErrProposalDropped):
		a.Kind = "dropped"
	case errors.Is(err, raft.ErrStepPeerNotFound):
		a.Kind = "not found"
	default:
		a.Kind = "other"
	}
	if err != nil {
		a.Error = err.Error()
	}
	if n.raw != nil {
		n.describe(a)
	}
	return a
}

// node is a RawNode, after its first restart, and its storage.
type node struct {
	config  raft.Config
	storage *raft.MemoryStorage
	raw     *raft.RawNode
}

func newNode(id uint64, s Settings) *node {
	n := &node{storage: raft.NewMemoryStorage()}
	n.config = raft.Config{
		ID:                        id,
		ElectionTick:              s.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   n.storage,
		AsyncStorageWrites:        s.Async,
		MaxSizePerMsg:             s.MaxSizePerMsg,
		MaxInflightMsgs:           s.MaxInflightMsgs,
		MaxInflightBytes:          s.MaxInflightBytes,
		MaxCommittedSizePerReady:  s.MaxCommittedPerReady,
		MaxUncommittedEntriesSize: s.MaxUncommittedSize,
		PreVote:                   s.PreVote,
		CheckQuorum:               s.CheckQuorum,
		StepDownOnRemoval:         s.StepDownOnRemoval,
		DisableProposalForwarding: s.DisableForwarding,
		Logger:                    &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	}
	return n
}

func (n *node) describe(a *Answer) {
	s := n.raw.BasicStatus()
	a.Term, a.Vote, a.Commit = s.HardState.GetTerm(), s.HardState.GetVote(), s.HardState.GetCommit()
	a.Lead, a.Applied, a.Role = s.Lead, s.Applied, s.RaftState.String()
	a.Ready = n.raw.HasReady()
}

func (n *node) do(q *Request, a *Answer) error {
	switch q.Op {
	case "restart":
		return n.restart()
	case "tick":
		n.setElectionTimeout(q.Number)
		n.raw.Tick()
	case "campaign":
		return n.raw.Campaign()
	case "propose":
		return n.raw.Propose(q.Data)
	case "change":
		return n.raw.ProposeConfChange(change(q))
	case "apply":
		a.Conf = written(n.raw.ApplyConfChange(change(q)))
	case "transfer":
		n.raw.TransferLeader(q.Number)
	case "read":
		n.raw.ReadIndex(q.Data)
	case "unreachable":
		n.raw.ReportUnreachable(q.Number)
	case "snapshot":
		n.raw.ReportSnapshot(q.Number, map[bool]raft.SnapshotStatus{true: raft.SnapshotFinish, false: raft.SnapshotFailure}[q.Yes])
	case "step":
		return n.raw.Step(read(q.Data, &pb.Message{}))
	case "ready":
		n.ready(a)
	case "advance":
		n.raw.Advance(raft.Ready{})
	case "save":
		return n.save(q)
	case "compact":
		return n.compact(q)
	case "stored":
		return n.stored(a)
	default:
		return fmt.Errorf("asked to %q, which is nothing", q.Op)
	}
	return nil
}

// restart starts the node from what is stored, as after a crash.
func (n *node) restart() error {
	s, err := n.storage.Snapshot()
	if err != nil {
		return err
	}
	n.config.Applied = s.GetMetadata().GetIndex()
	n.raw, err = raft.NewRawNode(&n.config)
	return err
}

// setElectionTimeout sets by name the field for which the library has a function only in a test of its own
// package.
func (n *node) setElectionTimeout(ticks uint64) {
	timeout := reflect.ValueOf(n.raw).Elem().FieldByName("raft").Elem().FieldByName("randomizedElectionTimeout")
	reflect.NewAt(timeout.Type(), unsafe.Pointer(timeout.UnsafeAddr())).Elem().SetInt(int64(ticks))
}

func change(q *Request) pb.ConfChangeI {
	if q.Yes {
		return read(q.Data, &pb.ConfChange{})
	}
	return read(q.Data, &pb.ConfChangeV2{})
}

func (n *node) ready(a *Answer) {
	rd := n.raw.Ready()
	a.Hard, a.Snapshot = written(rd.HardState), written(rd.Snapshot)
	a.Entries, a.Committed = writtenEntries(rd.Entries), writtenEntries(rd.CommittedEntries)
	for _, m := range rd.Messages {
		a.Packets = append(a.Packets, packet(m))
	}
	for _, r := range rd.ReadStates {
		a.Reads = append(a.Reads, Read{Index: r.Index, Context: r.RequestCtx})
	}
}

func packet(m *pb.Message) (p Packet) {
	for _, response := range m.GetResponses() {
		p.Responses = append(p.Responses, packet(response))
	}
	m.Responses = nil
	p.Wire = written(m)
	return p
}

func (n *node) save(q *Request) error {
	if hard := read(q.Hard, &pb.HardState{}); !raft.IsEmptyHardState(hard) {
		if err := n.storage.SetHardState(hard); err != nil {
			return err
		}
	}
	if snapshot := read(q.Snapshot, &pb.Snapshot{}); !raft.IsEmptySnap(snapshot) {
		if err := n.storage.ApplySnapshot(snapshot); err != nil {
			return err
		}
	}
	entries := make([]*pb.Entry, len(q.Entries))
	for i := range entries {
		entries[i] = read(q.Entries[i], &pb.Entry{})
	}
	return n.storage.Append(entries)
}

func (n *node) compact(q *Request) error {
	s := read(q.Snapshot, &pb.Snapshot{})
	if _, err := n.storage.CreateSnapshot(s.GetMetadata().GetIndex(), s.GetMetadata().GetConfState(), s.GetData()); err != nil {
		return err
	}
	return n.storage.Compact(q.Number)
}

func (n *node) stored(a *Answer) error {
	hard, _, err := n.storage.InitialState()
	if err != nil {
		return err
	}
	snapshot, err := n.storage.Snapshot()
	if err != nil {
		return err
	}
	a.Hard, a.Snapshot = written(hard), written(snapshot)
	if a.First, err = n.storage.FirstIndex(); err != nil {
		return err
	}
	last, err := n.storage.LastIndex()
	if err != nil || last < a.First {
		return err
	}
	entries, err := n.storage.Entries(a.First, last+1, 1<<62)
	a.Entries = writtenEntries(entries)
	return err
}

func writtenEntries(entries []*pb.Entry) (all [][]byte) {
	for _, e := range entries {
		all = append(all, written(e))
	}
	return all
}

// written and read translate through protocol buffers, which cannot fail for valid values.
func written(m proto.Message) []byte {
	wire, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return wire
}

func read[M proto.Message](wire []byte, m M) M {
	if err := proto.Unmarshal(wire, m); err != nil {
		panic(err)
	}
	return m
}
