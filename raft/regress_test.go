package raft

import (
	"errors"
	"math"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// One test for each bug that the review and the histories of this package found in the core, in the smallest
// form that shows it. Each test failed before its bug was fixed.

// newTestNode starts node id of a cluster of voters, from a log whose entries have the given terms.
func newTestNode(t testing.TB, id uint64, voters []uint64, hs raftpb.HardState, terms []uint64, change ...func(*Config)) (*RawNode, *MemoryStorage) {
	t.Helper()
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: voters})
	must(t, s.SetHardState(hs))
	must(t, s.Append(logOfTerms(terms...)))
	return newTestNodeOn(t, id, s, change...), s
}

func newTestNodeOn(t testing.TB, id uint64, s Storage, change ...func(*Config)) *RawNode {
	t.Helper()
	c := testConfig(id, s)
	for _, f := range change {
		f(&c)
	}
	rn, err := NewRawNode(&c)
	must(t, err)
	return rn
}

func testConfig(id uint64, s Storage) Config {
	return Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Seed: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, AsyncStorageWrites: true,
	}
}

func synchronous(c *Config) { c.AsyncStorageWrites = false }

func logOfTerms(terms ...uint64) []raftpb.Entry {
	entries := make([]raftpb.Entry, len(terms))
	for i, term := range terms {
		entries[i] = raftpb.Entry{Term: term, Index: uint64(i) + 1}
	}
	return entries
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// elect makes rn, one of three voters, leader with the vote of node 2, and returns the messages to peers that
// followed.
func elect(t testing.TB, rn *RawNode, s *MemoryStorage) []raftpb.Message {
	t.Helper()
	must(t, rn.Campaign())
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: 2, To: rn.raft.id, Term: rn.raft.term}))
	sent := work(t, rn, s)
	if rn.raft.role != StateLeader {
		t.Fatalf("node %d is %v, want leader", rn.raft.id, rn.raft.role)
	}
	return sent
}

// work does everything that a node wants done, in either mode, until it wants nothing, and returns what it
// sent to peers.
func work(t testing.TB, rn *RawNode, s *MemoryStorage) []raftpb.Message {
	t.Helper()
	var sent []raftpb.Message
	for rn.HasReady() {
		rd := rn.Ready()
		if !rn.async {
			save(t, s, rd.HardState, rd.Entries)
			sent = append(sent, rd.Messages...)
			rn.Advance(rd)
			continue
		}
		for _, m := range rd.Messages {
			if !IsLocalMsgTarget(m.To) {
				sent = append(sent, m)
				continue
			}
			if m.To == LocalAppendThread {
				if m.Snapshot != nil {
					must(t, s.ApplySnapshot(*m.Snapshot))
				}
				save(t, s, raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}, m.Entries)
			}
			for _, answer := range m.Responses {
				if answer.To == rn.raft.id {
					must(t, rn.Step(answer))
				} else {
					sent = append(sent, answer)
				}
			}
		}
	}
	return sent
}

func save(t testing.TB, s *MemoryStorage, hs raftpb.HardState, entries []raftpb.Entry) {
	t.Helper()
	if !IsEmptyHardState(hs) {
		must(t, s.SetHardState(hs))
	}
	must(t, s.Append(entries))
}

// Between Ready and Advance a new leader's append changed the ackTerm of the unstable log, so the
// acknowledgement of the saved entries was ignored and Advance panicked: applied passed durable.
func TestSyncAdvanceAfterANewLeadersAppend(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, synchronous)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: logOfTerms(1), Commit: 1}))
	rd := rn.Ready()
	if len(rd.Entries) != 1 || len(rd.CommittedEntries) != 1 {
		t.Fatalf("have %d entries, %d committed; want 1 and 1", len(rd.Entries), len(rd.CommittedEntries))
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 3, Term: 2, Index: 1, LogTerm: 1, Entries: []raftpb.Entry{{Term: 2, Index: 2}}, Commit: 1}))
	save(t, s, rd.HardState, rd.Entries)
	rn.Advance(rd)
	if have := rn.BasicStatus(); have.Durable != 1 || have.Applied != 1 {
		t.Fatalf("durable %d, applied %d; want 1 and 1", have.Durable, have.Applied)
	}
	work(t, rn, s)
	if have := rn.BasicStatus(); have.Durable != 2 {
		t.Fatalf("durable %d, want 2", have.Durable)
	}
}

