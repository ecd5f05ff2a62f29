package conformance

import (
	"bufio"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	theirraft "go.etcd.io/raft/v3"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// etcd-io/raft v3.7.0 has v3.6.0's module path, so it runs in a process of its own, a child.
// etcdraft37/main.go is the child's program and describes its protocol. One child serves all clusters, one
// after the other.

// Request, Settings, Answer, Packet and Read are the child's types, field by field.
type (
	Request struct {
		Node     uint64
		Op       string
		Settings Settings
		Number   uint64
		Yes      bool
		Data     []byte
		Hard     []byte
		Entries  [][]byte
		Snapshot []byte
	}
	Settings struct {
		Async, PreVote, CheckQuorum, StepDownOnRemoval, DisableForwarding         bool
		ElectionTicks, MaxInflightMsgs                                            int
		MaxInflightBytes, MaxSizePerMsg, MaxCommittedPerReady, MaxUncommittedSize uint64
	}
	Answer struct {
		Error, Kind string

		Term, Vote, Commit, Lead, Applied uint64
		Role                              string
		Ready                             bool

		Hard      []byte
		Entries   [][]byte
		Snapshot  []byte
		Committed [][]byte
		Packets   []Packet
		Reads     []Read
		First     uint64
		Conf      []byte
	}
	Packet struct {
		Wire      []byte
		Responses []Packet
	}
	Read struct {
		Index   uint64
		Context []byte
	}
)

// child is the process.
type child struct {
	process *exec.Cmd
	input   io.Closer
	out     *bufio.Writer
	ask     *gob.Encoder
	answers *gob.Decoder
}

var running struct {
	dir   string
	child *child
}

// startChild37 builds and starts the child, once; TestMain ends it.
var startChild37 = sync.OnceValues(func() (*child, error) {
	dir, err := os.MkdirTemp("", "millrace-conformance-")
	if err != nil {
		return nil, err
	}
	running.dir = dir
	program := filepath.Join(dir, "etcdraft37")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "etcdraft37"
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build etcdraft37: %w\n%s", err, out)
	}
	c := &child{process: exec.Command(program)}
	c.process.Stderr = os.Stderr
	in, err := c.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.input, c.out = in, bufio.NewWriter(in)
	c.ask, c.answers = gob.NewEncoder(c.out), gob.NewDecoder(bufio.NewReader(out))
	running.child = c
	return c, c.process.Start()
})

// stopChild37 ends the process by ending its input.
func stopChild37() error {
	if running.dir != "" {
		defer os.RemoveAll(running.dir)
	}
	if running.child == nil {
		return nil
	}
	running.child.input.Close()
	return running.child.process.Wait()
}

func (c *child) request(q Request) (a Answer, err error) {
	if err = c.ask.Encode(q); err == nil {
		err = c.out.Flush()
	}
	if err == nil {
		err = c.answers.Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("etcdraft37, asked to %s: %w", q.Op, err)
	}
	return a, nil
}

// core37 is etcd-io/raft v3.7.0. The state of the node in the child's last answer is still true: only
// requests change it.
type core37 struct {
	child *child
	id    uint64
	last  Answer
}

func newCore37(c *child) func(settings) core {
	return func(s settings) core {
		n := &core37{child: c, id: s.id}
		n.ask(Request{Op: "new", Settings: Settings{
			Async:                s.async,
			PreVote:              s.preVote,
			CheckQuorum:          s.checkQuorum,
			StepDownOnRemoval:    s.stepDownOnRemoval,
			DisableForwarding:    s.disableForwarding,
			ElectionTicks:        s.electionTicks,
			MaxInflightMsgs:      s.maxInflightMsgs,
			MaxInflightBytes:     s.maxInflightBytes,
			MaxSizePerMsg:        s.maxSizePerMsg,
			MaxCommittedPerReady: s.maxCommittedSizePerReady,
			MaxUncommittedSize:   s.maxUncommittedEntriesSize,
		}})
		return n
	}
}

// ask panics where the library panicked, and if the child is gone.
func (c *core37) ask(q Request) Answer {
	q.Node = c.id
	c.last = must(c.child.request(q))
	if c.last.Kind == "panic" {
		panic("v3.7.0 panics: " + c.last.Error)
	}
	return c.last
}

// try returns the error that the node returned, as v3.6.0 calls it.
func (c *core37) try(q Request) error {
	switch a := c.ask(q); a.Kind {
	case "":
		return nil
	case "dropped":
		return theirraft.ErrProposalDropped
	case "not found":
		return theirraft.ErrStepPeerNotFound
	default:
		return fmt.Errorf("v3.7.0: %s", a.Error)
	}
}

