package raft

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// checkedCluster is a cluster that checks appends, whose leader, node 1, has committed an entry.
func checkedCluster(t *testing.T, nodes int) (w *testCluster, leader *host) {
	t.Helper()
	w = newTestCluster(nodes, func(c *Config) { c.CheckQuorum, c.CheckAppends, c.PreVote = true, true, true })
	w.start()
	leader = w.host(1)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	return w, leader
}

// tickAll lets n ticks pass, and loses messages that lost says are lost.
func (w *testCluster) tickAll(n int, lost func(raftpb.Message) bool) {
	for range n {
		for _, h := range w.hosts {
			w.tick(h)
		}
		w.runIdle(lost)
	}
}

func (h *host) leads() bool { return h.node.BasicStatus().RaftState == StateLeader }

// appendsTo says that appends to these nodes are lost, and nothing else.
func appendsTo(ids ...uint64) func(raftpb.Message) bool {
	return func(m raftpb.Message) bool {
		for _, id := range ids {
			if m.To == id && m.Type == raftpb.MsgApp {
				return true
			}
		}
		return false
	}
}

// Heartbeats pass and appends are lost. The leader steps down if it cannot commit for that reason, within two
// election timeouts, and never if a quorum answers.
func TestLeaderWithoutAnswersToItsAppends(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  int
		lost   []uint64
		leads  bool
		change func(*Config)
	}{
		"nothing is lost":                {3, nil, true, nil},
		"one of two followers":           {3, []uint64{3}, true, nil},
		"both followers":                 {3, []uint64{2, 3}, false, nil},
		"two of four followers":          {5, []uint64{2, 3}, true, nil},
		"three of four followers":        {5, []uint64{2, 3, 4}, false, nil},
		"both followers, without checks": {3, []uint64{2, 3}, true, func(c *Config) { c.CheckAppends = false }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCluster(c.nodes, func(cfg *Config) {
				cfg.CheckQuorum, cfg.CheckAppends = true, true
				if c.change != nil {
					c.change(cfg)
				}
			})
			w.start()
			leader := w.host(1)
			must(t, leader.input((*RawNode).Campaign))
			w.runIdle(nil)
			propose(t, leader, "x")
			w.runIdle(appendsTo(c.lost...))
			w.tickAll(9, appendsTo(c.lost...))
			if !leader.leads() {
				t.Fatal("the leader steps down before an election timeout has passed")
			}
			w.tickAll(2*10-9, appendsTo(c.lost...))
			if leader.leads() != c.leads {
				t.Errorf("leads: %t, want %t", leader.leads(), c.leads)
			}
		})
	}
}

// With AnswerTicks the leader waits for as long, and not longer than the next check of the quorum.
func TestAnswerTicks(t *testing.T) {
	w := newTestCluster(3, func(c *Config) { c.CheckQuorum, c.CheckAppends, c.AnswerTicks = true, true, 25 })
	w.start()
	leader := w.host(1)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	propose(t, leader, "x")
	w.runIdle(appendsTo(2, 3))
	w.tickAll(24, appendsTo(2, 3))
	if !leader.leads() {
		t.Error("the leader steps down before AnswerTicks have passed")
	}
	w.tickAll(10+1, appendsTo(2, 3))
	if leader.leads() {
		t.Error("the leader still leads, AnswerTicks and an election timeout after its append was lost")
	}
}

// Only an append with entries asks for an answer: a lost commit index, which is not repeated, costs nothing.
func TestLostCommitIndexIsNoSilence(t *testing.T) {
	w, leader := checkedCluster(t, 3)
	propose(t, leader, "x")
	leader.takeReady() // its disk is slow, so both followers answer before the commit index moves
	for range len(w.net) {
		_, _ = w.deliver(0)
	}
	for _, h := range w.hosts[1:] {
		h.work()
	}
	for range len(w.net) {
		_, _ = w.deliver(0)
	}
	lost := 0
	w.runIdle(func(m raftpb.Message) bool {
		isLost := m.Type == raftpb.MsgApp && len(m.Entries) == 0
		if isLost {
			lost++
		}
		return isLost
	})
	if lost != 2 {
		t.Fatalf("setup: %d messages are lost, want 2", lost)
	}
	w.tickAll(50, appendsTo(2, 3))
	if !leader.leads() {
		t.Error("an idle leader steps down")
	}
}

