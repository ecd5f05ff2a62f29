package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// pulseHost is a testHost whose pulses are recorded, and decoded. The test plays the other hosts.
type pulseHost struct {
	*testHost
	sent map[uint64]pulse.Record // the last to each host
}

// pulseTransport records pulses.
type pulseTransport struct {
	*recordingTransport
	host *pulseHost
}

func (o *pulseTransport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if kind != transport.Pulse {
		return true
	}
	r, err := pulse.Decode(body)
	if err != nil {
		o.host.t.Fatalf("a pulse of ours: %v", err)
	}
	o.host.sent[to] = r
	return true
}

func openPulseHost(t *testing.T, voters int, change func(*Config), options ...Option) *pulseHost {
	t.Helper()
	p := &pulseHost{sent: map[uint64]pulse.Record{}}
	out := &recordingTransport{}
	p.testHost = openTestHostWith(t, voters, change, append(options, WithTransport(&pulseTransport{out, p}))...)
	p.out = out
	return p
}

// from passes messages of a host to the group.
func (p *pulseHost) from(host uint64, messages ...raftpb.Message) {
	for _, m := range messages {
		m.From, m.To = host, 1
		(*inbound)(p.Host).Receive(host, []transport.Envelope{{Group: theGroup, Message: m}})
	}
	p.manual.runIdle()
}

// pulse passes a record of a host to this one.
func (p *pulseHost) pulse(host uint64, r pulse.Record) {
	(*inbound)(p.Host).Deliver(host, transport.Pulse, r.Append(nil))
	p.manual.runIdle()
}

// leadInTerm1 makes the host lead, with all that it has committed everywhere.
func (p *pulseHost) leadInTerm1() {
	p.t.Helper()
	p.lead()
	for id := range p.config.Members {
		if id != 1 {
			p.from(id, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun})
		}
	}
}

// beats passes ticks, in which every other host answers heartbeats, until the leader is pulsed.
func (p *pulseHost) untilPulsed() {
	p.t.Helper()
	for range 100 {
		if p.group.leadership.quietLead.pulsed {
			return
		}
		p.manual.tick()
		for _, m := range p.out.take(raftpb.MsgHeartbeat) {
			p.from(m.To, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context})
		}
	}
	p.t.Fatal("a quiet leader is not pulsed")
}

// followIn makes the host follow host 2 in a term.
func (p *pulseHost) followIn(term uint64) {
	p.t.Helper()
	p.from(2, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: term})
	if s := p.group.Status(); s.Leader != 2 || s.Term != term {
		p.t.Fatalf("the host does not follow: %+v", s)
	}
}

// cover sends a list with the group.
func (p *pulseHost) cover(version, term uint64) {
	p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: version, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: term, Commit: 0}}})
}

// campaigns reports whether the host asks for pre-votes within some ticks, in each of which f is called.
func (p *pulseHost) campaigns(ticks int, f func(tick int)) bool {
	for i := range ticks {
		p.manual.tick()
		f(i)
		if p.group.Status().Role != event.RoleFollower {
			return true
		}
	}
	return false
}

// A follower that a list covers stays quiet while the list is heard, and campaigns after that.
func TestPulsesKeepAFollower(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.followIn(3)
	p.cover(1, 3)
	if p.campaigns(1000, func(tick int) {
		if tick%ticksPerHeartbeat == 0 {
			p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
		}
	}) {
		t.Fatal("a follower whose leader is heard campaigns")
	}
	if !p.campaigns(1000, func(int) {}) {
		t.Fatal("a follower whose leader is not heard does not campaign")
	}
}

// What does not keep a follower: pulses of a version, a life, a term or a host that is not its leader's.
func TestOtherPulsesDoNotKeepAFollower(t *testing.T) {
	for _, row := range []struct {
		name string
		pulse.Record
		from uint64
	}{
		{"another version", pulse.Record{Life: 5, Version: 2}, 2},
		{"an old version", pulse.Record{Life: 5, Version: 0}, 2},
		{"another life", pulse.Record{Life: 4, Version: 1}, 2},
		{"another host", pulse.Record{Life: 5, Version: 1}, 3},
		{"another term", pulse.Record{Life: 5, Version: 2, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: 2, Commit: 0}}}, 2},
		{"a term to come", pulse.Record{Life: 5, Version: 2, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: 4, Commit: 0}}}, 2},
		{"a commit index to come", pulse.Record{Life: 5, Version: 2, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: 3, Commit: 9}}}, 2},
		{"a list of another host", pulse.Record{Life: 5, Version: 1, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: 3, Commit: 0}}}, 3},
		{"a list without the group", pulse.Record{Life: 5, Version: 2, HasList: true, Lines: []pulse.Line{{Group: theGroup + 1, Term: 3, Commit: 0}}}, 2},
		{"an empty list", pulse.Record{Life: 5, Version: 2, HasList: true}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := openPulseHost(t, 3, func(*Config) {})
			p.followIn(3)
			p.cover(1, 3)
			row.Pulses = true
			if !p.campaigns(200, func(int) { p.pulse(row.from, row.Record) }) {
				t.Fatal("the follower is kept")
			}
		})
	}
}

