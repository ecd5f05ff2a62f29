package raft

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// The text for people: describe.go and statustext.go. tests/conformance compares it with etcd-io/raft's, byte
// by byte; this file shows what it looks like.

func encoded(t *testing.T, c raftpb.ConfChangeI) raftpb.Entry {
	t.Helper()
	kind, data, err := raftpb.MarshalConfChange(c)
	must(t, err)
	return raftpb.Entry{Term: 2, Index: 6, Type: kind, Data: data}
}

// A busy node leads, has a write with a snapshot and entries under way, and answers when that is durable.
func TestDescribeReady(t *testing.T) {
	cs := raftpb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{1}, Learners: []uint64{3}}
	snap := raftpb.Snapshot{Data: []byte("left out"), Metadata: raftpb.SnapshotMetadata{Index: 4, Term: 1, ConfState: cs}}
	entries := []raftpb.Entry{
		{Term: 2, Index: 5, Data: []byte("x=\"1\"")},
		encoded(t, raftpb.ConfChangeV2{Changes: []raftpb.ConfChangeSingle{{NodeID: 10}, {Type: raftpb.ConfChangeRemoveNode, NodeID: 3}}}),
		{Term: 2, Index: 7, Type: 9, Data: []byte("a type of a later version")},
	}
	have := DescribeReady(Ready{
		SoftState:        &SoftState{Lead: 1, RaftState: StateLeader},
		HardState:        raftpb.HardState{Term: 2, Vote: 1, Commit: 4},
		ReadStates:       []ReadState{{Index: 4, RequestCtx: []byte{1}}},
		DroppedReads:     [][]byte{[]byte("late")},
		Entries:          entries,
		Snapshot:         snap,
		CommittedEntries: []raftpb.Entry{encoded(t, raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode, NodeID: 3})},
		Messages: []raftpb.Message{
			{Type: raftpb.MsgApp, From: 1, To: 26, Term: 2, LogTerm: 1, Index: 4, Commit: 4, Entries: entries[:1]},
			{Type: raftpb.MsgAppResp, From: 1, Term: 2, Index: 9, Reject: true, RejectHint: 4},
			{Type: raftpb.MsgStorageAppend, From: 1, To: LocalAppendThread, Term: 2, Vote: 1, Commit: 4, Entries: entries[:2], Snapshot: &snap,
				Responses: []raftpb.Message{
					{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Snapshot: &raftpb.Snapshot{}},
					{Type: raftpb.MsgApp, From: LocalApplyThread, To: 1, Entries: entries[1:]},
				}},
		},
		MustSync: true,
	}, nil)
	want := strings.TrimPrefix(`
Ready MustSync=true:
Lead:1 State:StateLeader
HardState Term:2 Vote:1 Commit:4
ReadStates [{4 [1]}]
DroppedReads ["late"]
Entries:
2/5 EntryNormal "x=\"1\""
2/6 EntryConfChangeV2 v10 r3
2/7 9
Snapshot Index:4 Term:1 ConfState:Voters:[1 2] VotersOutgoing:[1] Learners:[3] LearnersNext:[] AutoLeave:false
CommittedEntries:
2/6 EntryConfChange l3
Messages:
1->1a MsgApp Term:2 Log:1/4 Commit:4 Entries:[2/5 EntryNormal "x=\"1\""]
1->None MsgAppResp Term:2 Log:0/9 Rejected (Hint: 4)
1->AppendThread MsgStorageAppend Term:2 Log:0/0 Commit:4 Vote:1 Entries:[
  2/5 EntryNormal "x=\"1\""
  2/6 EntryConfChangeV2 v10 r3
]
  Snapshot: Index:4 Term:1 ConfState:Voters:[1 2] VotersOutgoing:[1] Learners:[3] LearnersNext:[] AutoLeave:false Responses:[
  1->2 MsgHeartbeat Term:0 Log:0/0
  ApplyThread->1 MsgApp Term:0 Log:0/0 Entries:[
    2/6 EntryConfChangeV2 v10 r3
    2/7 9
  ]
]
`, "\n")
	if have != want {
		t.Errorf("have\n%s\nwant\n%s", have, want)
	}
}

