package raft

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// volatileLeader returns a cluster whose leader, node 1, has a slow disk: its writes wait until runAppend.
func volatileLeader(t *testing.T, applyUnstable bool) (w *testCluster, leader *host) {
	t.Helper()
	w = newTestCluster(3, func(c *Config) { c.ApplyUnstable = applyUnstable })
	w.start()
	leader = w.host(1)
	must(t, leader.input((*RawNode).Campaign))
	w.runIdle(nil)
	return w, leader
}

// othersWork does everything except the leader's writes and applies.
func (w *testCluster) othersWork(leader *host) {
	for moved := true; moved; {
		_, moved = leader.takeReady()
		for _, h := range w.hosts {
			if h != leader {
				moved = h.work() || moved
			}
		}
		for range len(w.net) {
			_, _ = w.deliver(0)
			moved = true
		}
	}
}

// A volatile state machine gets what is committed, although the leader's own disk does not have it yet. A
// durable one waits.
func TestApplyAheadOfTheDisk(t *testing.T) {
	for _, volatile := range []bool{true, false} {
		w, leader := volatileLeader(t, volatile)
		propose(t, leader, "a")
		propose(t, leader, "b")
		w.othersWork(leader)
		for _, ok := leader.runApply(); ok; _, ok = leader.runApply() {
		}
		want := uint64(1)
		if volatile {
			want = 3
		}
		if s := leader.node.BasicStatus(); leader.applied != want || s.Durable != 1 || s.Commit != 3 {
			t.Errorf("volatile %t: applied %d, want %d; %s", volatile, leader.applied, want, statusLine(leader))
		}
		w.runIdle(nil)
		if s := leader.node.BasicStatus(); leader.applied != 3 || s.Durable != 3 {
			t.Errorf("volatile %t, with a disk: %s", volatile, statusLine(leader))
		}
	}
}

// A membership entry, and what follows it, waits for the disk. What was committed before it does not.
func TestMembershipEntryWaitsForTheDisk(t *testing.T) {
	w, leader := volatileLeader(t, true)
	propose(t, leader, "a")
	must(t, leader.input(func(rn *RawNode) error {
		return rn.ProposeConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode, NodeID: 2})
	}))
	propose(t, leader, "b")
	w.othersWork(leader)
	apply := func() {
		for _, ok := leader.runApply(); ok; _, ok = leader.runApply() {
			for len(leader.inbox) > 0 {
				leader.hearOwn(0)
			}
			w.othersWork(leader)
		}
	}
	apply()
	if s := leader.node.BasicStatus(); leader.applied != 2 || s.Commit != 4 || s.Durable != 1 {
		t.Fatalf("before the change is durable: %s; the state machine is at %d, want 2", statusLine(leader), leader.applied)
	}
	for range 2 { // one write for each Ready: the change is durable, and entry 4 is not
		leader.runAppend()
		for len(leader.inbox) > 0 {
			leader.hearOwn(0)
		}
	}
	w.othersWork(leader)
	apply()
	if s := leader.node.BasicStatus(); leader.applied != 4 {
		t.Fatalf("when the change is durable: %s; the state machine is at %d, want 4", statusLine(leader), leader.applied)
	} else if s.Durable > 4 {
		t.Fatalf("setup: %s", statusLine(leader))
	}
}

// While a snapshot is pending, what was applied ahead of the disk does not count as durable.
func TestUnstableEntriesAreNotDurableDuringASnapshot(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, nil, func(c *Config) { c.ApplyUnstable = true })
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Commit: 2, Entries: logOfTerms(1, 1)}))
	for _, m := range rn.Ready().Messages {
		if m.To == LocalApplyThread {
			must(t, rn.Step(m.Responses[0]))
		}
	}
	if s := rn.BasicStatus(); s.Applied != 2 || s.Durable != 0 {
		t.Fatalf("setup: %+v", s)
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 2, Term: 1, Snapshot: snapshotAt(7, 1, 1, 2, 3)}))
	if s := rn.BasicStatus(); s.Applied != 2 || s.Durable != 0 {
		t.Errorf("applied %d, durable %d, want 2 and 0", s.Applied, s.Durable)
	}
}

// In synchronous mode a snapshot may arrive while entries are saved and applied. They are durable when they
// are applied.
func TestSnapshotDuringASynchronousApply(t *testing.T) {
	rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, nil, synchronous)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Commit: 2, Entries: logOfTerms(1, 1)}))
	rd := rn.Ready()
	if len(rd.CommittedEntries) != 2 {
		t.Fatalf("setup: %d entries to apply", len(rd.CommittedEntries))
	}
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 2, Term: 1, Snapshot: snapshotAt(7, 1, 1, 2, 3)}))
	rn.Advance(rd)
	if s := rn.BasicStatus(); s.Applied != 2 || s.Durable != 2 {
		t.Errorf("applied %d, durable %d, want 2 and 2", s.Applied, s.Durable)
	}
}
