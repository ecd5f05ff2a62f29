package raft

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A follower's disk hangs. After every heartbeat its leader asks for its position, and each answer would be a
// write that waits for the disk; one such answer waits already. When the disk works again and that answer is
// lost, the leader gets another one.
func TestFollowerWithAHungDiskQueuesNoAnswersTwice(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	app := raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: logOfTerms(1, 1, 1)}
	var hung []raftpb.Message
	step := func(m raftpb.Message) (writes int) {
		t.Helper()
		must(t, rn.Step(m))
		for rn.HasReady() {
			for _, m := range rn.Ready().Messages {
				if m.To == LocalAppendThread {
					hung, writes = append(hung, m), writes+1
				}
			}
		}
		return writes
	}
	step(app)
	empty := raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Index: 3, LogTerm: 1}
	for range 10 {
		if n := step(empty); n > 0 {
			t.Fatalf("an append that says nothing new makes %d writes", n)
		}
		if n := step(app); n > 0 {
			t.Fatalf("a duplicate makes %d writes", n)
		}
	}
	empty.Commit = 2
	for _, want := range []int{1, 0} {
		if n := step(empty); n != want {
			t.Errorf("a commit index makes %d writes, want %d, and none the second time", n, want)
		}
	}
	stale := raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Index: 1, LogTerm: 1, Commit: 2}
	if n := step(stale); n > 0 {
		t.Errorf("a stale append makes %d writes", n)
	}
	if n := step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Index: 3, LogTerm: 1, Entries: []raftpb.Entry{{Term: 1, Index: 4}}}); n != 1 {
		t.Errorf("another entry makes %d writes, want 1", n)
	}
	if n := step(raftpb.Message{Type: raftpb.MsgApp, From: 3, Term: 2, Index: 4, LogTerm: 1}); n != 1 {
		t.Errorf("the question of another leader makes %d writes, want 1", n)
	}
	for _, m := range hung {
		write(s, m)
		for _, answer := range m.Responses {
			if answer.To == 1 {
				must(t, rn.Step(answer))
			}
		}
	}
	hung = nil
	if n := step(raftpb.Message{Type: raftpb.MsgApp, From: 3, Term: 2, Index: 4, LogTerm: 1}); n != 1 || len(hung[0].Responses) != 1 || hung[0].Responses[0].Index != 4 {
		t.Errorf("after the disk has worked, the leader is answered by %d writes %v, want one that says 4", n, hung)
	}
}
