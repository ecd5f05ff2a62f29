package host

import (
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A tick that comes early, late, or in place of many stands for the time that has passed.
func TestMetronome(t *testing.T) {
	var now time.Duration
	m := newMetronome(func() time.Duration { return now }, 25*time.Millisecond)
	for _, step := range []struct {
		at   time.Duration
		want int64
	}{{24, 0}, {26, 1}, {49, 1}, {51, 2}, {75, 3}, {1075, 43}} {
		now = step.at * time.Millisecond
		if n := m.ticks(); n != step.want {
			t.Errorf("after %d ms: %d ticks, want %d", step.at, n, step.want)
		}
	}
}

// Timeouts are drawn in ticks that are finer than a heartbeat, and are never shorter than configured.
func TestTicksOfAConfig(t *testing.T) {
	for _, row := range []struct {
		heartbeat, election time.Duration
		want                int
	}{{100, 1000, 40}, {100, 299, 12}, {100, 301, 13}, {10, 20, 8}} {
		c := Config{HeartbeatInterval: row.heartbeat * time.Millisecond, ElectionTimeout: row.election * time.Millisecond}
		if n := c.electionTicks(); n != row.want {
			t.Errorf("%v with a heartbeat of %v: %d ticks, want %d", c.ElectionTimeout, c.HeartbeatInterval, n, row.want)
		}
	}
}

// The process of a follower is paused for a minute. The heartbeats of that time wait, and the follower hears
// them before it gives up its leader. If none wait, it still gives the leader time to be heard.
func TestPauseStartsNoElection(t *testing.T) {
	l := openTestHost(t, 3)
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1}
	l.deliver(heartbeat)
	for pause := range 5 {
		for range 30 { // three quarters of the shortest timeout pass as they should
			l.manual.tick()
		}
		l.manual.tickLate(2400)
		if s := l.group.Status(); s.Role != event.RoleFollower || s.Leader != 2 {
			t.Fatalf("after pause %d: %+v", pause, s)
		}
		l.deliver(heartbeat)
	}
	for range 100 {
		l.manual.tick()
	}
	if s := l.group.Status(); s.Role == event.RoleFollower {
		t.Errorf("no election although the leader is gone: %+v", s)
	}
}

// Messages of the leader are heard before the time that passed meanwhile: a turn is late by almost a
// heartbeat interval, one tick before the timeout, with a heartbeat waiting.
func TestMessagesComeBeforeTicks(t *testing.T) {
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1, From: 2, To: 1}
	follower := func() *testHost {
		l := openTestHost(t, 3)
		l.deliver(heartbeat)
		return l
	}
	timeout := 0
	for l := follower(); l.group.Status().Role == event.RoleFollower; timeout++ {
		l.manual.tick()
	}
	l := follower()
	for range timeout - 1 {
		l.manual.tick()
	}
	l.manual.pass(ticksPerHeartbeat)
	(*inbound)(l.Host).Receive(2, envelopes(theGroup, heartbeat))
	l.manual.runIdle()
	if s := l.group.Status(); s.Role != event.RoleFollower || s.Leader != 2 {
		t.Errorf("%+v", s)
	}
	if asked := l.out.take(raftpb.MsgPreVote); len(asked) > 0 {
		t.Errorf("the follower asked for %d votes", len(asked))
	}
}

// A leader must notice the time of its pause: the others may have elected another leader meanwhile.
func TestPausedLeaderStepsDown(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	l.manual.tickLate(100)
	if s := l.group.Status(); s.Role == event.RoleLeader {
		t.Errorf("leads after a pause of more than two election timeouts: %+v", s)
	}
}

// A core that never has anything to do is never due.
func TestDueIn(t *testing.T) {
	if due := dueIn(7, raft.NoEvent); due != never {
		t.Errorf("a core without an event is due at tick %d", due)
	}
	if due := dueIn(7, 3); due != 10 {
		t.Errorf("3 ticks after tick 7 is tick %d", due)
	}
}