func TestDescribeLittle(t *testing.T) {
	broken := raftpb.Entry{Term: 1, Index: 2, Type: raftpb.EntryConfChange, Data: []byte{0xff}}
	reason := new(raftpb.ConfChange).Unmarshal(broken.Data).Error()
	brokenV2 := raftpb.Entry{Term: 1, Index: 2, Type: raftpb.EntryConfChangeV2, Data: []byte{0xff}}
	reasonV2 := new(raftpb.ConfChangeV2).Unmarshal(brokenV2.Data).Error()
	silent := func([]byte) string { return "" }
	for _, c := range []struct{ name, have, want string }{
		{"nothing to do", DescribeReady(Ready{}, nil), "<empty Ready>"},
		{"only reads to drop", DescribeReady(Ready{DroppedReads: [][]byte{{1}}}, nil), "Ready MustSync=false:\nDroppedReads [\"\\x01\"]\n"},
		{"no vote given", DescribeHardState(raftpb.HardState{Term: 3}), "Term:3 Commit:0"},
		{"no leader", DescribeSoftState(SoftState{}), "Lead:0 State:StateFollower"},
		{"no data", DescribeEntry(raftpb.Entry{Term: 1, Index: 1}, nil), `1/1 EntryNormal ""`},
		{"data left out", DescribeEntry(raftpb.Entry{Term: 1, Index: 1, Data: []byte("x")}, silent), "1/1 EntryNormal"},
		{"no entries", DescribeEntries(nil, nil), ""},
		{"a change that cannot be read", DescribeEntry(broken, nil), "1/2 EntryConfChange " + reason},
		{"the same, newer form", DescribeEntry(brokenV2, nil), "1/2 EntryConfChangeV2 " + reasonV2},
		{"a heartbeat", DescribeMessage(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Term: 1}, nil), "1->2 MsgHeartbeat Term:1 Log:0/0"},
	} {
		if c.have != c.want {
			t.Errorf("%s: have %q, want %q", c.name, c.have, c.want)
		}
	}
	if !IsLocalMsgTarget(LocalAppendThread) || !IsLocalMsgTarget(LocalApplyThread) || IsLocalMsgTarget(1) || IsLocalMsgTarget(None) {
		t.Errorf("the storage workers, and only they, are local targets")
	}
}

// Status is JSON, with members in order of id, whatever the order of the map.
func TestStatusText(t *testing.T) {
	s := Status{
		BasicStatus: BasicStatus{ID: 10, Applied: 7, LeadTransferee: 11,
			HardState: raftpb.HardState{Term: 3, Vote: 10, Commit: 8}, SoftState: SoftState{Lead: 10, RaftState: StateLeader}},
		Progress: map[uint64]tracker.Progress{
			255: {Match: 1, Next: 2},
			16:  {Match: 8, Next: 9, State: tracker.StateReplicate},
		},
	}
	want := `{"id":"a","term":3,"vote":"a","commit":8,"lead":"a","raftState":"StateLeader","applied":7,"progress":{` +
		`"10":{"match":8,"next":9,"state":"StateReplicate"},"ff":{"match":1,"next":2,"state":"StateProbe"}},"leadtransferee":"b"}`
	if s.String() != want {
		t.Errorf("have %s\nwant %s", s, want)
	}
	if b, err := json.Marshal(s); err != nil || string(b) != want {
		t.Errorf("have %s, %v\nwant %s", b, err, want)
	}
	if b, err := json.Marshal(s.SoftState); err != nil || string(b) != `{"Lead":10,"RaftState":"StateLeader"}` {
		t.Errorf("have %s, %v", b, err)
	}
	follower := `{"id":"1","term":0,"vote":"0","commit":0,"lead":"0","raftState":"StateFollower","applied":0,"progress":{},"leadtransferee":"0"}`
	if have := (Status{BasicStatus: BasicStatus{ID: 1}}).String(); have != follower {
		t.Errorf("have %s\nwant %s", have, follower)
	}
}
