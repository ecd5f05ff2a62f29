package raft

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A follower acknowledges what it has verified against this leader's log and nothing more: its own log may
// have more entries, which the leader does not have (thesis figure 3.1, AppendEntries 5: "index of last new
// entry").
func TestFollowerAnswersForWhatItHasVerified(t *testing.T) {
	for _, c := range []struct {
		name          string
		m             raftpb.Message
		acked, commit uint64
		log           string
	}{
		{"an empty append", raftpb.Message{Index: 1, LogTerm: 1, Commit: 3}, 1, 1, "[1@1 2@1 3@1]"},
		{"an entry it has", raftpb.Message{Index: 0, Entries: logOfTerms(1), Commit: 3}, 1, 1, "[1@1 2@1 3@1]"},
		{"an entry that conflicts", raftpb.Message{Index: 1, LogTerm: 1, Entries: []raftpb.Entry{{Term: 2, Index: 2}}, Commit: 3}, 2, 2, "[1@1 2@2]"},
		{"a stale duplicate truncates nothing", raftpb.Message{Index: 0, Entries: logOfTerms(1, 1), Commit: 0}, 2, 0, "[1@1 2@1 3@1]"},
		{"a commit index that it does not reach", raftpb.Message{Index: 3, LogTerm: 1, Commit: 2}, 3, 2, "[1@1 2@1 3@1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1, 1, 1})
			c.m.Type, c.m.From, c.m.To, c.m.Term = raftpb.MsgApp, 2, 1, 2
			must(t, rn.Step(c.m))
			sent := work(t, rn, s)
			if len(sent) != 1 || sent[0].Reject || sent[0].Index != c.acked {
				t.Fatalf("answers %v, want an acknowledgement of %d", sent, c.acked)
			}
			if st := rn.BasicStatus(); st.Commit != c.commit || describeEntries(allEntries(rn)) != c.log {
				t.Fatalf("committed %d of %s, want %d of %s", st.Commit, describeEntries(allEntries(rn)), c.commit, c.log)
			}
		})
	}
}

// Committed entries need no second check: a stale append is answered with the commit index.
func TestStaleAppendIsAnsweredWithTheCommitIndex(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1, Commit: 2}, []uint64{1, 1, 1})
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 1, Entries: logOfTerms(1)}))
	if sent := work(t, rn, s); len(sent) != 1 || sent[0].Index != 2 || sent[0].Reject {
		t.Fatalf("answers %v, want an acknowledgement of 2", sent)
	}
}

// A rejection that acknowledgements have overtaken changes nothing.
func TestStaleRejectionMovesNothing(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1}, []uint64{1, 1, 1})
	elect(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 2, Index: 4}))
	work(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 2, Index: 3, Reject: true, RejectHint: 1, LogTerm: 1}))
	if pr := rn.Status().Progress[2]; pr.Match != 4 || pr.Next != 5 {
		t.Fatalf("match %d, next %d; want 4 and 5", pr.Match, pr.Next)
	}
	if sent := work(t, rn, s); len(sent) > 0 {
		t.Fatalf("answers %v", sent)
	}
}
