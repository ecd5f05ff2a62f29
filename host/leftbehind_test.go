package host

import (
	"testing"

	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
)

// A turn that hangs may return just when its shard leaves the group behind, and the next turn may come before
// the host stops vouching for the group. The leader then sends its heartbeats again: it is in no list.
func TestTurnReturnsWhileItIsLeftBehind(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.leadInTerm1()
	p.untilPulsed()
	p.group.wake()
	g, s, w := p.group, p.group.seat.Shard(), p.worker()
	seat, at, crowded := w.Begin()
	p.manual.now += 2 * p.config.HeartbeatInterval
	left, ran := s.TakeOver()
	if seat != &g.seat || left != (*seated)(g) {
		t.Fatalf("setup: the turn of %v runs, and %v is left behind", seat, left)
	}
	again, due := g.runTurn(at, crowded)
	w.End(seat, again, due)
	p.manual.runIdle()
	p.leftBehind(g, ran)
	p.manual.runIdle()
	p.out.take(raftpb.MsgHeartbeat)
	p.sent = map[uint64]pulse.Record{}
	beats := 0
	for range 2 * ticksPerHeartbeat {
		p.manual.tick()
		beats += len(p.out.take(raftpb.MsgHeartbeat)) + len(p.sent[2].Lines)
	}
	if beats == 0 {
		t.Error("the leader sends no heartbeat, and no pulse speaks for it")
	}
}

// What a turn sends waits for the turns of other groups. If their groups are closed meanwhile, it leaves.
func TestMessagesDoNotWaitForAClosedGroup(t *testing.T) {
	l := openTestHost(t, 3)
	other := l.open(theGroup+1, &commands{})
	if other.seat.Shard() != l.group.seat.Shard() {
		t.Skip("the groups are on two shards")
	}
	l.lead()
	l.manual.fireTimers()
	l.out.take(raftpb.MsgApp)
	l.submit("x")
	other.wake()
	w := l.worker()
	if more := w.RunOnce(); !more || len(l.out.take(raftpb.MsgApp)) > 0 {
		t.Fatalf("setup: the first turn has sent, or no other waits (%v)", more)
	}
	other.seat.Leave()
	w.RunOnce()
	if sent := l.out.take(raftpb.MsgApp); len(sent) != 2 {
		t.Errorf("%d appends were sent, want one to each follower", len(sent))
	}
}
