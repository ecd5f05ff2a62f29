package host

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport/tcp"
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

// examine returns what one of the looks of Explain finds at a tick.
func (l *testHost) examine(now int64, look func(*examination)) []diagnosis.Cause {
	e := examination{Group: l.group, now: now, d: diagnosis.Diagnosis{Status: l.group.Status()}}
	look(&e)
	return e.d.Causes
}

// hears makes hosts heard at a tick, without a pause of the last hour.
func (l *testHost) hears(now int64, ids ...uint64) {
	for _, id := range ids {
		l.network.handshakes.of(id).heardAt.Store(now)
		l.network.handshakes.of(id).heardSince.Store(0)
	}
}

// A group without a leader has a quorum that is heard, or none. Voters count, learners do not, and a host
// that is a learner does not count itself.
func TestExplainCountsVoters(t *testing.T) {
	const now = 10_000
	joint := raftpb.ConfState{VotersOutgoing: []uint64{1, 2, 3}, Voters: []uint64{1, 4, 5}}
	for _, row := range []struct {
		name     string
		learners []uint64
		heard    []uint64
		code     diagnosis.Code
		says     string
		conf     *raftpb.ConfState // nil: all others are voters
	}{
		{"most of all voters, and few of the new ones", nil, []uint64{1, 3}, diagnosis.CodeNoQuorum, "of the former this host hears [1 2 3], of the latter [1]: ", &joint},
		{"few of the old voters", nil, []uint64{4, 5}, diagnosis.CodeNoQuorum, "from voters [1 2 3] to [1 4 5], which needs a quorum of both; of the former this host hears [2], of the latter [4 5]", &joint},
		{"a quorum of both", nil, []uint64{3, 4, 5}, diagnosis.CodeNoLeader, "a quorum of voters [1 2 3] and of voters [1 4 5]", &joint},
		{"all", nil, []uint64{3, 1}, diagnosis.CodeNoLeader, "hosts [1 2 3] are heard, a quorum of 3 voters", nil},
		{"one", nil, []uint64{3}, diagnosis.CodeNoLeader, "hosts [2 3] are heard, a quorum of 3 voters, and yet this member knows no leader", nil},
		{"none", nil, nil, diagnosis.CodeNoQuorum, "of 3 voters this host hears 1, itself included; a quorum is 2", nil},
		{"a learner is heard", []uint64{3}, []uint64{3}, diagnosis.CodeNoQuorum, "of 2 voters this host hears 1, itself included; a quorum is 2", nil},
		{"this host is a learner", []uint64{2}, []uint64{1}, diagnosis.CodeNoQuorum, "of 2 voters this host hears 1; a quorum is 2", nil},
		{"this host is a learner and hears both", []uint64{2}, []uint64{1, 3}, diagnosis.CodeNoLeader, "hosts [1 3] are heard", nil},
	} {
		l := openSecond(t)
		r := *l.group.roster()
		r.Conf = raftpb.ConfState{Learners: row.learners}
		for id := uint64(1); id <= 3; id++ {
			if !slices.Contains(row.learners, id) {
				r.Conf.Voters = append(r.Conf.Voters, id)
			}
		}
		if row.conf != nil {
			r.Conf = *row.conf
			for _, id := range []uint64{4, 5} {
				l.learn(id, "")
			}
			l.hears(0, 4, 5)
		}
		l.group.members.roster.Store(&r)
		l.group.life.roleTimes.leaderless.Store(0)
		l.hears(0, 1, 3)
		l.hears(now, row.heard...)
		causes := l.examine(now, (*examination).lookForLeader)
		if len(causes) != 1 || causes[0].Code != row.code || !strings.Contains(causes[0].Evidence, row.says) {
			t.Errorf("%s: %+v, want %s: %q", row.name, causes, row.code, row.says)
		}
	}
}

// A refused certificate is one cause, with the host whose certificate must be renewed, and none while the
// member is heard.
func TestExplainCertificates(t *testing.T) {
	l := openSecond(t)
	const now = 10_000
	l.hears(0, 1, 3)
	for _, row := range []struct {
		byPeer     bool
		fix, words string
	}{
		{true, "renew the certificate of this host, or make host 3 trust its CA", "host 3 refuses the certificate of this host: the reason"},
		{false, "renew the certificate of host 3, or make this host trust its CA", "this host refuses a certificate of host 3, which speaks from there: the reason"},
	} {
		l.Host.reports.watch.noteCertificate(tcp.CertificateRefused{Peer: 3, Remote: "there", ByPeer: row.byPeer, Err: errors.New("the reason")}, now, 1)
		causes := l.examine(now, (*examination).lookForCertificates)
		if len(causes) != 1 || causes[0].Member != 3 || !strings.Contains(causes[0].Fix, row.fix) || !strings.Contains(causes[0].Evidence, row.words) {
			t.Errorf("%+v, want %q, %q", causes, row.fix, row.words)
		}
	}
	l.hears(now, 3)
	if causes := l.examine(now, (*examination).lookForCertificates); len(causes) > 0 {
		t.Errorf("host 3 is heard, and %+v", causes)
	}
}

// What to do about a member without authority depends on what it waits for: a leader, or the other voters.
func TestExplainAuthority(t *testing.T) {
	for _, row := range []struct {
		name   string
		leader uint64
		unmet  bool
		fix    string
	}{
		{"no leader", raft.None, false, "start the other members: a leader and a quorum without this member are needed"},
		{"a leader", 1, false, "wait: it is fed by the leader"},
		{"a repaired log", 1, true, "start the other members: this log was repaired"},
	} {
		l := openSecond(t)
		l.group.members.withoutAuthority.Store(true)
		if row.unmet {
			l.trust.authority.mark.LacksTerms = true
			l.network.handshakes.of(3).met.Store(false)
		}
		e := examination{Group: l.group, d: diagnosis.Diagnosis{Status: diagnosis.Status{Leader: row.leader}}}
		e.lookForAuthority()
		if c := e.d.Causes; len(c) != 1 || c[0].Code != diagnosis.CodeWithoutAuthority || !strings.Contains(c[0].Fix, row.fix) {
			t.Errorf("%s: %+v, want %q", row.name, c, row.fix)
		}
	}
}

// A leader whose only turns are those in which its core counts the quorum, and forgets who was active, still
// sees that a follower answers its pulses.
func TestQuietLeaderSeesThatFollowersAnswer(t *testing.T) {
	l := openLeader(t)
	now := l.clock.livedAtBeat()
	l.seesThird(func(v *memberView) { v.activeAt = 0 })
	l.group.leadership.quietLead.pulsed = true
	l.network.pulses.Set((*pulseLeader)(l.group), l.group.memberIDs(), 1, 0)
	for _, r := range l.network.pulses.Beat() {
		l.network.pulses.Answered(r.Peer, pulse.Answer{Life: r.Life, Version: r.Version, Known: true}, now)
	}
	l.group.notePeers()
	if d := l.group.Explain(); d.Has(diagnosis.CodeMemberSilent) {
		t.Errorf("host 3 has answered just now, and %v", d)
	}
}