// An entry that was replaced while its write was under way is not durable after Advance, whatever the write
// held.
func TestSyncAdvanceDoesNotVouchForReplacedEntries(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, synchronous)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: logOfTerms(1, 1, 1)}))
	rd := rn.Ready()
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 3, Term: 2, Index: 1, LogTerm: 1, Entries: []raftpb.Entry{{Term: 2, Index: 2}}}))
	save(t, s, rd.HardState, rd.Entries)
	rn.Advance(rd)
	if have := rn.BasicStatus(); have.Durable != 1 || have.LastIndex != 2 {
		t.Fatalf("durable %d of %d, want 1 of 2", have.Durable, have.LastIndex)
	}
	work(t, rn, s)
	if term, err := s.Term(2); err != nil || term != 2 {
		t.Fatalf("stored entry 2 has term %d (%v), want 2", term, err)
	}
}

// A peer with the node's own id (a copied disk, a wrong address book) made it answer itself, which broke an
// invariant.
func TestOwnIDFromThePeersIsRefused(t *testing.T) {
	for _, typ := range []raftpb.MessageType{raftpb.MsgHeartbeat, raftpb.MsgApp, raftpb.MsgHeartbeatResp, raftpb.MsgPreVote, raftpb.MsgVote} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
		elect(t, rn, s)
		wantPeerError(t, rn.Step(raftpb.Message{Type: typ, From: 1, To: 1, Term: 5}))
		rn.Tick()
	}
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, rn, s)
	wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 1, To: 1, Term: 1, Index: 1, Reject: true}))
}

// A message of a protocol type that claims to come from a local worker, or has no sender, was accepted and
// answered.
func TestWorkersSpeakOnlyOfStorage(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	for _, from := range []uint64{None, LocalAppendThread, LocalApplyThread} {
		wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, Term: 5}))
	}
	if err := rn.Step(raftpb.Message{Type: raftpb.MsgHup, From: LocalAppendThread}); !errors.Is(err, ErrStepLocalMsg) {
		t.Fatalf("have %v, want %v", err, ErrStepLocalMsg)
	}
}

// The highest possible term left no space for the next election: the term overflowed, and the node panicked.
func TestTermAtTheEndOfTheWorld(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: math.MaxUint64}))
	// A request for a transfer to this node has its id in From. It passed, and the node was in a term that no
	// node may follow.
	wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgTransferLeader, From: 1, Term: math.MaxUint64}))
	if rn.raft.term != 0 {
		t.Fatalf("have term %d, want 0", rn.raft.term)
	}
	_ = rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: math.MaxUint64 / 2})
	for range 100 {
		rn.Tick()
		work(t, rn, s)
	}
}

// A response of a node that is not a member was refused only by a leader; on a follower it could raise the
// term.
func TestResponseOfAStranger(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	err := rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 9, Term: 7})
	if !errors.Is(err, ErrStepPeerNotFound) || rn.raft.term != 0 {
		t.Fatalf("have %v in term %d, want %v in term 0", err, rn.raft.term, ErrStepPeerNotFound)
	}
}

// The answer to a stale append names no entry. If its receiver was elected, while it was under way, in the
// term that it carries, it counted as an acknowledgement: the leader began to pipeline its whole log,
// starting at entry 1.
func TestAnswerToAStaleAppendIsNoAcknowledgement(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1, 1, 1})
	elect(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 3, Term: 2}))
	if pr := rn.Status().Progress[3]; pr.State != tracker.StateProbe || pr.Next != 4 || !pr.RecentActive {
		t.Fatalf("have %v next=%d, want StateProbe next=4", pr.State, pr.Next)
	}
}

