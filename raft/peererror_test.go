package raft

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Input that a correct peer with intact data would not send is refused, with the numbers, and changes neither
// log nor vote. The node has entries 1@1 2@1 3@2, the first two committed, in term 3.
func TestPeerErrors(t *testing.T) {
	app := func(prev raftpb.EntryID, entries ...raftpb.Entry) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 3, Index: prev.Index, LogTerm: prev.Term, Entries: entries}
	}
	for _, c := range []struct {
		name       string
		leader     bool
		m          raftpb.Message
		rule       string
		have, want uint64
	}{
		{"no term", false, raftpb.Message{Type: raftpb.MsgApp, From: 2}, "has no term", 0, 1},
		{"a term beyond all elections", false, raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: math.MaxUint64}, "beyond what elections can reach", math.MaxUint64, 3},
		{"the sender 0", false, raftpb.Message{Type: raftpb.MsgApp, Term: 3}, "not the id of a node", 0, 0},
		{"a worker's id", false, raftpb.Message{Type: raftpb.MsgApp, From: LocalApplyThread, Term: 3}, "not the id of a node", 0, 0},
		{"its own id", false, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, Term: 3}, "this node's own", 0, 0},
		{"its own refusal", true, raftpb.Message{Type: raftpb.MsgAppResp, From: 1, Term: 4, Reject: true}, "this node's own", 0, 0},
		{"a proposal with a term", true, raftpb.Message{Type: raftpb.MsgProp, From: 2, Term: 9}, "carries a term", 9, 0},

		{"a hole after prev", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 3, Index: 5}), "not contiguous", 5, 4},
		{"a hole between entries", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 3, Index: 4}, raftpb.Entry{Term: 3, Index: 6}), "not contiguous", 6, 5},
		{"an entry twice", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 3, Index: 4}, raftpb.Entry{Term: 3, Index: 4}), "not contiguous", 4, 5},
		{"terms fall after prev", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 1, Index: 4}), "terms within an append decrease", 1, 2},
		{"terms fall between entries", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 3, Index: 4}, raftpb.Entry{Term: 2, Index: 5}), "terms within an append decrease", 2, 3},
		{"an entry without a term", false, app(raftpb.EntryID{}, raftpb.Entry{Index: 1}), "terms within an append decrease", 0, 1},
		{"an entry of the future", false, app(raftpb.EntryID{Term: 2, Index: 3}, raftpb.Entry{Term: 4, Index: 4}), "later term than its leader", 4, 3},
		{"prev of the future", false, app(raftpb.EntryID{Term: 4, Index: 3}), "later term than its leader", 4, 3},
		{"another entry was committed", false, app(raftpb.EntryID{Term: 1, Index: 1}, raftpb.Entry{Term: 2, Index: 2}), "append conflicts with a committed entry", 2, 3},
		{"another prev was committed", false, app(raftpb.EntryID{Term: 2, Index: 2}), "append conflicts with a committed entry", 2, 3},
		{"index 0 with a term", false, app(raftpb.EntryID{Term: 2, Index: 0}), "append conflicts with a committed entry", 0, 3},
		{"commit beyond what was acknowledged", false, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 3, Commit: 9}, "lost entries that it acknowledged", 3, 9},

		{"an election ordered by another than the leader", true, raftpb.Message{Type: raftpb.MsgTimeoutNow, From: 2, Term: 4}, "that another node leads", 2, 1},
		{"a read with a term", true, raftpb.Message{Type: raftpb.MsgReadIndex, From: 2, Term: 9, Entries: make([]raftpb.Entry, 1)}, "carries a term", 9, 0},
		{"a read by the sender 0", true, raftpb.Message{Type: raftpb.MsgReadIndex, Entries: make([]raftpb.Entry, 1)}, "not the id of a node", 0, 0},
		{"a read without a context", true, raftpb.Message{Type: raftpb.MsgReadIndex, From: 2}, "exactly one context", 0, 1},
		{"a read with a long context", true, raftpb.Message{Type: raftpb.MsgReadIndex, From: 2, Entries: []raftpb.Entry{{Data: make([]byte, 5000)}}}, "too long", 5000, 4096},
		{"a read's answer without a context", false, raftpb.Message{Type: raftpb.MsgReadIndexResp, From: 2, Term: 3}, "exactly one context", 0, 1},
		{"a position of 1 byte", true, raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 4, Context: make([]byte, 1)}, "wrong length", 1, 8},
		{"a position of 7 bytes", true, raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 4, Context: make([]byte, 7)}, "wrong length", 7, 8},
		{"a position of 9 bytes", true, raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 4, Context: make([]byte, 9)}, "wrong length", 9, 8},
		{"a position never given", true, raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: 2, Term: 4, Context: []byte{1, 0, 0, 0, 0, 0, 0, 0}}, "never assigned", 1, 0},
		{"an acknowledgement with 3 bytes of context", true, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 4, Context: make([]byte, 3)}, "a length that none has", 3, 19},
		{"an unknown type", true, raftpb.Message{Type: 99, From: 2, Term: 4}, "message type is unknown", 99, 23},
		{"a second leader, by append", true, raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 4}, "claims to lead the term", 4, 5},
		{"a second leader, by heartbeat", true, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 4}, "claims to lead the term", 4, 5},
		{"a second leader of a follower's term, by append", false, raftpb.Message{Type: raftpb.MsgApp, From: 3, Term: 3}, "that another node leads", 3, 2},
		{"a second leader of a follower's term, by heartbeat", false, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 3, Term: 3}, "that another node leads", 3, 2},
		{"a second leader of a follower's term, by snapshot", false, raftpb.Message{Type: raftpb.MsgSnap, From: 3, Term: 3}, "that another node leads", 3, 2},
		{"an answer for entries that never were", true, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 4, Index: 9}, "beyond the end of this leader's log", 9, 4},
		{"a refusal of entries that never were", true, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 4, Index: 9, Reject: true}, "beyond the end of this leader's log", 9, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 3, Vote: 2, Commit: 2}, []uint64{1, 1, 2})
			if c.leader {
				elect(t, rn, s)
			} else {
				must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 3}))
			}
			work(t, rn, s)
			before := rn.BasicStatus()
			refused := wantPeerError(t, rn.Step(c.m))
			if !strings.Contains(refused.Error(), c.rule) || refused.Have != c.have || refused.Want != c.want || refused.From != c.m.From {
				t.Errorf("have %v, want rule %q with %d, %d", refused, c.rule, c.have, c.want)
			}
			after := rn.BasicStatus()
			if after.HardState != before.HardState || after.LastIndex != before.LastIndex || after.RaftState != before.RaftState {
				t.Errorf("changes %+v to %+v", before, after)
			}
			if sent := work(t, rn, s); len(sent) > 0 {
				t.Errorf("answers %s", describe(sent[0]))
			}
		})
	}
}