// The report that a follower is unreachable does not count as its answer.
func TestUnreachableFollowersStaySilent(t *testing.T) {
	w, leader := checkedCluster(t, 3)
	propose(t, leader, "x")
	for range 20 {
		for id := range uint64(2) {
			must(t, leader.input(func(rn *RawNode) error { rn.ReportUnreachable(id + 2); return nil }))
		}
		w.tickAll(1, appendsTo(2, 3))
	}
	if leader.leads() {
		t.Error("the leader still leads, and its appends were unanswered for two election timeouts")
	}
}

// Followers that reject appends answer them, even if nothing is committed for a long time.
func TestRejectionIsAnAnswer(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, func(c *Config) { c.CheckQuorum, c.CheckAppends = true, true })
	elect(t, rn, s)
	term := rn.BasicStatus().Term
	next := rn.Status().Progress[2].Next
	for range 25 {
		rn.Tick()
		if next--; next > 1 {
			must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: term, Index: next, Reject: true, RejectHint: next - 1, LogTerm: 1}))
		}
	}
	if rn.BasicStatus().RaftState != StateLeader {
		t.Error("a leader that finds where the logs match steps down")
	}
}

// A follower that is sent a snapshot, for however long, is not silent.
func TestSnapshotIsNoSilence(t *testing.T) {
	w, leader := checkedCluster(t, 3)
	lost := func(m raftpb.Message) bool { return m.From == 3 || m.To == 3 }
	propose(t, leader, "x")
	w.runIdle(lost)
	leader.compact(leader.applied)
	travels := func(m raftpb.Message) bool { return m.Type == raftpb.MsgSnap || m.From == 2 || m.To == 2 }
	w.tickAll(50, travels)
	if !leader.leads() {
		t.Error("the leader of a follower that installs a snapshot steps down")
	}
}

// The sync of each member takes half an election timeout. The leader commits, and leads for ever. Then the
// syncs of all followers hang: it steps down.
func TestSlowDisksKeepTheirLeader(t *testing.T) {
	w, leader := checkedCluster(t, 3)
	const sync = 5 // ticks; the election timeout is 10
	var busyUntil [3]int
	var round [3][]raftpb.Message // what the sync that is under way covers
	hung := 1 << 30
	term := leader.node.BasicStatus().Term
	for now := range 400 {
		if now == 300 {
			hung = now
		}
		for i, h := range w.hosts {
			w.tick(h)
			if now%3 == 0 && h == leader {
				_ = h.input(func(rn *RawNode) error { return rn.Propose([]byte("x")) })
			}
			if now >= busyUntil[i] && (i == 0 || now < hung) {
				for range round[i] {
					h.runAppend()
				}
				if round[i] = h.appends; len(h.appends) > 0 {
					busyUntil[i] = now + sync
				}
			}
			for len(h.inbox) > 0 {
				h.hearOwn(0)
			}
			h.takeReady()
			h.runApply()
		}
		for range len(w.net) {
			_, _ = w.deliver(0)
		}
		if s := leader.node.BasicStatus(); now < hung+9 && (s.RaftState != StateLeader || s.Term != term) {
			t.Fatalf("tick %d: %s", now, statusLine(leader))
		}
	}
	if s := leader.node.BasicStatus(); s.Commit < 90 {
		t.Errorf("%d entries are committed, want about 100", s.Commit)
	}
	if leader.leads() {
		t.Error("the leader still leads, and all followers' disks have hung for ten election timeouts")
	}
}
