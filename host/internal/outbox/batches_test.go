package outbox

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

// record is a transport that keeps what it is given.
type record struct {
	calls int
	sent  []raftpb.Message
}

func (r *record) Send(_ uint64, batch []transport.Envelope) bool {
	r.calls++
	for i := range batch {
		r.sent = append(r.sent, batch[i].Message)
	}
	return true
}

func span(first, last, term uint64) (entries []raftpb.Entry) {
	for i := first; i <= last; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term})
	}
	return entries
}

func TestSupersedes(t *testing.T) {
	ack := func(term, index uint64) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgAppResp, Term: term, Index: index}
	}
	durable := func(mark, index uint64) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgStorageAppendResp, Term: mark, Index: index}
	}
	reject := ack(3, 9)
	reject.Reject = true
	installed := durable(3, 5)
	installed.Snapshot = &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: 5, Term: 3}}
	full := raftpb.Message{Type: raftpb.MsgApp, Term: 3, Index: 5, Entries: span(6, 7, 3)}
	longer := raftpb.Message{Type: raftpb.MsgApp, Term: 3, Index: 5, Entries: span(6, 9, 3)}
	behind := raftpb.Message{Type: raftpb.MsgApp, Term: 3, Index: 6, Entries: span(7, 9, 3)}
	empty := raftpb.Message{Type: raftpb.MsgApp, Term: 3, Index: 5}
	for _, row := range []struct {
		what       string
		next, prev raftpb.Message
		want       bool
	}{
		{"more of the same log", ack(3, 9), ack(3, 5), true},
		{"the same", ack(3, 9), ack(3, 9), true},
		{"less", ack(3, 5), ack(3, 9), false},
		{"another term's leader", ack(4, 9), ack(3, 5), false},
		{"a rejection says something else", reject, ack(3, 5), false},
		{"a rejection must be heard", ack(3, 12), reject, false},
		{"own disk, more", durable(3, 9), durable(3, 5), true},
		{"own disk, less: the log was cut", durable(3, 5), durable(3, 9), false},
		{"own disk, another write", durable(4, 9), durable(3, 5), false},
		{"a snapshot is installed, and no other answer says so", durable(3, 9), installed, false},
		{"a snapshot is installed, and more", installed, durable(3, 5), true},
		{"different kinds", ack(3, 9), durable(3, 5), false},
		{"the same append again", full, full, true},
		{"the same append and more", longer, full, true},
		{"fewer entries", full, longer, false},
		{"an append behind it", behind, full, false},
		{"an append and one without entries", full, empty, false},
		{"votes", raftpb.Message{Type: raftpb.MsgVoteResp, Term: 3}, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 3}, false},
		{"heartbeats", raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3}, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3}, false},
	} {
		if got := Supersedes(&row.next, &row.prev); got != row.want {
			t.Errorf("%s: %t", row.what, got)
		}
	}
}

// There is one call of the transport for each destination, in the order in which messages were put.
func TestBatchesSortByDestination(t *testing.T) {
	out := &record{}
	o := Batches{To: out}
	o.Send(1, []raftpb.Message{
		{Type: raftpb.MsgHeartbeat, To: 2, Commit: 1}, {Type: raftpb.MsgHeartbeat, To: 3, Commit: 2}, {Type: raftpb.MsgHeartbeat, To: 2, Commit: 3},
	})
	if out.calls != 2 || len(out.sent) != 3 || out.sent[0].Commit != 1 || out.sent[1].Commit != 3 || out.sent[2].To != 3 {
		t.Errorf("%d calls: %v", out.calls, out.sent)
	}
	o.Flush()
	if out.calls != 2 {
		t.Error("an empty batch was sent")
	}
}

// Whatever is left out loses nothing: each destination gets the same rejections and votes, in order, all
// entries, and by the end of each flush the highest acknowledgement of each term and kind.
func TestBatchesLoseNothing(t *testing.T) {
	type key struct {
		to, term uint64
		kind     raftpb.MessageType
	}
	rapid.Check(t, func(rt *rapid.T) {
		out := &record{}
		o := Batches{To: out, HoldEmpty: rapid.Bool().Draw(rt, "holdEmpty")}
		var precious []raftpb.Message // must arrive one by one
		appends := map[key]bool{}     // by index instead of term
		acks := map[key]uint64{}
		commits := map[key]uint64{}
		commit := uint64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "messages") {
			m := raftpb.Message{
				To:    rapid.Uint64Range(2, 3).Draw(rt, "to"),
				Term:  rapid.Uint64Range(1, 2).Draw(rt, "term"),
				Index: rapid.Uint64Range(0, 9).Draw(rt, "index"),
				Type:  rapid.SampledFrom([]raftpb.MessageType{raftpb.MsgAppResp, raftpb.MsgApp, raftpb.MsgStorageAppendResp, raftpb.MsgVoteResp, raftpb.MsgHeartbeat}).Draw(rt, "type"),
			}
			k := key{m.To, m.Term, m.Type}
			switch m.Type {
			case raftpb.MsgAppResp:
				m.Reject = rapid.Bool().Draw(rt, "reject")
			case raftpb.MsgApp:
				commit++ // a leader's only grows
				m.Term, m.Commit = 1, commit
				commits[key{m.To, 1, raftpb.MsgApp}] = commit
				if rapid.Bool().Draw(rt, "entries") {
					m.Entries = span(m.Index+1, m.Index+3, m.Term)
				}
			}
			if len(m.Entries) > 0 {
				appends[key{m.To, m.Index, m.Type}] = true
			}
			if m.Reject || m.Type == raftpb.MsgVoteResp || m.Type == raftpb.MsgHeartbeat {
				precious = append(precious, m)
			}
			if !m.Reject && (m.Type == raftpb.MsgAppResp || m.Type == raftpb.MsgStorageAppendResp) {
				acks[k] = max(acks[k], m.Index)
			}
			o.Enqueue(1, &m)
			if rapid.IntRange(0, 4).Draw(rt, "flush") == 0 {
				o.Flush()
			}
		}
		o.FlushHeld()
		if o.Holding() {
			rt.Fatal("something is held back after FlushHeld")
		}
		next := map[uint64]int{}
		for _, m := range out.sent {
			k := key{m.To, m.Term, m.Type}
			if !m.Reject && acks[k] == m.Index {
				delete(acks, k)
			}
			if m.Type == raftpb.MsgApp && commits[k] == m.Commit {
				delete(commits, k)
			}
			if len(m.Entries) > 0 {
				delete(appends, key{m.To, m.Index, m.Type})
			}
			if m.Reject || m.Type == raftpb.MsgVoteResp || m.Type == raftpb.MsgHeartbeat {
				// The next message that must not be lost to this destination must be this one.
				for next[m.To] < len(precious) && precious[next[m.To]].To != m.To {
					next[m.To]++
				}
				if next[m.To] == len(precious) {
					rt.Fatalf("sent once too often: %v", m)
				}
				if want := precious[next[m.To]]; want.Type != m.Type || want.Index != m.Index || want.Term != m.Term {
					rt.Fatalf("sent %v, want %v", m, want)
				}
				next[m.To]++
			}
		}
		for i, m := range precious {
			if i >= next[m.To] {
				rt.Fatalf("never sent: %v", m)
			}
		}
		for k, index := range acks {
			if index > 0 {
				rt.Fatalf("the last acknowledgement %+v of %d was never sent", k, index)
			}
		}
		for k := range appends {
			rt.Fatalf("the entries behind %d to %d were never sent", k.term, k.to)
		}
		for k, c := range commits {
			rt.Fatalf("the last commit index %d to %d was never sent", c, k.to)
		}
	})
}
