package host

import (
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
)

// A leader may be asked to hand over at any tick: also just after it has checked its quorum, when no member
// has answered since.
func TestHandOverAtAnyTick(t *testing.T) {
	for ticks := range 60 {
		p := openPulseHost(t, 3, func(*Config) {})
		p.leadInTerm1()
		for tick := range 60 + ticks {
			p.manual.tick()
			for _, m := range p.out.take(raftpb.MsgHeartbeat) {
				p.from(m.To, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context})
			}
			if tick%ticksPerHeartbeat == 1 {
				p.answerFor(2)
				p.answerFor(3)
			}
		}
		p.out.take(raftpb.MsgTimeoutNow)
		p.HandOver()
		p.manual.runIdle()
		if len(p.out.take(raftpb.MsgTimeoutNow)) == 0 || p.group.leadership.staysLeader.Load() {
			t.Errorf("after %d ticks: no hand-over, although both members are level (stays: %v, role %v)", 60+ticks, p.group.leadership.staysLeader.Load(), p.group.Status().Role)
		}
	}
}

// A leader whose hand-over was not possible hands over when it is asked again and it is.
func TestHandOverAgain(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.lead()
	for id := range p.config.Members {
		(*inbound)(p.Host).Unreachable(id)
	}
	p.manual.runIdle()
	for range p.config.electionTicks() { // one check of the quorum
		p.manual.tick()
	}
	p.HandOver()
	p.manual.runIdle()
	if !p.group.leadership.staysLeader.Load() || p.group.Status().Role != event.RoleLeader {
		t.Fatalf("a leader without an active member hands over: %+v", p.group.Status())
	}
	p.from(2, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
	p.HandOver()
	p.manual.runIdle()
	if p.group.leadership.staysLeader.Load() {
		t.Fatal("the group counts as one that stays, although a transfer is under way")
	}
}

// A leader that sleeps hands over to the follower that it hears, at whatever moment it is asked: also just
// after its check of the quorum, when no answer has come since.
func TestSleepingLeaderHandsOverToOneThatIsHeard(t *testing.T) {
	for phase := range 60 {
		p := openPulseHost(t, 3, func(*Config) {})
		p.leadInTerm1()
		p.untilPulsed()
		for range 200 + phase { // host 2 is cut off, and no connection says so
			heard := p.sent
			p.sent = map[uint64]pulse.Record{}
			p.manual.tick()
			heard, p.sent = p.sent, heard
			p.answerFor(3) // a tick later
			p.sent = heard
		}
		p.out.take(0)
		p.group.inbox.orderHandOver()
		p.group.wake()
		p.manual.runIdle()
		sent := p.out.take(raftpb.MsgTimeoutNow)
		if len(sent) != 1 || sent[0].To != 3 {
			t.Errorf("phase %d: the orders to campaign are %+v, want one to host 3", phase, sent)
		}
	}
}