// A covered follower of a new leader is not kept by the pulses of the old one.
func TestOldCoverEndsWithItsTerm(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.followIn(3)
	p.cover(1, 3)
	p.from(3, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 4})
	if s := p.group.Status(); s.Leader != 3 {
		t.Fatalf("it does not follow host 3: %+v", s)
	}
	if !p.campaigns(200, func(int) { p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1}) }) {
		t.Fatal("a follower is kept by the pulses of its former leader")
	}
}

// A group that is closed, has stopped or follows no more is an exception in each answer, until a new list.
func TestStoppedFollowerIsAnException(t *testing.T) {
	for _, row := range []struct {
		name string
		stop func(p *pulseHost)
	}{
		{"stopped", func(p *pulseHost) { p.group.fail(errors.New("broken")) }},
		{"closed", func(p *pulseHost) { _ = p.group.Close(gone(p.t)) }},
		{"follows another", func(p *pulseHost) { p.from(3, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 4}) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := openPulseHost(t, 3, func(*Config) {})
			p.followIn(3)
			p.cover(1, 3)
			if a, ok := p.network.receiver.Answer(2); !ok || !a.Known || len(a.Excluded) > 0 {
				t.Fatalf("the answer is %+v, %v; want it without exceptions", a, ok)
			}
			row.stop(p)
			p.manual.runIdle()
			for range 3 {
				p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
				if a, ok := p.network.receiver.Answer(2); !ok || !a.Known || len(a.Excluded) != 1 || a.Excluded[0] != theGroup {
					t.Fatalf("the answer is %+v, %v; want the group as an exception", a, ok)
				}
			}
			p.cover(2, 3)
			if a, ok := p.network.receiver.Answer(2); !ok || !a.Known || len(a.Excluded) != 1 {
				t.Fatalf("the answer to a new list is %+v, %v; want the group as an exception", a, ok)
			}
		})
	}
}

// A group that has stopped is in no list, also if its last turn, which was under way, puts it there.
func TestStoppedLeaderIsNotVouchedFor(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.leadInTerm1()
	p.untilPulsed()
	p.group.fail(errors.New("broken"))
	p.network.pulses.Set((*pulseLeader)(p.group), p.group.memberIDs(), 1, 1) // as leadQuietly does at the end of a turn
	p.sent = map[uint64]pulse.Record{}
	for range 3 * ticksPerHeartbeat {
		p.manual.tick()
	}
	if r := p.sent[2]; r.Pulses {
		t.Fatalf("a pulse vouches for a group that has stopped: %+v", r)
	}
}

// answerFor answers the latest pulse to a host, as that host would.
func (p *pulseHost) answerFor(host uint64, excepted ...uint64) {
	if r := p.sent[host]; r.Pulses {
		p.pulse(host, pulse.Record{Answers: true, Answer: pulse.Answer{Life: r.Life, Version: r.Version, Known: true, Excluded: excepted}})
	}
}

// A leader stays while a quorum is covered. If the hosts of its followers live, but their members of the
// group do not, it steps down: an answer that excepts a group says nothing of its presence.
func TestExceptionsAreNoQuorum(t *testing.T) {
	for _, row := range []struct {
		name  string
		stays bool
		two   []uint64
		three []uint64
	}{
		{"both follow", true, nil, nil},
		{"one follows", true, nil, []uint64{theGroup}},
		{"none follows", false, []uint64{theGroup}, []uint64{theGroup}},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := openPulseHost(t, 3, func(*Config) {})
			p.leadInTerm1()
			p.untilPulsed()
			for range 500 {
				p.manual.tick()
				p.answerFor(2, row.two...)
				p.answerFor(3, row.three...)
				p.sent = map[uint64]pulse.Record{}
			}
			if leads := p.group.Status().Role == event.RoleLeader; leads != row.stays {
				t.Fatalf("the host leads: %v, want %v", leads, row.stays)
			}
		})
	}
}

// A leader that has a turn in each tick, because it refuses commands for instance, counts the answers that
// come later in the same tick.
func TestBusyTurnsLoseNoAnswer(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.leadInTerm1()
	p.untilPulsed()
	for tick := range 500 {
		p.manual.tick()
		p.group.wake()
		p.manual.runIdle()
		p.answerFor(2)
		p.answerFor(3)
		p.sent = map[uint64]pulse.Record{}
		if p.group.Status().Role != event.RoleLeader {
			t.Fatalf("after %d ticks the leader has stepped down, although both followers answer", tick)
		}
	}
}

