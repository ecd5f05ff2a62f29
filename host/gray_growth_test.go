package host

import (
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
)

// A leader's disk hangs for hours while one of two followers is dead, so no quorum is ready. The leader asks
// the others to write once, and its log does not grow after that. When the dead one is back, it hands over.
func TestLogDoesNotGrowWhileADiskHangs(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	for _, id := range l.others() {
		(*inbound)(l.Host).Receive(id, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun, From: id, To: 1}))
	}
	l.manual.runIdle()
	for _, task := range l.manual.tasks {
		if task.worker == any(l.Host.storage.lane) {
			task.dead = true
		}
	}
	l.submit("x")
	l.manual.runIdle()
	// answer plays host 2, and host 3 whose entries are lost while it is dead.
	answer := func(dead bool) (orders int) {
		l.out.mu.Lock()
		sent := l.out.sent
		l.out.sent = nil
		l.out.mu.Unlock()
		for _, m := range sent {
			a := raftpb.Message{From: m.To, To: 1, Term: 1}
			switch {
			case m.Type == raftpb.MsgTimeoutNow:
				orders++
				continue
			case m.To == 3 && dead:
				continue
			case m.Type == raftpb.MsgHeartbeat:
				a.Type = raftpb.MsgHeartbeatResp
			case m.Type == raftpb.MsgApp && m.To == 3 && m.Index > begun && l.group.core.node.Status().Progress[3].Match == begun:
				a.Type, a.Reject, a.Index, a.RejectHint, a.LogTerm = raftpb.MsgAppResp, true, m.Index, begun, 1
			case m.Type == raftpb.MsgApp:
				a.Type, a.Index = raftpb.MsgAppResp, m.Index+uint64(len(m.Entries))
			default:
				continue
			}
			(*inbound)(l.Host).Receive(m.To, envelopes(theGroup, a))
		}
		l.manual.runIdle()
		return orders
	}
	for range 200 * l.config.electionTicks() {
		l.manual.tick()
		if answer(true) > 0 {
			t.Fatal("setup: it hands over without a quorum that is ready")
		}
	}
	s := l.group.Status()
	if s.Role != event.RoleLeader {
		t.Fatalf("setup: %+v", s)
	}
	if s.LastIndex > begun+2 {
		t.Errorf("the log ends at %d after 200 election timeouts, want %d at most: the command and one empty entry", s.LastIndex, begun+2)
	}
	orders := 0
	for range 5 * l.config.electionTicks() {
		l.manual.tick()
		orders += answer(false)
	}
	if orders == 0 {
		t.Error("a quorum is ready, and it hands over to none")
	}
}
