package raft

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A leader that removed itself tells nodes that ask for its vote what is committed (learnCommitted). With
// PreVote its refusal carries its own term, which no pre-vote raises. The refusal must therefore count even
// if its term is behind the candidate's; otherwise 2 and 3, a quorum without 1, need the vote of 1 for ever.
func TestRefusalOfAPreVoteFromAnEarlierTerm(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind=%t", behind), func(t *testing.T) {
			w := newGrowingCluster(4, 4, bySnapshot, func(c *Config) {
				c.PreVote, c.CheckQuorum, c.StepDownOnRemoval = true, true, true
			})
			removed, asker := w.host(1), w.host(2)
			must(t, removed.input((*RawNode).Campaign))
			w.runIdle(nil)
			must(t, removed.input(func(rn *RawNode) error {
				return rn.ProposeConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeRemoveNode, NodeID: 1})
			}))
			removal := removed.node.BasicStatus().LastIndex
			must(t, removed.input(func(rn *RawNode) error { return rn.Propose([]byte("only 1 has it")) }))
			w.runIdle(func(m raftpb.Message) bool { // no node hears that the removal is committed
				return m.From == 1 && m.Type == raftpb.MsgApp && (m.Commit >= removal || m.Index >= removal)
			})
			if removed.node.raft.conf.IsVoter(1) || asker.node.raft.log.committed >= removal {
				t.Fatal("want the removal to be in force at 1 only")
			}
			for _, h := range w.hosts {
				for range 12 { // all have waited for a leader
					h.node.TickQuiesced()
				}
			}
			if behind { // 2 holds an election that 1 does not hear of
				must(t, asker.input((*RawNode).Campaign))
				w.runIdle(func(m raftpb.Message) bool { return m.To == 1 || m.From == 1 || m.Type == raftpb.MsgVote && m.To == 4 })
			}
			w.host(4).crash()
			for range 400 {
				for _, h := range w.hosts[:3] {
					_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
				}
				w.runIdle(func(m raftpb.Message) bool { return m.To == 4 })
				if leader := w.leader(); leader != nil {
					return
				}
			}
			t.Errorf("no leader in 400 ticks:\n%s\n%s", statusLine(removed), statusLine(asker))
		})
	}
}