func gone(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A group whose shard hangs is in no list, and the answers to such a list do not count for it when the shard
// works again.
func TestAnswersDoNotCountForAHungShard(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.leadInTerm1()
	p.untilPulsed()
	beat := func() pulse.Record {
		for _, r := range p.network.pulses.Beat() {
			p.sent[r.Peer] = r.Record
		}
		return p.sent[2]
	}
	w, active := p.worker(), 0
	count := func(uint64, int64) { active++ }
	if r := beat(); len(r.Lines) != 1 {
		t.Fatalf("the list is %+v, want the group", r)
	}
	p.group.wake()
	seat, _, _ := w.Begin()
	p.manual.now += 2 * p.config.HeartbeatInterval
	if r := beat(); !r.Pulses || !r.HasList || len(r.Lines) != 0 {
		t.Fatalf("the list is %+v, want none of the shard that hangs", r)
	}
	p.network.pulses.Answered(2, pulse.Answer{Life: p.sent[2].Life, Version: p.sent[2].Version, Known: true}, 1000)
	w.End(seat, false, never)
	if p.network.pulses.Active((*pulseLeader)(p.group), 0, count); active > 0 {
		t.Fatal("an answer to a list without the group counts for it")
	}
	if r := beat(); len(r.Lines) != 1 {
		t.Fatalf("the list is %+v, want the group again", r)
	}
	p.network.pulses.Answered(2, pulse.Answer{Life: p.sent[2].Life, Version: p.sent[2].Version, Known: true}, 1001)
	if p.network.pulses.Active((*pulseLeader)(p.group), 1001, count); active != 1 {
		t.Fatal("an answer to the list with the group does not count")
	}
}

// With the shortest election timeout, two heartbeat intervals, a leader is not deposed by the change from
// heartbeats to pulses, whatever the phases of the hosts' beats, though a follower's host answers only at its
// next beat.
func TestPulsesWithTheShortestTimeout(t *testing.T) {
	for phase := range ticksPerHeartbeat {
		for start := range 3 * ticksPerHeartbeat {
			p := openPulseHost(t, 3, func(c *Config) {
				c.HeartbeatInterval, c.ElectionTimeout = 100*time.Millisecond, 200*time.Millisecond
			})
			for range start {
				p.manual.tick()
			}
			p.leadInTerm1()
			heard := map[uint64]pulse.Record{}
			for tick := range 300 {
				p.sent = map[uint64]pulse.Record{}
				p.manual.tick()
				for _, m := range p.out.take(raftpb.MsgHeartbeat) {
					p.from(m.To, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context})
				}
				if tick%ticksPerHeartbeat == phase {
					for id, r := range heard {
						p.pulse(id, pulse.Record{Answers: true, Answer: pulse.Answer{Life: r.Life, Version: r.Version, Known: true}})
					}
					heard = map[uint64]pulse.Record{}
				}
				for id, r := range p.sent { // it arrives behind the beat of its receiver
					heard[id] = r
				}
				if s := p.group.Status(); s.Role != event.RoleLeader {
					t.Fatalf("start %d, phase %d: after %d ticks the leader is %+v, pulsed %v", start, phase, tick, s, p.group.leadership.quietLead.pulsed)
				}
			}
			if !p.group.leadership.quietLead.pulsed {
				t.Fatal("a quiet leader is not pulsed")
			}
		}
	}
}

// A vote request finds the election clock as pulses have set it: a follower that has slept for long, and
// whose leader was heard just now, refuses.
func TestPulsesAreHeardBeforeMessages(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.followIn(3)
	p.cover(1, 3)
	for range p.config.electionTicks() - 1 { // it sleeps
		p.manual.tick()
	}
	p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
	p.manual.tick()
	p.from(3, raftpb.Message{Type: raftpb.MsgPreVote, Term: 4, Index: 9, LogTerm: 3}, raftpb.Message{Type: raftpb.MsgVote, Term: 4, Index: 9, LogTerm: 3})
	for _, m := range p.out.take(raftpb.MsgPreVoteResp) {
		if !m.Reject {
			t.Error("it would vote against a leader that was heard a tick ago")
		}
	}
	if s := p.group.Status(); s.Term != 3 || s.Leader != 2 {
		t.Errorf("it has left its leader: %+v", s)
	}
}

