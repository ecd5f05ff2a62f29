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
	s := p.group.shard
	w := s.worker
	g, at, crowded := w.take(w)
	p.manual.now += 2 * s.longTurn
	left, ran := s.takeOver()
	if g != p.group || left != g {
		t.Fatalf("setup: the turn of %v runs, and %v is left behind", g, left)
	}
	again, due := g.runTurn(at, crowded)
	w.give(w, g, again, due)
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
	if other.shard != l.group.shard {
		t.Skip("the groups are on two shards")
	}
	l.lead()
	l.manual.fireTimers()
	l.out.take(raftpb.MsgApp)
	l.submit("x")
	other.wake()
	w := other.shard.worker
	if more := w.RunOnce(); !more || len(l.out.take(raftpb.MsgApp)) > 0 {
		t.Fatalf("setup: the first turn has sent, or no other waits (%v)", more)
	}
	other.shard.remove(other)
	w.RunOnce()
	if sent := l.out.take(raftpb.MsgApp); len(sent) != 2 {
		t.Errorf("%d appends were sent, want one to each follower", len(sent))
	}
}
