package raft

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// The nodes that cannot become leader, and the nodes that cannot hand over: the asker is told, and nothing is
// begun.
func TestTransferRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		leads  bool
		target uint64
		want   string
	}{
		{"self", true, 1, "node 1 already leads"},
		{"no node", true, None, "the target is 0"},
		{"no node, asked of a follower", false, None, "the target is 0"},
		{"a stranger", true, 9, "node 9 is not a member"},
		{"a worker", true, LocalAppendThread, "is not a member"},
		{"a learner", true, 4, "node 4 is a learner"},
		{"no leader known", false, 2, "no leader is known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewMemoryStorage()
			s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
			rn := newTestNodeOn(t, 1, s)
			if c.leads {
				elect(t, rn, s)
			}
			err := rn.TransferLeader(c.target)
			if wantError(t, err, c.want); !errors.Is(err, ErrTransferRefused) {
				t.Fatalf("have %v, want %v", err, ErrTransferRefused)
			}
			if sent := work(t, rn, s); len(sent) > 0 || rn.BasicStatus().LeadTransferee != None {
				t.Fatalf("begins a transfer: %v", sent)
			}
		})
	}
}

// A request is forwarded with the target's id as its sender (the wire format has no other field for it), so
// it may carry the leader's own id; and a request from an application has no term.
func TestTransferWishesOfPeers(t *testing.T) {
	for _, c := range []struct {
		name string
		m    raftpb.Message
		want string
		to   uint64
	}{
		{"for the leader itself", raftpb.Message{From: 1, Term: 1}, "already leads", None},
		{"without a term", raftpb.Message{From: 2}, "", 2},
		{"of this term", raftpb.Message{From: 3, Term: 1}, "", 3},
		{"for no node", raftpb.Message{From: None, Term: 1}, "sender id is not the id of a node", None},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
			elect(t, rn, s)
			c.m.Type = raftpb.MsgTransferLeader
			wantError(t, rn.Step(c.m), c.want)
			if to := rn.BasicStatus().LeadTransferee; to != c.to {
				t.Fatalf("hands over to %d, want %d", to, c.to)
			}
		})
	}
}

// A node that may not campaign does not do so on an order either, and a leader's order makes no second leader
// of the leader.
func TestTimeoutNowIsNoOrderToAll(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{2, 3}, Learners: []uint64{1}})
	rn := newTestNodeOn(t, 1, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgTimeoutNow, From: 2, Term: 1}))
	if sent := work(t, rn, s); len(sent) > 0 || rn.BasicStatus().RaftState != StateFollower {
		t.Fatalf("a learner campaigns: %v", sent)
	}
}

// Only the exact text of the order makes nodes that hear the leader vote.
func TestVoteContextOfOthersIsNoTransfer(t *testing.T) {
	for context, heard := range map[string]bool{"": false, "CampaignElection": false, campaignTransfer: true} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.CheckQuorum = true })
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 1}))
		work(t, rn, s)
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: 3, Term: 2, Context: []byte(context)}))
		sent := work(t, rn, s)
		if voted := len(sent) == 1 && strings.HasSuffix(describe(sent[0]), "yes"); voted != heard {
			t.Errorf("context %q: answers %v, want a vote: %t", context, sent, heard)
		}
	}
}
