package raft

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// answers does all work and returns the answers to reads that result from it.
func answers(t *testing.T, rn *RawNode, s *MemoryStorage) (answered, dropped []string) {
	t.Helper()
	rd := rn.Ready()
	for _, read := range rd.ReadStates {
		answered = append(answered, fmt.Sprintf("%s@%d", read.RequestCtx, read.Index))
	}
	for _, context := range rd.DroppedReads {
		dropped = append(dropped, string(context))
	}
	for _, m := range rd.Messages {
		if m.To == LocalAppendThread {
			save(t, s, raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}, m.Entries)
		}
		for _, answer := range m.Responses {
			if answer.To == rn.raft.id {
				must(t, rn.Step(answer))
			}
		}
	}
	return answered, dropped
}

// etcd-io/raft v3.6 never serves a read if one voter is both halves of a joint configuration: such a
// configuration is not a singleton, and there is no other node that could answer.
func TestReadWithOneVoterInBothHalves(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1}, VotersOutgoing: []uint64{1}, Learners: []uint64{2}})
	rn := newTestNodeOn(t, 1, s)
	must(t, rn.Campaign())
	work(t, rn, s)
	must(t, rn.ReadIndex([]byte("r")))
	if have, _ := answers(t, rn, s); len(have) != 1 || have[0] != "r@1" {
		t.Fatalf("have %v, want r@1", have)
	}
}

// In a joint configuration both halves must confirm, and learners do not count.
func TestReadNeedsBothHalves(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}, VotersOutgoing: []uint64{1, 4, 5}, Learners: []uint64{6}})
	rn := newTestNodeOn(t, 1, s)
	must(t, rn.Campaign())
	work(t, rn, s)
	for _, id := range []uint64{2, 4} {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: id, Term: 1}))
	}
	work(t, rn, s)
	for _, id := range []uint64{2, 4} {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: id, Term: 1, Index: 1}))
	}
	work(t, rn, s)
	must(t, rn.ReadIndex([]byte("r")))
	for _, c := range []struct {
		from uint64
		want int
	}{{6, 0}, {2, 0}, {3, 0}, {2, 0}, {5, 1}, {4, 0}} {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: c.from, Term: 1, Context: []byte{1, 0, 0, 0, 0, 0, 0, 0}}))
		if have, _ := answers(t, rn, s); len(have) != c.want {
			t.Fatalf("after the answer of %d: have %v, want %d", c.from, have, c.want)
		}
	}
}

// Positions tell equal contexts apart (etcd issue 20418): an answer to the first read's heartbeat does not
// release the second read.
func TestReadsOfEqualContext(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 1}))
	must(t, rn.ReadIndex([]byte("r")))
	must(t, rn.ReadIndex([]byte("r")))
	echo := func(n byte) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 1, Context: []byte{n, 0, 0, 0, 0, 0, 0, 0}}
	}
	for _, n := range []byte{1, 1, 2} {
		must(t, rn.Step(echo(n)))
		answered, _ := answers(t, rn, s)
		if first := rn.raft.leader.reads.released; first != uint64(n) {
			t.Fatalf("echo %d releases through %d: %v", n, first, answered)
		}
	}
}

// An answer to a heartbeat of an earlier term, in which the same node led, confirms no read: another leader
// may have come between the two terms.
func TestEchoOfAnEarlierTermConfirmsNothing(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	commit := func(term uint64) {
		t.Helper()
		elect(t, rn, s)
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: term, Index: rn.raft.log.lastIndex()}))
		must(t, rn.ReadIndex([]byte("r")))
	}
	commit(1)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 3, Term: 2}))
	answers(t, rn, s)
	commit(3)
	echo := raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 1, Context: []byte{1, 0, 0, 0, 0, 0, 0, 0}}
	must(t, rn.Step(echo))
	if answered, _ := answers(t, rn, s); len(answered) > 0 {
		t.Errorf("an answer of term 1 confirms %v in term 3", answered)
	}
	echo.Term = 3
	must(t, rn.Step(echo))
	if answered, _ := answers(t, rn, s); len(answered) != 1 {
		t.Errorf("an answer of term 3 confirms %v, want one read", answered)
	}
}

