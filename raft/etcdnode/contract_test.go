package etcdnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The signatures of etcd-io/raft v3.6.0.
var (
	_ func(*raft.Config, []raft.Peer) Node = StartNode
	_ func(*raft.Config) Node              = RestartNode
)

func TestStartSaysWhatIsWrong(t *testing.T) {
	used := raft.NewMemoryStorage()
	used.SetConfState(raftpb.ConfState{Voters: []uint64{1}})
	for _, c := range []struct {
		what, want string
		start      func() (*Local, error)
	}{
		{"no id", "Config.ID is 0", func() (*Local, error) { return Restart(testConfig(0, used)) }},
		{"no id for a founder", "Config.ID is 0", func() (*Local, error) { return Start(testConfig(0, used), nil) }},
		{"no peers", "without peers", func() (*Local, error) { return Start(testConfig(1, raft.NewMemoryStorage()), nil) }},
		{"not empty", "already holds a configuration", func() (*Local, error) { return Start(testConfig(1, used), []raft.Peer{{ID: 1}}) }},
	} {
		if n, err := c.start(); n != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want an error that says %q", c.what, n, err, c.want)
		}
	}
}

func TestStartNodePanicsWithWhatIsWrong(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "without peers") {
			t.Errorf("StartNode without peers panicked with %v", err)
		}
	}()
	StartNode(testConfig(1, raft.NewMemoryStorage()), nil)
}

func TestAPortedLoopRestartsFromItsStorage(t *testing.T) {
	a := lead(t, nil)
	if err := a.Propose(t.Context(), []byte("before")); err != nil {
		t.Fatal(err)
	}
	a.drain()
	a.Stop()
	a.storage.SetConfState(raftpb.ConfState{Voters: []uint64{1}})

	n := RestartNode(testConfig(1, a.storage))
	b := &app{Local: n.(*Local), storage: a.storage, send: a.send}
	defer b.Stop()
	_ = b.Campaign(t.Context())
	b.drain()
	if !slices.Equal(b.applied, []string{"before"}) {
		t.Errorf("after the restart it applied %q", b.applied)
	}
}