// Messages that never travel, and unknown types, are refused in every role.
func TestRefusedTypes(t *testing.T) {
	for _, leader := range []bool{false, true} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
		if leader {
			elect(t, rn, s)
		}
		before := rn.BasicStatus()
		for typ := range raftpb.MessageType(30) {
			if typ == raftpb.MsgTransferLeader {
				continue // the vote is granted
			}
			err := rn.Step(raftpb.Message{Type: typ, From: 2, Term: rn.raft.term})
			switch typ {
			case raftpb.MsgHup, raftpb.MsgBeat, raftpb.MsgUnreachable, raftpb.MsgSnapStatus, raftpb.MsgCheckQuorum, raftpb.MsgForgetLeader,
				raftpb.MsgStorageAppend, raftpb.MsgStorageAppendResp, raftpb.MsgStorageApply, raftpb.MsgStorageApplyResp:
				if !errors.Is(err, ErrStepLocalMsg) {
					t.Errorf("%v: have %v, want %v", typ, err, ErrStepLocalMsg)
				}
			case raftpb.MsgSnap, 24, 25, 26, 27, 28, 29:
				if refused := (*PeerError)(nil); leader && !errors.As(err, &refused) {
					t.Errorf("%v: have %v, want a PeerError", typ, err)
				}
			}
		}
		if after := rn.BasicStatus(); leader && after != before {
			t.Errorf("changes %+v to %+v", before, after)
		}
	}
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
	elect(t, rn, s)
	change := raftpb.Message{Type: raftpb.MsgProp, From: 2, Entries: []raftpb.Entry{{Type: raftpb.EntryConfChange, Data: []byte{7}}}}
	if err := rn.Step(change); !errors.Is(err, ErrConfChangeRefused) {
		t.Errorf("a membership change: have %v, want %v", err, ErrConfChangeRefused)
	}
}

// A broken invariant is the only panic, and it names its rule.
func TestBrokenContract(t *testing.T) {
	for name, breach := range map[string]func(*RawNode){
		"Ready is called again only after Advance": func(rn *RawNode) { rn.async = false; rn.Ready(); _ = rn.Campaign(); rn.Ready() },
		"Advance belongs to synchronous mode":      func(rn *RawNode) { rn.Advance(Ready{}) },
		"applied 1 was handed out (through 0)": func(rn *RawNode) {
			_ = rn.Step(raftpb.Message{Type: raftpb.MsgStorageApplyResp, From: LocalApplyThread, Entries: logOfTerms(1)})
		},
		"applied 0 <= applying 9 <= committed 0":  func(rn *RawNode) { rn.raft.log.applying = 9; rn.Tick() },
		"leader state exists exactly in a leader": func(rn *RawNode) { rn.raft.leader = &leader{}; rn.Tick() },
	} {
		t.Run(name, func(t *testing.T) {
			rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil)
			defer func() {
				var broken *BrokenInvariant
				if err, _ := recover().(error); !errors.As(err, &broken) || !strings.Contains(broken.Error(), name) {
					t.Fatalf("have %v, want a BrokenInvariant that says %q", err, name)
				}
			}()
			breach(rn)
		})
	}
}

func TestStateTypeString(t *testing.T) {
	for s, want := range map[StateType]string{StateFollower: "StateFollower", StateCandidate: "StateCandidate",
		StateLeader: "StateLeader", StatePreCandidate: "StatePreCandidate", 9: "StateType(9)"} {
		if s.String() != want {
			t.Errorf("have %v, want %s", s, want)
		}
	}
}
