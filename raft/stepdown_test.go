package raft

import (
	"math"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A leader that steps down drops its reads, votes at once, and campaigns only after the quiet time. In the
// term of the next leader its timeout is an ordinary one again.
func TestStepDown(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.ElectionTick, c.HeartbeatTick, c.CheckQuorum = 10, 1, true
	})
	elect(t, rn, s)
	must(t, rn.ReadIndex([]byte("read")))
	work(t, rn, s)
	rn.StepDown(100)
	if out := &rn.raft.out; len(out.reads) != 0 || len(out.droppedReads) != 1 || string(out.droppedReads[0]) != "read" {
		t.Errorf("a read that waits: answered %v, dropped %q", out.reads, out.droppedReads)
	}
	work(t, rn, s)
	if st := rn.BasicStatus(); st.RaftState != StateFollower || st.Term != 1 || st.Lead != None {
		t.Fatalf("after StepDown: %+v", st)
	}
	if left := rn.TicksToEvent(); left < 110 || left >= 120 {
		t.Errorf("it campaigns after %d ticks, want 100 and an election timeout", left)
	}
	rn.TickN(50)
	if sent := work(t, rn, s); len(sent) != 0 {
		t.Errorf("in its quiet time it sends %v", sent)
	}
	last := rn.raft.log.lastIndex()
	for _, m := range []raftpb.Message{
		{Type: raftpb.MsgPreVote, From: 2, To: 1, Term: 2, Index: last, LogTerm: 1},
		{Type: raftpb.MsgVote, From: 2, To: 1, Term: 2, Index: last, LogTerm: 1},
	} {
		must(t, rn.Step(m))
		sent := work(t, rn, s)
		if len(sent) != 1 || sent[0].Reject || sent[0].To != 2 {
			t.Errorf("%v is answered with %v, want a vote", m.Type, sent)
		}
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 2}))
	if left := rn.TicksToEvent(); left < 10 || left >= 20 {
		t.Errorf("under the next leader it campaigns after %d ticks, want an election timeout", left)
	}
	rn.StepDown(1000)
	if left := rn.TicksToEvent(); left >= 20 {
		t.Errorf("a follower that is told to step down campaigns after %d ticks", left)
	}
}

// A quiet time without end ends.
func TestStepDownForEver(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(*Config) {})
	for _, quiet := range []int{-1, 0, math.MaxInt / 2} {
		elect(t, rn, s)
		rn.StepDown(quiet)
		if left := rn.TicksToEvent(); left < 10 || left > maxSkippedTicks+20 {
			t.Errorf("StepDown(%d): it campaigns after %d ticks", quiet, left)
		}
	}
}