// The consumer has asked, so the first proposal is built into a Ready. Those after it are not, until the
// consumer asks again.
func TestReadyIsBuiltWhenAskedFor(t *testing.T) {
	reads := 0
	a := lead(t, func(c *raft.Config) {
		c.Storage = &watched{Storage: c.Storage, read: func() error { reads++; return nil }}
	})
	for i := range 100 {
		if err := a.Propose(t.Context(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := a.poll()
	if len(first.Entries) != 1 {
		t.Errorf("the Ready that was asked for before the first proposal has %d entries, want 1", len(first.Entries))
	}
	a.handle(first)
	before := reads
	for range electionTicks / 2 {
		a.Tick()
		a.Status()
	}
	if reads != before {
		t.Errorf("while a Ready waits in the channel, %d inputs read storage %d times", electionTicks, reads-before)
	}
	second, _ := a.poll()
	if len(second.Entries) != 99 {
		t.Errorf("the next Ready has %d entries, want the other 99", len(second.Entries))
	}
	a.handle(second)
	a.drain()
	if len(a.applied) != 100 {
		t.Errorf("applied %d of 100", len(a.applied))
	}
}

// watched is a Storage whose reads of entries are counted, and may fail or wait.
type watched struct {
	raft.Storage
	read func() error
}

func (w *watched) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	if err := w.read(); err != nil {
		return nil, err
	}
	return w.Storage.Entries(lo, hi, maxSize)
}

func TestAKeptChannelIsServedByAdvance(t *testing.T) {
	a := lead(t, nil)
	kept := a.Ready()
	for i := range 3 {
		if err := a.Propose(t.Context(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		for len(kept) > 0 {
			a.handle(<-kept)
		}
	}
	if !slices.Equal(a.applied, []string{"0", "1", "2"}) {
		t.Errorf("applied %q", a.applied)
	}
}

// An Advance before the Ready was received would call entries durable that were never written.
func TestAdvanceWithoutAReadyIsIgnored(t *testing.T) {
	var log listener
	a := lead(t, func(c *raft.Config) { c.Logger = &log })
	a.Advance()
	if err := a.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	a.Advance() // the Ready with x is still in the channel
	if s := a.Status(); s.Durable == s.LastIndex || s.Commit == s.LastIndex {
		t.Errorf("nothing was written, and the status says %+v", s.BasicStatus)
	}
	if heard := log.heard(); len(heard) != 2 || !strings.Contains(heard[0], "Advance") {
		t.Errorf("two calls of Advance too many; the logger heard %q", heard)
	}
	a.drain()
	if !slices.Equal(a.applied, []string{"x"}) {
		t.Errorf("applied %q", a.applied)
	}
}

func TestProposeConfChangeSaysWhyItIsRefused(t *testing.T) {
	a := lead(t, nil)
	add := func(id uint64) error {
		return a.ProposeConfChange(t.Context(), raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode, NodeID: id})
	}
	if err := add(2); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a second change before the first is applied", add(3), raft.ErrConfChangeRefused)
	a.drain()
	if err := add(3); err != nil {
		t.Errorf("a change after the first is applied: %v", err)
	}
	a.drain()
	if got := len(a.Status().Config.Learners); got != 2 {
		t.Errorf("%d learners, want 2", got)
	}
}

// A forwarded proposal must not block the reader of its connection.
func TestStepDoesNotWaitForALeader(t *testing.T) {
	a := found(t, 1, 3, nil)
	err := a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgProp, From: 2, To: 1, Entries: []raftpb.Entry{{Data: []byte("x")}}})
	wantErr(t, "a proposal passed on to a node without a leader", err, raft.ErrProposalDropped)
}

func TestStepSaysWhatTheCoreRefuses(t *testing.T) {
	a := lead(t, nil)
	wantErr(t, "a local message", a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgHup, From: 2}), raft.ErrStepLocalMsg)
	wantErr(t, "an answer of a stranger", a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgAppResp, From: 9, Term: 2}), raft.ErrStepPeerNotFound)
	wantErr(t, "a transfer to no member", a.TransferLeader(t.Context(), 9), raft.ErrTransferRefused)
	a.TransferLeadership(t.Context(), 1, 9)
	if s := a.Status(); s.LeadTransferee != raft.None || s.RaftState != raft.StateLeader {
		t.Errorf("after a transfer to no member: %+v", s.BasicStatus)
	}
}

func TestAContextThatHasEndedBeginsNothing(t *testing.T) {
	a := lead(t, nil)
	before := a.Status().BasicStatus
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range calls(a.Local) {
		wantErr(t, what, call(ctx), context.Canceled)
	}
	if after := a.Status().BasicStatus; after != before {
		t.Errorf("the node moved from %+v to %+v", before, after)
	}
}

// calls are the methods that return an error.
func calls(n *Local) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Campaign":          n.Campaign,
		"ForgetLeader":      n.ForgetLeader,
		"Propose":           func(ctx context.Context) error { return n.Propose(ctx, []byte("x")) },
		"ProposeConfChange": func(ctx context.Context) error { return n.ProposeConfChange(ctx, raftpb.ConfChangeV2{}) },
		"ReadIndex":         func(ctx context.Context) error { return n.ReadIndex(ctx, []byte("x")) },
		"Step": func(ctx context.Context) error {
			return n.Step(ctx, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 9})
		},
		"TransferLeader": func(ctx context.Context) error { return n.TransferLeader(ctx, 2) },
	}
}

func TestReadIndexIsAnsweredInAReady(t *testing.T) {
	a := lead(t, nil)
	if err := a.ReadIndex(t.Context(), []byte("r")); err != nil {
		t.Fatal(err)
	}
	rd, _ := a.poll()
	if len(rd.ReadStates) != 1 || string(rd.ReadStates[0].RequestCtx) != "r" {
		t.Errorf("the Ready after a read: %+v", rd)
	}
}