func (c *core37) restart() error { return c.try(Request{Op: "restart"}) }
func (c *core37) tick(electionTimeout int) {
	c.ask(Request{Op: "tick", Number: uint64(electionTimeout)})
}
func (c *core37) campaign() error             { return c.try(Request{Op: "campaign"}) }
func (c *core37) propose(data []byte) error   { return c.try(Request{Op: "propose", Data: data}) }
func (c *core37) transfer(to uint64) error    { return c.try(Request{Op: "transfer", Number: to}) }
func (c *core37) readIndex(ctx []byte) error  { return c.try(Request{Op: "read", Data: ctx}) }
func (c *core37) reportUnreachable(id uint64) { c.ask(Request{Op: "unreachable", Number: id}) }
func (c *core37) reportSnapshot(id uint64, a bool) {
	c.ask(Request{Op: "snapshot", Number: id, Yes: a})
}
func (c *core37) step(wire []byte) error { return c.try(Request{Op: "step", Data: wire}) }
func (c *core37) advance()               { c.ask(Request{Op: "advance"}) }

func (c *core37) proposeChange(cc raftpb.ConfChangeI) error {
	return c.try(changeRequest("change", cc))
}

func (c *core37) applyChange(cc raftpb.ConfChangeI) (conf raftpb.ConfState) {
	check(conf.Unmarshal(c.ask(changeRequest("apply", cc)).Conf))
	return conf
}

// changeRequest keeps the form, old or new, in which a change was written.
func changeRequest(op string, cc raftpb.ConfChangeI) Request {
	if v1, ok := cc.AsV1(); ok {
		return Request{Op: op, Yes: true, Data: must(v1.Marshal())}
	}
	v2 := cc.AsV2()
	return Request{Op: op, Data: must(v2.Marshal())}
}

func (c *core37) ready() (turn, bool) {
	if !c.last.Ready {
		return turn{}, false
	}
	a := c.ask(Request{Op: "ready"})
	t := turn{entries: entriesOf(a.Entries), committed: entriesOf(a.Committed)}
	check(t.hard.Unmarshal(a.Hard))
	check(t.snapshot.Unmarshal(a.Snapshot))
	for _, p := range a.Packets {
		t.packets = append(t.packets, packetOf(p))
	}
	for _, r := range a.Reads {
		t.reads = append(t.reads, raft.ReadState{Index: r.Index, RequestCtx: r.Context})
	}
	return t, true
}

func packetOf(from Packet) packet {
	p := packet{wire: from.Wire}
	for _, response := range from.Responses {
		p.responses = append(p.responses, packetOf(response))
	}
	check(p.Unmarshal(p.wire))
	return p
}

func entriesOf(wires [][]byte) []raftpb.Entry {
	entries := make([]raftpb.Entry, len(wires))
	for i := range wires {
		check(entries[i].Unmarshal(wires[i]))
	}
	return entries
}

func (c *core37) state() state {
	a := &c.last
	return state{HardState: raftpb.HardState{Term: a.Term, Vote: a.Vote, Commit: a.Commit}, lead: a.Lead, role: a.Role, applied: a.Applied}
}

func (c *core37) save(hard raftpb.HardState, entries []raftpb.Entry, snapshot raftpb.Snapshot) error {
	q := Request{Op: "save"}
	if !raft.IsEmptyHardState(hard) {
		q.Hard = must(hard.Marshal())
	}
	if !raft.IsEmptySnap(snapshot) {
		q.Snapshot = must(snapshot.Marshal())
	}
	for i := range entries {
		q.Entries = append(q.Entries, must(entries[i].Marshal()))
	}
	return c.try(q)
}

func (c *core37) compact(through uint64, s raftpb.Snapshot) error {
	return c.try(Request{Op: "compact", Number: through, Snapshot: must(s.Marshal())})
}

func (c *core37) stored() stored {
	a := c.ask(Request{Op: "stored"})
	s := stored{first: a.First, entries: entriesOf(a.Entries)}
	check(s.hard.Unmarshal(a.Hard))
	check(s.snapshot.Unmarshal(a.Snapshot))
	return s
}

// TestChildAnswersAPanic checks that a panic of the library is reported, and ends neither the child nor the
// tests.
func TestChildAnswersAPanic(t *testing.T) {
	c, err := startChild37()
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 4711
	a, err := c.request(Request{Op: "tick", Node: nobody})
	if err != nil || a.Kind != "panic" {
		t.Errorf("have %q (%v), want a panic of a node that was not made", a.Kind, err)
	}
	n := newCore37(c)(settings{id: 1, electionTicks: 10, maxInflightMsgs: 1})
	if err := n.restart(); err != nil || n.state().role != "StateFollower" {
		t.Errorf("have %q (%v), want a follower", n.state().role, err)
	}
}
