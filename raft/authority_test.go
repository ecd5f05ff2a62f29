package raft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Histories of nodes that acknowledge before they are durable. In host.disk is what counts; a powerLog is
// behind it, and a power cut leaves what the powerLog has and some of the writes since. The node then
// restarts without authority. The judge demands of these clusters what it demands of all others: nothing that
// was committed is lost.

// powerLog is what a power cut leaves of a disk.
type powerLog struct {
	safe  *MemoryStorage
	since []raftpb.Message // writes that count, and that a power cut may take; the last first
	terms bool             // terms and votes may be lost, too: a damaged disk, and not a power cut
	marks bool             // the node has no authority in its next run
}

// note notes a write that counts. A new term or vote makes everything durable.
func (p *powerLog) note(m raftpb.Message) {
	if p == nil {
		return
	}
	p.since = append(p.since, m)
	if hs := p.safe.hardState; !p.terms && m.Term != 0 && (m.Term != hs.Term || m.Vote != hs.Vote) || m.Snapshot != nil {
		p.flush(len(p.since))
	}
}

// flush makes the first n writes durable.
func (p *powerLog) flush(n int) {
	for _, m := range p.since[:n] {
		write(p.safe, m)
	}
	p.since = slices.Delete(p.since, 0, n)
}

// powers is a history with power cuts.
type powers struct {
	*history
	most  int // hosts that may be without authority at a time
	terms bool
	cuts, regained,
	lost int // writes
	late []raftpb.Message // answers that are under way for long
}

func (w *powers) marked() (n int) {
	for _, h := range w.hosts {
		if h.power.marks {
			n++
		}
	}
	return n
}

func (w *powers) step() {
	h := w.hosts[w.chance.IntN(len(w.hosts))]
	switch kind := w.chance.IntN(400); {
	case kind < 4:
		w.cutPower(h)
	case kind < 12:
		h.power.flush(w.chance.IntN(len(h.power.since) + 1))
	case kind < 40:
		w.regain(h)
	case kind < 60:
		w.delay()
	case kind < 63:
		w.compact(h)
	case kind < 70:
		if n := len(w.late); n > 0 {
			i := w.chance.IntN(n)
			w.send(w.late[i])
			w.late = slices.Delete(w.late, i, i+1)
		}
	case kind < 100:
		if l := w.leader(); l != nil {
			_ = l.input(func(rn *RawNode) error { return rn.Propose(fmt.Append(nil, kind)) })
			l.work()
			w.calm()
		}
	default:
		w.history.step()
	}
}

// compact makes a snapshot of a host's state machine, which is durable with all that is before it.
func (w *powers) compact(h *host) {
	if h.node == nil || h.taken != nil || len(h.appends) > 0 || h.applied > h.disk.last() || len(h.unsynced) > 0 {
		return
	}
	h.compact(h.applied - w.chance.Uint64N(h.applied+1)/2)
	h.power.flush(len(h.power.since))
	h.power.safe = copyStorage(h.disk)
	w.tell("%d has a snapshot through %d", h.id(), h.applied)
}

// delay takes an answer out of the network for some time.
func (w *powers) delay() {
	for i, m := range w.net {
		if m.Type == raftpb.MsgAppResp || m.Type == raftpb.MsgVoteResp {
			w.late = append(w.late, w.drop(i))
			w.tell("delayed: %s", describe(m))
			return
		}
	}
}

func (w *powers) cutPower(h *host) {
	if !h.power.marks && w.marked() >= w.most {
		return
	}
	if h.node != nil {
		h.crash()
	}
	p := h.power
	h.unsynced = nil
	p.marks = true
	kept := w.chance.IntN(len(p.since) + 1)
	w.lost += len(p.since) - kept
	p.flush(kept)
	p.since = nil
	h.disk = copyStorage(p.safe)
	h.disk.hardState.Commit = min(h.disk.hardState.Commit, h.disk.last())
	if p.terms {
		delete(w.judge.votes, h.id())
		// The host that lost a vote must have met all others before it has authority again, so a request of
		// its earlier life arrives before or not at all (decision 0021).
		w.net = slices.DeleteFunc(w.net, func(m raftpb.Message) bool { return m.From == h.id() && m.Type == raftpb.MsgVote })
	}
	w.cuts++
	w.tell("%d loses its power, and %d of the writes that counted", h.id(), w.lost)
	w.begin(h)
}

