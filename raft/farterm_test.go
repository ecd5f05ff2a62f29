package raft

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// claimsOfTerms are the messages that make a node enter the term of their sender.
func claimsOfTerms(from uint64, term uint64) (all []raftpb.Message) {
	for _, kind := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgAppResp, raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgTimeoutNow} {
		all = append(all, raftpb.Message{Type: kind, From: from, To: 1, Term: term})
	}
	return append(all, raftpb.Message{Type: raftpb.MsgPreVoteResp, From: from, To: 1, Term: term, Reject: true})
}

// One peer named the highest term that is allowed. All entered it, and no election could follow for good.
func TestFarTermNeedsTwoPeers(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 5}, nil)
	for range 3 { // however often
		for _, m := range claimsOfTerms(2, maxTerm) {
			wantPeerError(t, rn.Step(m))
		}
	}
	const step = 5 + maxTermJump/2
	elect(t, rn, s)
	if rn.raft.term != step+1 {
		t.Fatalf("have term %d, want %d", rn.raft.term, uint64(step+1))
	}
	// A node that was away while the term was driven up hears of it from two.
	const far = 6 + 3*maxTermJump
	wantPeerError(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: far}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgPreVoteResp, From: 3, To: 1, Term: far, Reject: true}))
	if rn.raft.term != far {
		t.Fatalf("have term %d, want %d", rn.raft.term, uint64(far))
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: far + maxTermJump}))
}

// Pre-votes name terms that no node has entered, and a node that hears its leader ignores elections. Neither
// makes a node climb.
func TestPreVotesOfFarTermsChangeNothing(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 5}, nil)
	rn.raft.cfg.checkQuorum = true
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgPreVote, From: 2, To: 1, Term: maxTerm}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgPreVoteResp, From: 2, To: 1, Term: maxTerm}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 3, To: 1, Term: 5}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: 2, To: 1, Term: maxTerm}))
	if r := rn.raft; r.term != 5 || r.lead != 3 {
		t.Fatalf("have term %d and leader %d, want 5 and 3", r.term, r.lead)
	}
}

// A new member hears one leader only. A liar that speaks before the leader is not believed.
func TestFirstTermThatIsFar(t *testing.T) {
	const far = 3 * maxTermJump
	heartbeat := func(from, term uint64) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: 4, Term: term}
	}
	joins, _ := newTestNode(t, 4, nil, raftpb.HardState{}, nil)
	window := joins.raft.farTicks()
	for range window {
		wantPeerError(t, joins.Step(heartbeat(2, far)))
		joins.Tick()
	}
	wantPeerError(t, joins.Step(heartbeat(2, maxTerm)))
	must(t, joins.Step(heartbeat(2, far)))

	misled, _ := newTestNode(t, 4, nil, raftpb.HardState{}, nil)
	for range window - 1 {
		wantPeerError(t, misled.Step(heartbeat(3, maxFirstTerm)))
		misled.Tick()
	}
	must(t, misled.Step(heartbeat(2, 7)))
	misled.TickN(window)
	wantPeerError(t, misled.Step(heartbeat(3, maxFirstTerm)))
	if have := misled.raft.term; have < 7 || have > 7+maxTermJump {
		t.Fatalf("have term %d, want about 7", have)
	}
}

// A liar could drive a node from jump to jump, one with each message, and nothing bounded how many messages
// come in a second.
func TestOnePeerRaisesTermsSlowly(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 5}, nil)
	for windows := uint64(1); windows <= 5; windows++ {
		for range 10 {
			for _, ahead := range []uint64{maxTermJump, 1, maxTermJump / 2, maxTermJump + 1, 1 << 62} {
				for _, m := range claimsOfTerms(2, rn.raft.term+ahead) {
					_ = rn.Step(m)
				}
			}
			work(t, rn, s)
		}
		const elections = 100 // at most, of its own
		if most := elections + windows*maxTermJump; rn.raft.term > most {
			t.Fatalf("have term %d in window %d, want at most %d", rn.raft.term, windows, most)
		}
		rn.TickN(rn.raft.farTicks()) // no other node votes
	}
	if rn.raft.term < 5+5*maxTermJump {
		t.Fatalf("have term %d: the test tests nothing", rn.raft.term)
	}
}

// A liar drove the term of one member more than a jump ahead and had gone, and that member was cut off for
// good: the others did not believe it alone. Seen in TestHostileUnsettles of package host.
func TestFarTermOfOneHonestPeer(t *testing.T) {
	type row struct {
		preVote, checkQuorum, leads bool
		jumps                       int
	}
	for i := range 16 {
		c := row{i&1 > 0, i&2 > 0, i&4 > 0, 2 + 3*(i>>3)}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			w := newTestCluster(3, func(cfg *Config) { cfg.PreVote, cfg.CheckQuorum = c.preVote, c.checkQuorum })
			w.start()
			campaign := func(h *host) {
				must(t, h.input(func(rn *RawNode) error { return rn.Campaign() }))
				w.runIdle(nil)
			}
			first := w.host(1)
			if c.leads {
				first = w.host(3)
			}
			campaign(first)
			w.drive(w.host(3), c.jumps)
			if !w.comesTogether(10 + 4*c.jumps) {
				t.Fatalf("%s; %s; %s", statusLine(w.host(1)), statusLine(w.host(2)), statusLine(w.host(3)))
			}
		})
	}
}

// drive raises the term of a node that hears a liar only, who speaks in the name of host 2.
func (w *testCluster) drive(h *host, jumps int) {
	alone := func(raftpb.Message) bool { return true }
	for range jumps {
		_ = h.input(func(rn *RawNode) error {
			return rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: h.id(), Term: rn.raft.term + maxTermJump})
		})
		w.runIdle(alone)
		for range h.node.raft.farTicks() {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			w.runIdle(alone)
		}
	}
}

// comesTogether reports whether all hosts are in one term and commit within some election timeouts.
func (w *testCluster) comesTogether(timeouts int) bool {
	const last = "the last proposal"
	for range timeouts * w.hosts[0].cfg.ElectionTick {
		for _, h := range w.hosts {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			w.runIdle(nil)
		}
		leader := w.leader()
		if leader == nil {
			continue
		}
		_ = leader.input(func(rn *RawNode) error { return rn.Propose([]byte(last)) })
		if w.runIdle(nil); w.agrees(last) {
			return true
		}
	}
	return false
}
