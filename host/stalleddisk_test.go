package host

import (
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// noteEvents returns a function that returns the events of one type since its last call.
func noteEvents[E event.Event](h *Host) (take func() []E) {
	var found []E
	l := &reports.Listener{}
	l.Notify = func() {
		for e, ok := l.Next(); ok; e, ok = l.Next() {
			if e, is := e.(E); is {
				found = append(found, e)
			}
		}
	}
	h.reports.events.Add(l)
	return func() (taken []E) {
		taken, found = found, nil
		return taken
	}
}

// A leader with a full disk hands over. If that does not succeed, it steps down, two election timeouts later
// and in the same term.
func TestALeaderStepsDownWhenItsHandOverFails(t *testing.T) {
	l := openControlHost(t, 3)
	defer l.Close(over())
	l.lead()
	l.last, l.term = begun, 1
	givenUp := noteEvents[event.LeadershipGivenUp](l.Host)
	timeout := int64(l.config.electionTicks())
	l.group.writes.append.Full.Store(true)
	began := l.group.core.at.Ticks
	var events []event.LeadershipGivenUp
	var at []int64
	for len(events) < 2 && l.group.core.at.Ticks < began+4*timeout {
		l.ack(3, begun-1)
		l.ack(2, begun) // it has most of the log
		l.manual.tick()
		for _, e := range givenUp() {
			events, at = append(events, e), append(at, l.group.core.at.Ticks-began)
		}
	}
	if len(events) < 2 || events[0].To != 2 || events[1].To != raft.None || events[0].Term != 1 || events[1].Term != 1 {
		t.Fatalf("given up %+v, in ticks %v", events, at)
	}
	if at[0] > 2*ticksPerHeartbeat || at[1]-at[0] < 2*timeout || at[1]-at[0] > 2*timeout+ticksPerHeartbeat {
		t.Errorf("given up in ticks %v, want a heartbeat after the disk was full, and two timeouts of %d later", at, timeout)
	}
}

// A leader whose state machine is stuck has a turn at each deadline: it does not sleep.
func TestAStuckLeaderDoesNotSleep(t *testing.T) {
	l := openStuckHost(t, 3)
	l.pass(1, func(controlRecord) {})
	if l.group.pulse.quiescence.remains != 0 {
		t.Errorf("the deadline may be moved by %d ticks without a turn", l.group.pulse.quiescence.remains)
	}
	l.release()
	l.manual.runIdle()
	l.pass(2*l.config.electionTicks(), func(controlRecord) {})
	if l.group.pulse.quiescence.remains == 0 {
		t.Error("the state machine works, and the leader does not sleep")
	}
}

// A leader that a plan takes out hands over to a member that stays, says so, and asks again after an election
// timeout if that member was not elected.
func TestALeaderYieldsToAMemberThatStays(t *testing.T) {
	l := openControlHost(t, 3)
	defer l.Close(over())
	l.lead()
	l.last, l.term = begun, 1
	for _, id := range l.others() {
		l.ack(id, begun)
	}
	givenUp := noteEvents[event.LeadershipGivenUp](l.Host)
	takes := membership.Change{Steps: []membership.Step{{Op: membership.Remove, Member: membership.Member{ID: 1}}, {Op: membership.Remove, Member: membership.Member{ID: 2}}}}
	var at []int64
	for range 5 * l.config.electionTicks() {
		l.group.members.plan.Yield(takes)
		for _, e := range givenUp() {
			if e.To != 3 || e.Term != 1 || e.Cause != "the plan under way takes the vote of this member" {
				t.Fatalf("given up: %+v", e)
			}
			at = append(at, l.group.core.at.Ticks)
		}
		l.from(3, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.from(2, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.manual.tick()
	}
	if len(at) < 3 {
		t.Fatalf("it has yielded in ticks %v", at)
	}
	for i, tick := range at[1:] {
		if tick-at[i] < int64(l.config.electionTicks()) {
			t.Errorf("it has yielded in ticks %v, twice within an election timeout", at)
		}
	}
}