// begin starts a host, without authority if it is marked.
func (w *powers) begin(h *host) {
	h.cfg.WithoutAuthority, h.cfg.LacksTerms = h.power.marks, h.power.marks && h.power.terms
	h.cfg.Life = uint64(h.incarnation) + 1
	applied := h.disk.snapshot.Metadata.Index
	if w.chance.IntN(2) == 0 {
		applied = max(applied, min(h.applied, h.disk.hardState.Commit))
	}
	h.restart(0, applied)
}

// regain gives a host authority again, if it may have it. The mark may stay.
func (w *powers) regain(h *host) {
	if h.node == nil || !h.node.MayRegain() {
		return
	}
	_ = h.input(func(rn *RawNode) error { rn.Regain(); return nil })
	w.tell("%d has authority again", h.id())
	w.regained++
	if w.chance.IntN(4) > 0 {
		h.power.flush(len(h.power.since))
		h.power.marks, h.cfg.WithoutAuthority, h.cfg.LacksTerms = false, false, false
	}
}

func runPowers(t *testing.T, nodes, most int, async, terms bool, seed uint64) *powers {
	w := &powers{history: &history{chance: rand.New(rand.NewPCG(seed, 7)), tell: func(string, ...any) {}}, most: most, terms: terms}
	if *theSeed != 0 {
		w.tell = t.Logf
	}
	step := 0
	defer func() {
		if broken := recover(); broken != nil {
			t.Fatalf("seed %d, step %d: %v\n%s", seed, step, broken, debug.Stack())
		}
	}()
	change := anyConfig(w.chance, async)
	w.testCluster = newTestCluster(nodes, func(c *Config) { change(c); c.ApplyUnstable = false })
	for _, h := range w.hosts {
		h.power = &powerLog{safe: copyStorage(h.disk), terms: terms}
	}
	w.start()
	w.newLife = w.begin
	for step = range 3 * *allSteps {
		w.step()
	}
	w.net, w.late, w.cut = append(w.net, w.late...), nil, 0
	if w.marked() > (nodes-1)/2 {
		return w // the group may stand still
	}
	for _, h := range w.hosts {
		if h.node == nil {
			h.recover(len(h.unsynced), 0)
			w.begin(h)
		}
	}
	waits := func(h *host) bool { return h.node.WithoutAuthority() }
	for round := 0; slices.ContainsFunc(w.hosts, waits); round++ {
		if round > 40*w.hosts[0].cfg.ElectionTick {
			t.Fatalf("seed %d: the faults have stopped, and %d of %d nodes have a mark and no authority again", seed, w.marked(), nodes)
		}
		for _, h := range w.hosts {
			_ = h.input(func(rn *RawNode) error { rn.Tick(); return nil })
			w.runIdle(func(m raftpb.Message) bool { w.report(m, SnapshotFinish); return false })
			w.sayReports(len(w.reports))
			w.regain(h)
		}
	}
	if err := w.demandLiveness(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return w
}

// Power cuts take entries that nodes have acknowledged, and damaged disks take terms and votes, too. With
// power cuts of a minority at a time nothing is lost and the cluster continues; with power cuts of any number
// nothing is lost.
func TestPowerCuts(t *testing.T) {
	for _, c := range []struct{ nodes, most int }{{3, 1}, {3, 3}, {5, 2}, {5, 5}} {
		for _, terms := range []bool{false, true} {
			t.Run(fmt.Sprintf("nodes=%d,most=%d,terms=%t", c.nodes, c.most, terms), func(t *testing.T) {
				t.Parallel()
				cuts, regained, lost := 0, 0, 0
				first, last := uint64(1), uint64(*seeds)
				if *theSeed != 0 {
					first, last = *theSeed, *theSeed
				}
				for seed := first; seed <= last; seed++ {
					w := runPowers(t, c.nodes, c.most, seed%2 == 0, terms, seed)
					cuts, regained, lost = cuts+w.cuts, regained+w.regained, lost+w.lost
				}
				if t.Logf("%d power cuts, %d writes lost, %d times authority again", cuts, lost, regained); lost == 0 || regained == 0 {
					t.Error("nothing happened")
				}
			})
		}
	}
}

// Node 1 leads. Node 2, which is cut off from it, asks node 3 for its vote, and gets it late. Meanwhile the
// disk of node 3 is damaged: it has forgotten term and vote, and comes without authority. It must not have
// authority again before node 2, too, says that it follows node 1. Otherwise node 1 commits an entry with the
// help of node 3, and node 2 leads with the vote that node 3 has forgotten, without that entry.
func TestAForgottenVoteNeedsAllWhoMayLead(t *testing.T) {
	w := newTestCluster(3, func(c *Config) { c.PreVote, c.CheckQuorum = false, false })
	w.start()
	leader, other, damaged := w.host(1), w.host(2), w.host(3)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	before := copyStorage(damaged.disk)
	var vote []raftpb.Message
	must(t, other.input((*RawNode).Campaign))
	w.runIdle(func(m raftpb.Message) bool {
		if m.Type == raftpb.MsgVoteResp {
			vote = append(vote, m)
		}
		return m.From == 1 || m.To == 1 || m.Type == raftpb.MsgVoteResp
	})
	if len(vote) != 1 || vote[0].Reject || vote[0].Term != 2 {
		t.Fatalf("node 3 answers %v, want its vote in term 2", vote)
	}
	damaged.crash()
	damaged.unsynced, damaged.disk = nil, before
	delete(w.judge.votes, 3)
	damaged.cfg.WithoutAuthority, damaged.cfg.LacksTerms, damaged.cfg.Life = true, true, 1
	damaged.restart(0, 0)
	apart := func(m raftpb.Message) bool { return m.From == 2 || m.To == 2 }
	for range 5 {
		must(t, leader.input(func(rn *RawNode) error { rn.Tick(); return nil }))
		w.runIdle(apart)
	}
	if damaged.node.MayRegain() {
		t.Errorf("without the word of node 2 node 3 may have authority again")
	}
	must(t, damaged.input(func(rn *RawNode) error { rn.Regain(); return nil }))
	must(t, leader.input(func(rn *RawNode) error { return rn.Propose([]byte("acknowledged")) }))
	w.runIdle(apart)
	_ = w.handOver(vote[0])
	w.runIdle(nil)
	if other.node.raft.role != StateLeader {
		t.Fatalf("node 2 does not lead, although it has two votes: %s", statusLine(other))
	}
	if !damaged.node.WithoutAuthority() {
		t.Error("node 3 has authority again although no leader was confirmed")
	}
	for range 5 {
		must(t, other.input(func(rn *RawNode) error { rn.Tick(); return nil }))
		w.runIdle(nil)
	}
	if !damaged.node.MayRegain() {
		t.Error("node 3 may not have authority again, although all follow node 2")
	}
}

// The same with five nodes. A quorum of nodes 1, 4 and 5 follows node 1 after node 3 came back, and that is
// not enough: node 5 votes for node 2 later, which leads with the vote that node 3 has forgotten.
func TestAForgottenVoteNeedsMoreThanAQuorum(t *testing.T) {
	w := newTestCluster(5, func(c *Config) { c.PreVote, c.CheckQuorum = false, false })
	w.start()
	leader, other, damaged := w.host(1), w.host(2), w.host(3)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	before := copyStorage(damaged.disk)
	var late []raftpb.Message // the vote of node 3, and the request to node 5
	must(t, other.input((*RawNode).Campaign))
	w.runIdle(func(m raftpb.Message) bool {
		if m.Type == raftpb.MsgVoteResp || m.Type == raftpb.MsgVote && m.To == 5 {
			late = append(late, m)
		}
		return m.Type != raftpb.MsgVote || m.To != 3
	})
	damaged.crash()
	damaged.unsynced, damaged.disk = nil, before
	delete(w.judge.votes, 3)
	damaged.cfg.WithoutAuthority, damaged.cfg.LacksTerms, damaged.cfg.Life = true, true, 1
	damaged.restart(0, 0)
	for range 5 {
		must(t, leader.input(func(rn *RawNode) error { rn.Tick(); return nil }))
		w.runIdle(func(m raftpb.Message) bool { return m.From == 2 || m.To == 2 })
	}
	if damaged.node.MayRegain() {
		t.Errorf("without the word of node 2 node 3 may have authority again")
	}
	must(t, damaged.input(func(rn *RawNode) error { rn.Regain(); return nil }))
	must(t, leader.input(func(rn *RawNode) error { return rn.Propose([]byte("acknowledged")) }))
	w.runIdle(func(m raftpb.Message) bool { return m.From == 2 || m.To == 2 || m.From == 5 || m.To == 5 })
	for _, m := range late {
		_ = w.handOver(m)
	}
	w.runIdle(func(m raftpb.Message) bool { return m.From == 1 || m.To == 1 })
	if other.node.raft.role != StateLeader {
		t.Errorf("node 2 does not lead, although it has three votes: %s", statusLine(other))
	}
}

// A node that has lost its term follows the leader of an earlier one, which follows this node. What that
// leader sends it must not come back.
func TestNothingGoesBackAndForthWithoutAuthority(t *testing.T) {
	storage := NewMemoryStorage()
	must(t, storage.ApplySnapshot(raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 1, Term: 1, ConfState: raftpb.ConfState{Voters: []uint64{1, 2, 3}}}}))
	must(t, storage.SetHardState(raftpb.HardState{Term: 1, Commit: 1}))
	c := &Config{ID: 3, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxInflightMsgs: 8, AsyncStorageWrites: true, WithoutAuthority: true, LacksTerms: true, Life: 1}
	node, err := NewRawNode(c)
	must(t, err)
	must(t, node.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 3, Term: 1}))
	forwarded := func() (n int) {
		for node.HasReady() {
			for _, m := range node.Ready().Messages {
				if m.Type == raftpb.MsgReadIndex || m.Type == raftpb.MsgProp {
					n++
				}
			}
		}
		return n
	}
	if forwarded(); node.BasicStatus().Lead != 1 {
		t.Fatalf("it does not follow node 1: %+v", node.BasicStatus())
	}
	read := []raftpb.Entry{{Data: []byte("read")}}
	must(t, node.Step(raftpb.Message{Type: raftpb.MsgReadIndex, From: 3, To: 3, Entries: read})) // its own has come back
	for _, from := range []uint64{1, 2} {
		must(t, node.Step(raftpb.Message{Type: raftpb.MsgReadIndex, From: from, To: 3, Entries: read}))
		if err := node.Step(raftpb.Message{Type: raftpb.MsgProp, From: from, To: 3, Entries: read}); !errors.Is(err, ErrProposalDropped) {
			t.Errorf("a proposal from node %d: %v", from, err)
		}
	}
	if n := forwarded(); n > 0 {
		t.Errorf("%d requests of peers are sent on", n)
	}
	must(t, node.ReadIndex([]byte("mine")))
	must(t, node.Propose([]byte("mine")))
	if n := forwarded(); n != 2 {
		t.Errorf("%d requests of its own application are sent on, want 2", n)
	}
}

