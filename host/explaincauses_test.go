package host

import (
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
)

// openSecond opens host 2 of three, in a founded group that host 1 leads. Nothing is heard from then on.
func openSecond(t *testing.T, options ...Option) *testHost {
	t.Helper()
	l := openTestHostWith(t, 3, func(c *Config) { c.ID = 2 }, options...)
	t.Cleanup(func() { _ = l.Close(over()) })
	m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: 1, Commit: begun,
		Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0)), foundedAt(3, 1)}}
	(*inbound)(l.Host).Receive(1, envelopes(theGroup, m))
	l.manual.runIdle()
	if f := l.group.Founding(); !f.Founded || l.group.roster() == nil {
		t.Fatalf("setup: the founding is %+v", f)
	}
	return l
}

// hears makes hosts heard at a tick, without a pause of the last hour.
func (l *testHost) hears(now int64, ids ...uint64) {
	for _, id := range ids {
		l.network.handshakes.Of(id).HeardAt.Store(now)
		l.network.handshakes.Of(id).HeardSince.Store(0)
	}
}

// A leader whose only turns are those in which its core counts the quorum, and forgets who was active, still
// sees that a follower answers its pulses.
func TestQuietLeaderSeesThatFollowersAnswer(t *testing.T) {
	l := openLeader(t)
	now := l.clock.awakeAtBeat()
	l.seesThird(func(v *examination.Follower) { v.ActiveAt = 0 })
	l.group.leadership.quietLead.pulsed = true
	l.network.pulses.Set((*pulseLeader)(l.group), l.group.memberIDs(), 1, 0)
	for _, r := range l.network.pulses.Beat() {
		l.network.pulses.Answered(r.Peer, pulse.Answer{Life: r.Life, Version: r.Version, Known: true}, now)
	}
	l.group.observePeers()
	if d := l.group.Explain(); d.Has(diagnosis.CodeMemberSilent) {
		t.Errorf("host 3 has answered just now, and %v", d)
	}
}

// The shard confirms the quorum of a leader that sleeps without a turn. What wakes the leader just then, as a
// host that asks to join, finds the answers of before. All turns may fall on such ticks: seed 3691 of the
// simulator, with -faults 1500ms, has found it.
func TestQuietLeaderSeesAnswersOfBeforeItsCheck(t *testing.T) {
	l := openLeader(t)
	timeout := int64(l.config.electionTicks())
	l.group.leadership.quietLead.pulsed = true
	l.network.pulses.Set((*pulseLeader)(l.group), l.group.memberIDs(), 1, 0)
	at := &l.group.core.at
	for range 5 { // turns, each one election timeout after the one before, at the tick of a check
		l.group.leadership.quietLead.activeAt = at.Ticks - at.Missed
		l.group.observePeers()
		l.group.watchMembers()
		for _, r := range l.network.pulses.Beat() {
			l.network.pulses.Answered(r.Peer, pulse.Answer{Life: r.Life, Version: r.Version, Known: true}, at.Ticks-at.Missed+timeout-1)
		}
		at.Ticks += timeout
	}
	for _, v := range l.group.life.views.Load() {
		if v.At-v.ActiveAt > timeout {
			t.Errorf("host %d answers each pulse, and its view says that it has answered nothing for %d ticks", v.ID, v.At-v.ActiveAt)
		}
	}
}
