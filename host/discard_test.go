package host

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// A member that could not write its log counts the ticks without a leader from the last message that only a
// leader of its term, or of a later one, sends.
func TestWhatShowsThatThereIsALeader(t *testing.T) {
	const term, before = 5, 9
	for _, row := range []struct {
		m     raftpb.Message
		heard bool
	}{
		{raftpb.Message{Type: raftpb.MsgApp, Term: term}, true},
		{raftpb.Message{Type: raftpb.MsgHeartbeat, Term: term}, true},
		{raftpb.Message{Type: raftpb.MsgHeartbeat, Term: term + 1}, true},
		{raftpb.Message{Type: raftpb.MsgApp, Term: term - 1}, false},
		{raftpb.Message{Type: raftpb.MsgVote, Term: term + 1}, false},
		{raftpb.Message{Type: raftpb.MsgAppResp, Term: term}, false},
	} {
		f := discarding{unheard: before}
		if f.hears(&row.m, term); (f.unheard == 0) != row.heard {
			t.Errorf("%v of term %d in term %d: %d ticks unheard, want 0: %t", row.m.Type, row.m.Term, term, f.unheard, row.heard)
		}
	}
}