// One of three nodes loses its power, and then the only other one that is up is not a quorum: the leader
// steps down, commits nothing and answers no read, and is not asked to hand over to it.
func TestANodeWithoutAuthorityIsNoQuorum(t *testing.T) {
	w := newTestCluster(3, func(c *Config) { c.PreVote, c.CheckQuorum = true, true })
	w.start()
	leader, lost := w.host(1), w.host(3)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	committed := leader.node.BasicStatus().Commit
	lost.crash()
	lost.cfg.WithoutAuthority, lost.cfg.Life = true, 1
	lost.restart(0, 0)
	apart := func(m raftpb.Message) bool { return m.From == 2 || m.To == 2 }
	must(t, leader.input(func(rn *RawNode) error { return rn.Propose([]byte("of one")) }))
	w.runIdle(apart)
	if err := leader.input(func(rn *RawNode) error { return rn.TransferLeader(3) }); !errors.Is(err, ErrTransferRefused) {
		t.Errorf("the leader hands over to a node without authority: %v", err)
	}
	must(t, leader.ask("read"))
	quiet := leader.node.Quiet()
	for range 3 * leader.cfg.ElectionTick {
		for _, h := range []*host{leader, lost} {
			must(t, h.input(func(rn *RawNode) error { rn.Tick(); return nil }))
			w.runIdle(apart)
		}
	}
	st := leader.node.BasicStatus()
	if st.Commit != committed || leader.answered > 0 || quiet || st.RaftState == StateLeader || lost.node.BasicStatus().RaftState != StateFollower {
		t.Errorf("committed %d, want %d; %d reads answered; quiet %t; leader is %v, the other one %v",
			st.Commit, committed, leader.answered, quiet, st.RaftState, lost.node.BasicStatus().RaftState)
	}
	for range 6 * leader.cfg.ElectionTick {
		for _, h := range w.hosts {
			must(t, h.input(func(rn *RawNode) error { rn.Tick(); return nil }))
			w.runIdle(nil)
		}
		lost.node.Regain()
	}
	if lost.node.WithoutAuthority() || leader.node.BasicStatus().Commit <= committed {
		t.Errorf("when all are up: without authority %t, committed %d", lost.node.WithoutAuthority(), leader.node.BasicStatus().Commit)
	}
}

