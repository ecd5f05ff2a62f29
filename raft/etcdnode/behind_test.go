package etcdnode

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A consumer that has stopped receiving must not make the node hold input without limit, nor block the sender
// of the input.
func TestAConsumerThatFallsBehindCostsABoundedAmount(t *testing.T) {
	a := lead(t, nil)
	big := make([]byte, MaxBacklogBytes/16)
	for a.Propose(t.Context(), big) == nil {
	}
	if got := a.Status().LastIndex; got > 20 {
		t.Errorf("the log reaches to %d with entries of %d bytes; the bound is %d", got, len(big), MaxBacklogBytes)
	}
	err := a.Propose(t.Context(), []byte("x"))
	wantErr(t, "a proposal, surely", err, raft.ErrProposalDropped)
	wantErr(t, "and why", err, ErrBehind)
	wantErr(t, "a message", a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgVote, From: 2, Term: 9}), ErrBehind)
	a.ReportUnreachable(2)
	a.ReportSnapshot(2, raft.SnapshotFailure)
	for range 1000 {
		a.Tick()
	}
	if behind := a.Status(); behind.Commit != 2 || a.ticks.owed != 2*electionTicks {
		t.Errorf("while it is behind, %d ticks are owed, want %d; %+v", a.ticks.owed, 2*electionTicks, behind.BasicStatus)
	}
	a.drain()
	if a.ticks.owed != 0 {
		t.Errorf("when the consumer has caught up %d ticks are owed", a.ticks.owed)
	}
	if err := a.Propose(t.Context(), []byte("later")); err != nil {
		t.Errorf("when the consumer has caught up: %v", err)
	}
	a.drain()
	if got := a.applied[len(a.applied)-1]; got != "later" {
		t.Errorf("the last command applied has %d bytes", len(got))
	}
}

// Messages of peers are refused; the answers of the node's own workers are accepted, because they come only
// once.
func TestTheWorkersOfANodeThatIsBehindAreHeard(t *testing.T) {
	w := &workers{app: found(t, 1, 2, func(c *raft.Config) { c.AsyncStorageWrites = true })}
	w.drain(t)
	entries := []raftpb.Entry{{Term: 5, Index: 3, Data: []byte("x")}}
	if err := w.Step(t.Context(), raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Term: 5, Index: 2, LogTerm: 1, Commit: 2, Entries: entries}); err != nil {
		t.Fatal(err)
	}
	rd, _ := w.poll()
	heard := 0
	for ; heard <= MaxBacklogBytes/inputBytes; heard++ {
		if err := w.Step(t.Context(), raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 5}); err != nil {
			wantErr(t, "a heartbeat", err, ErrBehind)
			break
		}
	}
	if heard == 0 || heard > MaxBacklogBytes/inputBytes {
		t.Errorf("%d heartbeats were accepted while no Ready was asked for", heard)
	}
	w.handle(t, rd)
	if s := w.Status(); s.Durable != 3 {
		t.Errorf("after the append worker's answer %d is durable, want 3", s.Durable)
	}
}

// Time that has passed comes before the input: this leader has not heard its quorum for two election
// timeouts, and must not accept a read before it knows that.
func TestOwedTicksRunBeforeTheNextInput(t *testing.T) {
	a := lead(t, func(c *raft.Config) { c.CheckQuorum = true })
	_ = a.ProposeConfChange(t.Context(), raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: 2})
	a.drain()
	for a.Propose(t.Context(), make([]byte, MaxBacklogBytes/4)) == nil {
	}
	for range 2 * electionTicks {
		a.Tick()
	}
	if s := a.Status(); s.RaftState != raft.StateLeader {
		t.Fatalf("ticks were run while the consumer was behind: %+v", s.BasicStatus)
	}
	rd, _ := a.poll()
	a.handle(rd) // its Advance builds the next Ready, and so frees space
	wantErr(t, "a read", a.ReadIndex(t.Context(), []byte("r")), raft.ErrReadDropped)
}

// A node that has nothing to report is not behind, however long that lasts: the consumer has asked, and has
// received everything. This is the idle leader of a group of one.
func TestAnIdleLeaderIsNotBehind(t *testing.T) {
	a := lead(t, nil)
	a.idle(t)
	if err := a.Propose(t.Context(), []byte("x")); err != nil {
		t.Errorf("a proposal after %d quiet ticks: %v", MaxBacklogBytes/inputBytes, err)
	}
}

// The same for a node that waits to become a member: it hears the first message of its leader, even after
// much refused input.
func TestANodeThatWaitsToJoinIsNotBehind(t *testing.T) {
	a := &app{storage: raft.NewMemoryStorage(), send: func(raftpb.Message) {}}
	local, err := Restart(testConfig(4, a.storage))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Stop)
	a.Local = local
	for range 20 {
		big := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 4, Entries: []raftpb.Entry{{Data: make([]byte, MaxBacklogBytes/16)}}}
		var refused *raft.PeerError
		if err := a.Step(t.Context(), big); !errors.As(err, &refused) {
			t.Fatalf("a message without a term: %v", err)
		}
		a.drain()
	}
	a.idle(t)
	if err := a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 4, Term: 3}); err != nil {
		t.Errorf("the first word of its leader: %v", err)
	}
}

// idle runs as many ticks as a consumer that is behind would be allowed, with a consumer that keeps up.
func (a *app) idle(t *testing.T) {
	for range MaxBacklogBytes / inputBytes {
		a.Tick()
		a.drain()
	}
	if s := a.Status(); s.Term > 2 {
		t.Fatalf("it is not idle: %+v", s.BasicStatus)
	}
}