// Applying the entries of an earlier leader freed space that this leader's own uncommitted entries hold.
func TestUncommittedBytesCountOwnEntriesOnly(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	must(t, s.SetHardState(raftpb.HardState{Term: 1}))
	must(t, s.Append([]raftpb.Entry{{Term: 1, Index: 1, Data: make([]byte, 100)}}))
	rn := newTestNodeOn(t, 1, s, func(c *Config) { c.MaxUncommittedEntriesSize = 100 })
	elect(t, rn, s)
	must(t, rn.Propose(make([]byte, 60)))
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 2, Index: 2})) // commits through the noop
	work(t, rn, s)
	if have := rn.BasicStatus().Applied; have != 2 {
		t.Fatalf("applied %d, want 2", have)
	}
	if err := rn.Propose(make([]byte, 60)); !errors.Is(err, ErrProposalDropped) {
		t.Fatalf("60 of 100 bytes are taken; 60 more: have %v, want %v", err, ErrProposalDropped)
	}
}

// A follower that refuses its vote continues to wait for a leader; granting the vote restarts its timer. Once
// every request restarted the timer, so candidates with short logs, as long as they were quicker, kept the
// one that could win from its election (thesis §3.4).
func TestRefusedVoteIsNoReasonToWait(t *testing.T) {
	for _, row := range []struct {
		theirs uint64
		grants bool
	}{{1, false}, {2, true}} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1, 1})
		for range 9 {
			rn.Tick()
		}
		for term := uint64(2); term < 4; term++ {
			must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: term, Term: term, Index: row.theirs, LogTerm: 1}))
			if sent := work(t, rn, s); len(sent) != 1 || sent[0].Reject == row.grants {
				t.Fatalf("want a vote to be given: %t, have %v", row.grants, sent)
			}
		}
		rn.SetElectionTimeout(10)
		if rn.Tick(); (rn.BasicStatus().Term == 4) == row.grants {
			t.Errorf("a vote given: %t, and a tick later it is in term %d", row.grants, rn.BasicStatus().Term)
		}
	}
}

// A group in configuration {1 4} has applied changes that node 1 has not, which still counts by {1 3 5}. Node
// 1 does not inform 4 of its elections, and 4 asked one term late for a vote that was already given, over and
// over; found by the histories with leases. Now the candidate with the longer log, when it is refused, has
// the next turn.
func TestOldConfigurationGivesWay(t *testing.T) {
	for _, row := range []struct {
		theirs raftpb.EntryID
		waits  bool
	}{{raftpb.EntryID{Term: 1, Index: 3}, true}, {raftpb.EntryID{Term: 2, Index: 1}, true}, {raftpb.EntryID{Term: 1, Index: 2}, false}, {raftpb.EntryID{Term: 1, Index: 1}, false}} {
		rn, s := newTestNode(t, 1, []uint64{1, 3, 5}, raftpb.HardState{Term: 1}, []uint64{1, 1})
		must(t, rn.Campaign())
		work(t, rn, s)
		rn.SetElectionTimeout(10)
		for range 9 {
			rn.Tick()
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: 4, Term: 2, Index: row.theirs.Index, LogTerm: row.theirs.Term}))
		if sent := work(t, rn, s); len(sent) != 1 || !sent[0].Reject {
			t.Fatalf("want a refusal, have %v", sent)
		}
		if rn.Tick(); (rn.BasicStatus().Term == 2) != row.waits {
			t.Errorf("after a request by %v it is in term %d, want it to wait: %t", row.theirs, rn.BasicStatus().Term, row.waits)
		}
	}
}

func wantPeerError(t testing.TB, err error) *PeerError {
	t.Helper()
	var refused *PeerError
	if !errors.As(err, &refused) {
		t.Fatalf("have %v, want a PeerError", err)
	}
	return refused
}

// The commit index in a refused vote counts only for a log that has the entry of that term.
func TestCommitIndexOfARefusalIsOfOneEntry(t *testing.T) {
	for _, row := range []struct{ term, commit uint64 }{{2, 0}, {1, 2}} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 2}, []uint64{1, 1})
		must(t, rn.Campaign())
		work(t, rn, s)
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVoteResp, From: 3, Term: 3, Reject: true, Commit: 2, LogTerm: row.term}))
		if have := rn.BasicStatus().Commit; have != row.commit {
			t.Errorf("entry 2 of term %d is committed, says a refusal, and this log has 2@1: committed %d, want %d", row.term, have, row.commit)
		}
	}
}
