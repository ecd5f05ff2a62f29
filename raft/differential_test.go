package raft

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Differences from etcd-io/raft that the differential test in tests/conformance found, and that were mistakes
// of ours.

// A second snapshot arrives between the Ready with the first one and Advance, which says that the first one
// is installed. In asynchronous mode the acknowledgement names the first snapshot, and counts. In synchronous
// mode it was ignored, and Applied (and Durable with it) stayed behind the state machine until the second
// snapshot was installed.
func TestAdvanceKnowsWhichSnapshotWasInstalled(t *testing.T) {
	rn, s := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 2}, []uint64{1, 1}, synchronous)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	rd := rn.Ready()
	must(t, s.ApplySnapshot(rd.Snapshot))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(9, 2, 1, 2, 3)}))
	rn.Advance(rd)
	if have := rn.BasicStatus().Applied; have != 7 {
		t.Errorf("the state machine is at 7; have applied %d", have)
	}
}

// A leader counts itself as active, also after a check of the quorum.
func TestLeaderShowsItselfActive(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1}, func(c *Config) { c.CheckQuorum = true })
	elect(t, rn, s)
	for range testConfig(1, s).ElectionTick {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: rn.BasicStatus().Term}))
		rn.Tick()
	}
	if st := rn.Status(); st.RaftState != StateLeader || !st.Progress[1].RecentActive {
		t.Errorf("%s, itself active: %t", st.RaftState, st.Progress[1].RecentActive)
	}
}