// No record of another host panics, and what is kept of it is bounded by its bytes.
func FuzzDeliver(f *testing.F) {
	list := pulse.Record{Pulses: true, Life: 5, Version: 7, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: 3, Commit: 0}, {Group: 9, Term: 1, Commit: 1 << 40}}}
	answer := pulse.Record{Answers: true, Answer: pulse.Answer{Life: 7, Version: 1, Known: true, Excluded: []uint64{theGroup, 4}}}
	for _, r := range []pulse.Record{list, answer, {Pulses: true, Life: 5, Version: 7}, {Answers: true, Answer: pulse.Answer{Life: 7, Version: 1}}, {}} {
		f.Add(r.Append(nil), uint8(2))
	}
	both := list
	both.Answers, both.Answer = true, answer.Answer
	f.Add(both.Append(nil), uint8(3))
	f.Add([]byte{3, 5, 7, 0xff, 0xff, 0xff, 0xff, 0x0f}, uint8(1))
	f.Fuzz(func(t *testing.T, record []byte, from uint8) {
		r, err := pulse.Decode(record)
		if err == nil {
			again, err := pulse.Decode(r.Append(nil))
			if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
				t.Fatalf("%+v was read, and is %+v (%v) when it is written and read again", r, again, err)
			}
		}
		if cap(r.Lines)*3+cap(r.Answer.Excluded) > len(record) {
			t.Fatalf("%d bytes make %d lines and %d exceptions", len(record), cap(r.Lines), cap(r.Answer.Excluded))
		}
		p := openPulseHost(t, 3, func(*Config) {})
		p.followIn(3)
		for range 3 {
			(*inbound)(p.Host).Deliver(uint64(from), transport.Pulse, record)
			p.manual.tick()
		}
		if s := p.group.Status(); s.Term != 3 || s.Leader != 2 || s.Committed != 0 || p.group.Err() != nil {
			t.Fatalf("a pulse has changed more than a clock: %+v, %v", s, p.group.Err())
		}
	})
}

// A list that comes late, after a later version without the group, covers nothing and is not answered for.
func TestLateListIsDropped(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.followIn(3)
	p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 2, HasList: true})
	p.cover(1, 3)
	if a, ok := p.network.receiver.Answer(2); !ok || !a.Known || a.Version != 2 {
		t.Errorf("the answer is %+v, %v; want one for version 2", a, ok)
	}
	if !p.campaigns(200, func(int) { p.cover(1, 3) }) {
		t.Error("a list that comes late keeps a follower")
	}
}

// Answers that were meant for an earlier life of the host, or name a version that it has not sent, keep no
// leader.
func TestOtherAnswersKeepNoLeader(t *testing.T) {
	for name, change := range map[string]func(*pulse.Answer){
		"of another life":       func(a *pulse.Answer) { a.Life++ },
		"to a version to come":  func(a *pulse.Answer) { a.Version += 5 },
		"to an earlier version": func(a *pulse.Answer) { a.Version-- },
		"that know no list":     func(a *pulse.Answer) { a.Known = false },
	} {
		t.Run(name, func(t *testing.T) {
			p := openPulseHost(t, 3, func(*Config) {})
			p.leadInTerm1()
			p.untilPulsed()
			for range 200 {
				p.manual.tick()
				for id, r := range p.sent {
					a := pulse.Answer{Life: r.Life, Version: r.Version, Known: true}
					change(&a)
					p.pulse(id, pulse.Record{Answers: true, Answer: a})
				}
			}
			if p.group.Status().Role == event.RoleLeader {
				t.Error("the leader stays")
			}
		})
	}
}

// blockingTransport blocks in SendBytes until it is released.
type blockingTransport struct {
	*recordingTransport
	entered chan struct{}
	release chan struct{}
}

func (o *blockingTransport) SendBytes(_ uint64, kind transport.Kind, _ []byte) bool {
	if kind == transport.Pulse {
		o.entered <- struct{}{}
		<-o.release
	}
	return true
}

// While a pulse is with a transport that blocks, turns put groups into the lists and take them out, and what
// other hosts say is taken.
func TestBlockedPulseStopsNoTurn(t *testing.T) {
	out := &blockingTransport{&recordingTransport{}, make(chan struct{}), make(chan struct{})}
	l := openTestHost(t, 3, WithTransport(out))
	l.out = out.recordingTransport
	l.lead()
	l.network.pulses.Set((*pulseLeader)(l.group), l.group.memberIDs(), 1, begun)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		l.sendPulses()
	}()
	for range l.others() {
		<-out.entered
		l.network.pulses.Drop((*pulseLeader)(l.group)) // hangs, if the lock is held
		l.network.pulses.Set((*pulseLeader)(l.group), l.group.memberIDs(), 1, begun)
		l.network.receiver.Receive(2, pulse.Record{Pulses: true, Life: 5, Version: 1}, 0)
		out.release <- struct{}{}
	}
	<-sent
}
