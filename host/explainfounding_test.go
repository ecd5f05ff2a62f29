package host

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/raft/raftpb"
)

// says demands that Explain names the founding, with these words and this advice; "": that it names nothing.
func (l *testHost) says(when, evidence, fix string) {
	l.t.Helper()
	d := l.group.Explain()
	if evidence == "" {
		if !d.Healthy {
			l.t.Errorf("%s: %v", when, d)
		}
		return
	}
	if len(d.Causes) != 1 || d.Causes[0].Code != diagnosis.CodeNotFounded || !strings.Contains(d.Causes[0].Evidence, evidence) || !strings.Contains(d.Causes[0].Fix, fix) {
		l.t.Errorf("%s: %v\nwant %q, and the advice %q", when, d, evidence, fix)
	}
}

// openFounder opens host 2 of three, which has met the others, and no group is founded.
func openFounder(t *testing.T) *testHost {
	l := openTestHostWith(t, 3, func(c *Config) { c.ID = 2 })
	t.Cleanup(func() { _ = l.Close(over()) })
	return l
}

// restart starts the group again, in a life in which no other host was met yet.
func (l *testHost) restart() {
	l.reopen()
	for _, p := range l.network.handshakes.All() {
		p.Met.Store(false)
	}
	l.group.life.roleTimes.Opened.Store(l.clock.awakeAtBeat())
	l.manual.runIdle()
}

// founders lets election timeouts pass in which only these hosts are heard. Host 1 leads in a term, if it is
// among them and the term is not 0.
func (l *testHost) founders(timeouts int, term uint64, heard ...uint64) {
	for range timeouts * l.config.electionTicks() {
		l.manual.tick()
		for _, id := range heard {
			if id == 1 && term > 0 {
				(*inbound)(l.Host).Receive(1, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Term: term}))
			} else {
				(*inbound)(l.Host).Receive(id, nil)
			}
		}
		l.manual.runIdle()
	}
}

// A member that starts again before all founders have met names those that it has not heard in this life, and
// nothing when the founding is over.
func TestExplainOfAFounderThatStartsAgain(t *testing.T) {
	l := openFounder(t)
	l.restart()
	l.founders(3, 0, 1)
	l.says("before found", "host 3 was not heard since this host has started; every founding", "start every member once")
	l.founders(1, 0, 1, 3)
	l.says("all have met", "its first leader is being elected", "look at the other members: all were met")

	found := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: 1, Commit: 2, Entries: []raftpb.Entry{{Index: 1, Term: 1}, foundAt(2, 1, l.bindingOf(0))}}
	(*inbound)(l.Host).Receive(1, envelopes(theGroup, found))
	l.manual.runIdle()
	l.says("found is here, and the leader waits", "host 1 leads, and knows which members do not have the founding entry yet", "ask Explain on host 1")

	l.restart()
	l.founders(3, 1, 1)
	l.says("started again behind found", "host 3 was not heard since this host has started; every founding", "start every member once")
	l.founders(1, 1, 1, 3)
	l.says("all have met again", "host 1 leads", "ask Explain on host 1")
	founded := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: 1, LogTerm: 1, Index: 2, Commit: 3, Entries: []raftpb.Entry{foundedAt(3, 1)}}
	(*inbound)(l.Host).Receive(1, envelopes(theGroup, founded))
	l.manual.runIdle()
	l.says("founded", "", "")
	l.restart()
	l.founders(3, 1, 1)
	l.says("started again behind founded", "", "")
}

// Hosts that were met and then went down are named, and no election that they cannot take part in.
func TestExplainNamesFoundersThatWentDown(t *testing.T) {
	l := openFounder(t)
	l.founders(3, 0, 1)
	l.says("host 3 is down", "no leader is known, and host 3 is not heard now; every founding", "start every member once")
	l.founders(1, 0, 1, 3)
	l.says("host 3 is back", "its first leader is being elected", "all were met")
	if f := l.group.Founding(); len(f.Silent) > 0 || f.Leader != 0 {
		t.Errorf("%+v", f)
	}
}

// A leader that waits for a member to write the founding entry says whether that host is there.
func TestExplainOfALeaderThatFounds(t *testing.T) {
	l := openTestHost(t, 3)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.electInUnfounded()
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
	answer := func(timeouts int, third bool) {
		for range timeouts * l.config.electionTicks() {
			l.manual.tick()
			l.from(2, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
			if third {
				l.from(3, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
			}
		}
	}
	answer(3, true)
	l.says("host 3 lives", "host 3 does not have the founding entry on its disk yet; every founding", "look at the logs of the hosts that lack")
	answer(3, false)
	l.says("host 3 is down", "host 3 does not have the founding entry on its disk yet, and is not heard now; every founding", "start every member once")
	answer(1, true)
	l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 2})
	l.from(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 3})
	l.from(3, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: 3})
	answer(1, true)
	l.says("founded", "", "")
}

// A member that waits with others, none of which may vote yet, asks whether they are alive.
func TestFounderAsksWhetherOthersAreAlive(t *testing.T) {
	l, c := openAlone(t, 3)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.meet()
	for _, p := range l.network.handshakes.All() {
		p.Ready.Store(true)
	}
	c.bodies = nil
	l.silence(2)
	asked := map[uint64]bool{}
	for _, b := range c.bodies {
		asked[b.to] = asked[b.to] || len(b.body) == 2 && b.body[1]&greetsAsk != 0
	}
	if !asked[2] || !asked[3] {
		t.Errorf("asked: %v", asked)
	}
}