// A leader that does not know of authority must not count what a node without authority acknowledges: its
// acknowledgements travel as rejections. No context makes a leader believe or panic.
func TestAcknowledgementsWithoutAuthority(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	rn := newTestNodeOn(t, 1, s, func(c *Config) { c.AsyncStorageWrites, c.WithoutAuthority, c.Life = true, true, 7 })
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: []raftpb.Entry{{Term: 1, Index: 1}}}))
	for _, m := range rn.Ready().Messages[0].Responses {
		if m.Type == raftpb.MsgAppResp && (!m.Reject || m.Index != 1 || len(m.Context) != lostBytes) {
			t.Errorf("acknowledges by %+v", m)
		}
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: 3, Term: 2, Index: 9, LogTerm: 1}))
	for _, m := range rn.Ready().Messages {
		for _, m := range m.Responses {
			if m.Type == raftpb.MsgVoteResp && !m.Reject {
				t.Errorf("votes by %+v", m)
			}
		}
	}
	leader, disk := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, leader, disk)
	for n := range 64 {
		for _, kind := range []raftpb.MessageType{raftpb.MsgAppResp, raftpb.MsgHeartbeatResp} {
			m := raftpb.Message{Type: kind, From: 2, Term: leader.BasicStatus().Term, Context: make([]byte, n)}
			if refused := (*PeerError)(nil); !errors.As(leader.Step(m), &refused) && n > 0 && (n != positionBytes || kind == raftpb.MsgAppResp) {
				t.Errorf("%v with %d bytes of context is accepted", kind, n)
			}
		}
	}
}

// What a member acknowledged before it lost it counts for nothing when the acknowledgement arrives after
// the news of the loss: the member has the entries again when it acknowledges them in the new epoch.
func TestLateAcknowledgementsOfAnEarlierLife(t *testing.T) {
	leader, disk := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, leader, disk)
	status := leader.BasicStatus()
	lost := make([]byte, lostBytes)
	lost[0], lost[9] = lostKind, 7 // life 7, no epoch yet
	must(t, leader.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: status.Term, Reject: true, Index: status.LastIndex, Context: lost}))
	must(t, leader.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: status.Term, Index: status.LastIndex})) // sent before
	if have := leader.Status().Progress[2].Match; have != 0 {
		t.Errorf("the leader believes that the member has entries through %d, want none", have)
	}
	if have := leader.BasicStatus().Commit; have != 0 {
		t.Errorf("committed through %d with one member of three", have)
	}
}