// The number of waiting reads is bounded. The asker of one more read is told, here or elsewhere, and stepping
// down reports all others.
func TestReadsAreBounded(t *testing.T) {
	for _, committed := range []bool{false, true} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
		elect(t, rn, s)
		if committed {
			must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 1}))
		}
		for range maxReads {
			must(t, rn.ReadIndex([]byte("r")))
		}
		answers(t, rn, s)
		if err := rn.ReadIndex([]byte("r")); !errors.Is(err, ErrReadDropped) {
			t.Fatalf("have %v, want %v", err, ErrReadDropped)
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgReadIndex, From: 3, Entries: []raftpb.Entry{{Data: []byte("x")}}}))
		if out := rn.raft.out.now.waiting; len(out) != 1 || describe(out[0]) != "1→3 MsgReadIndexResp term 1 x: no" {
			t.Fatalf("answers %v", out)
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 3, Term: 2}))
		if _, dropped := answers(t, rn, s); len(dropped) != maxReads {
			t.Fatalf("%d dropped reads were reported, want %d", len(dropped), maxReads)
		}
	}
	rn, _ := newTestNode(t, 1, []uint64{1}, raftpb.HardState{}, nil)
	if err := rn.ReadIndex(make([]byte, maxReadContextBytes+1)); !errors.Is(err, ErrReadDropped) {
		t.Fatalf("a context without bound: have %v, want %v", err, ErrReadDropped)
	}
}

// A leader may be a member by a change that its follower has not applied yet. The follower took its answers
// to reads for those of a node that is not a member, and the reads were lost without notice.
func TestReadAnsweredByALeaderWhoIsNoMemberYet(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 4, Term: 1}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgReadIndexResp, From: 4, Term: 1, Index: 7, Entries: []raftpb.Entry{{Data: []byte("a")}}}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgReadIndexResp, From: 4, Term: 1, Reject: true, Context: []byte("b")}))
	if rd := rn.Ready(); len(rd.ReadStates) != 1 || rd.ReadStates[0].Index != 7 || len(rd.DroppedReads) != 1 {
		t.Errorf("have %s", DescribeReady(rd, nil))
	}
	wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgReadIndexResp, From: 4, Term: 1, Reject: true, Context: make([]byte, maxReadContextBytes+1)}))
}

// The answer to a pulse confirms no read, although it is like the answer to a heartbeat: the pulse may have
// been sent before the read was asked.
func TestPulsesConfirmNoRead(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	rn := newTestNodeOn(t, 1, s)
	must(t, rn.Campaign())
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: 2, Term: 1}))
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 1}))
	work(t, rn, s)
	must(t, rn.ReadIndex([]byte("r")))
	for range 2 {
		must(t, rn.PeerActive(2))
		must(t, rn.PeerActive(3))
		if have, _ := answers(t, rn, s); len(have) > 0 {
			t.Fatalf("have %v, want no answer to a pulse alone", have)
		}
	}
	position := rn.raft.leader.position()
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 1, Context: position}))
	if have, _ := answers(t, rn, s); len(have) != 1 || have[0] != "r@1" {
		t.Fatalf("have %v, want r@1", have)
	}
}

// A node that hands its leadership over, or has ordered an election, may have no lease, and a promise is made
// longer once, by the ticks that its application was behind.
func TestLeasesOfTheApplication(t *testing.T) {
	promises := func(c *Config) { c.CheckQuorum, c.ReadOnlyOption = true, ReadOnlyPromises }
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	rn := newTestNodeOn(t, 1, s, promises)
	if rn.MayLease() {
		t.Error("a follower may have a lease")
	}
	must(t, rn.Campaign())
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: 2, Term: 1}))
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 1, Index: 1}))
	work(t, rn, s)
	if !rn.MayLease() {
		t.Error("a leader may not have a lease")
	}
	must(t, rn.TransferLeader(2))
	if rn.MayLease() {
		t.Error("a leader that hands over may have a lease")
	}
	for range 20 {
		rn.Tick()
		if rn.raft.role == StateLeader && !rn.raft.transferring() && rn.MayLease() {
			t.Error("a leader that has ordered an election may have a lease")
		}
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 2}))
	made := rn.PromisedTicks()
	rn.StretchPromise(7)
	rn.StretchPromise(7)
	if have := rn.PromisedTicks(); made == 0 || have != made+7 {
		t.Errorf("promised for %d ticks, after StretchPromise for %d, want %d", made, have, made+7)
	}
	if err := rn.Campaign(); !errors.Is(err, ErrPromised) {
		t.Errorf("a campaign of a node that has promised not to: %v", err)
	}
}
