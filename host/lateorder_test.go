package host

import (
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
)

// A member campaigns on the order of its leader at once, and not on one that may have waited: in a socket
// while the process was paused, noticed or not, or in the inbox while its group got no turn. It obeys again
// half an election timeout later.
func TestLateOrderIsRefused(t *testing.T) {
	order := raftpb.Message{Type: raftpb.MsgTimeoutNow, Term: 2}
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2}
	for name, story := range map[string]struct {
		comes  func(l *testHost)
		obeyed bool
	}{
		"at once": {func(l *testHost) { l.deliver(order) }, true},
		"before the pause is noticed": {func(l *testHost) {
			l.manual.now += l.config.ElectionTimeout
			l.deliver(order)
		}, false},
		"after the pause is noticed": {func(l *testHost) {
			l.manual.tickLate(l.config.electionTicks())
			l.deliver(order)
		}, false},
		"half an election timeout after the pause": {func(l *testHost) {
			l.manual.tickLate(l.config.electionTicks())
			for range l.config.lateTicks() {
				l.deliver(heartbeat)
				l.manual.tick()
			}
			l.deliver(order)
		}, true},
		"in the inbox": {func(l *testHost) {
			order := order
			order.From, order.To = 2, 1
			(*inbound)(l.Host).Receive(2, envelopes(theGroup, order))
			for range l.config.lateTicks() + 1 {
				l.manual.pass(1)
			}
			l.manual.runIdle()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := openTestHost(t, 3)
			l.lead()
			l.deliver(heartbeat)
			if s := l.group.Status(); s.Role != event.RoleFollower || s.Leader != 2 {
				t.Fatalf("status %+v, want a follower of host 2", s)
			}
			story.comes(l)
			if s := l.group.Status(); (s.Role == event.RoleCandidate) != story.obeyed {
				t.Errorf("the member is %v in term %d, want it to campaign: %t", s.Role, s.Term, story.obeyed)
			}
		})
	}
}
