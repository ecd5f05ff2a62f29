package host

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// appliedTransport records the records about what is applied.
type appliedTransport struct {
	*recordingTransport
	t      *testing.T
	sent   []controlRecord
	pulses map[uint64]pulse.Record // the last to each host
}

type controlRecord struct {
	to   uint64
	kind byte
	leadership.AppliedRecord
}

func (o *appliedTransport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if kind == transport.Pulse {
		if r, err := pulse.Decode(body); err != nil {
			o.t.Fatalf("a pulse of ours: %v", err)
		} else if r.Pulses {
			o.pulses[to] = r
		}
	}
	if kind != transport.Control || body[0] != control.AppliedQuestion && body[0] != control.AppliedAnswer {
		return true
	}
	r, err := leadership.DecodeApplied(body)
	if err != nil {
		o.t.Fatalf("a record of ours: %v", err)
	}
	o.sent = append(o.sent, controlRecord{to, body[0], r})
	return true
}

// takeControl returns what was sent since the last call.
func (o *appliedTransport) takeControl() (sent []controlRecord) {
	sent, o.sent = o.sent, nil
	return sent
}

// stuckHost is a testHost whose state machine is not called until release.
type stuckHost struct {
	*testHost
	control *appliedTransport
	release func()
	last    uint64 // index of the last entry
	term    uint64
}

func openControlHost(t *testing.T, voters int) *stuckHost {
	t.Helper()
	out := &appliedTransport{recordingTransport: &recordingTransport{}, t: t, pulses: map[uint64]pulse.Record{}}
	l := &stuckHost{testHost: openTestHost(t, voters, WithTransport(out)), control: out, release: func() {}}
	l.out = out.recordingTransport
	return l
}

// openStuckHost makes a host lead whose state machine is stuck at the entry begun+1, and whose log ends with
// it. All members have acknowledged it.
func openStuckHost(t *testing.T, voters int) *stuckHost {
	t.Helper()
	l := openControlHost(t, voters)
	l.lead()
	l.release = l.holdApply()
	l.last, l.term = begun, 1
	l.commitOne()
	if s := l.group.Status(); s.Committed != l.last || s.Applied != begun {
		t.Fatalf("setup: %+v, want a committed entry that is not applied", s)
	}
	return l
}

// commitOne commits one command that all members acknowledge.
func (l *stuckHost) commitOne() {
	l.t.Helper()
	l.submit("x")
	l.manual.runIdle()
	l.last++
	for _, id := range l.others() {
		l.ack(id, l.last)
	}
}

// commitBehind commits two commands, of which one member acknowledges the first only.
func (l *stuckHost) commitBehind(behind uint64) {
	l.t.Helper()
	for range 2 {
		l.submit("y")
	}
	l.manual.runIdle()
	l.last += 2
	for _, id := range l.others() {
		if id == behind {
			l.ack(id, l.last-1)
		} else {
			l.ack(id, l.last)
		}
	}
}

func (l *stuckHost) ack(id, index uint64) {
	m := raftpb.Message{Type: raftpb.MsgAppResp, Term: l.term, Index: index, From: id, To: 1}
	(*inbound)(l.Host).Receive(id, envelopes(theGroup, m))
	l.manual.runIdle()
}

// controls passes a record about what is applied from a host.
func (l *stuckHost) controls(from uint64, kind byte, r leadership.AppliedRecord) {
	(*inbound)(l.Host).Deliver(from, transport.Control, r.Encode(kind))
	l.manual.runIdle()
}

// pass passes ticks, in which members answer heartbeats and pulses, and f the questions. It returns to whom
// the leader has handed over.
func (l *stuckHost) pass(ticks int, f func(controlRecord)) (to uint64) {
	for range ticks {
		l.manual.tick()
		for _, q := range l.control.takeControl() {
			if f(q); l.transferee() != raft.None {
				return l.transferee()
			}
		}
		for _, id := range l.others() {
			if r, ok := l.control.pulses[id]; ok {
				a := pulse.Record{Answers: true, Answer: pulse.Answer{Life: r.Life, Version: r.Version, Known: true}}
				(*inbound)(l.Host).Deliver(id, transport.Pulse, a.Append(nil))
			}
		}
		if l.transferee() != raft.None {
			return l.transferee()
		}
		l.out.mu.Lock()
		sent := l.out.sent
		l.out.sent = nil
		l.out.mu.Unlock()
		for _, m := range sent {
			if m.Type == raftpb.MsgHeartbeat {
				(*inbound)(l.Host).Receive(m.To, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context, From: m.To, To: 1}))
			}
		}
		l.manual.runIdle()
	}
	if s := l.group.Status(); s.Role != event.RoleLeader {
		l.t.Errorf("the host does not lead any more: %+v", s)
	}
	return raft.None
}

func (l *stuckHost) transferee() uint64 { return l.group.core.node.BasicStatus().LeadTransferee }

// answer answers a question: the member has applied through an index.
func (l *stuckHost) answer(q controlRecord, applied uint64) {
	r := q.AppliedRecord
	r.Applied = applied
	l.controls(q.to, control.AppliedAnswer, r)
}

// To whom a leader hands over whose state machine is stuck at entry begun+1.
func TestStuckLeaderHandsOverToOneThatIsAhead(t *testing.T) {
	const through = begun + 1
	ahead := func(ids ...uint64) func(*stuckHost, controlRecord) {
		return func(l *stuckHost, q controlRecord) {
			applied := uint64(begun)
			for _, id := range ids {
				if id == q.to {
					applied = through
				}
			}
			l.answer(q, applied)
		}
	}
	for _, row := range []struct {
		name   string
		answer func(*stuckHost, controlRecord)
		to     uint64
	}{
		{"one is ahead", ahead(3), 3},
		{"no member is ahead", ahead(), raft.None},
		{"no answer", func(*stuckHost, controlRecord) {}, raft.None},
		{"it is ahead at one question in two", func(l *stuckHost, q controlRecord) { l.answer(q, begun+q.Number%2) }, raft.None},
		{"it answers one question in two", func(l *stuckHost, q controlRecord) {
			if q.Number%2 == 1 {
				l.answer(q, through)
			}
		}, 2}, // the latest, and an earlier one
		{"late answers", func(l *stuckHost, q controlRecord) {
			if q.Number--; q.Number > 0 {
				l.answer(q, through)
			}
		}, raft.None},
		{"answers in another term", func(l *stuckHost, q controlRecord) {
			q.Term++
			l.answer(q, through)
		}, raft.None},
		{"answers of a host that is no member", func(l *stuckHost, q controlRecord) {
			q.to = 9
			l.answer(q, through)
		}, raft.None},
		{"its own machine goes on after the first question", func(l *stuckHost, q controlRecord) {
			l.answer(q, through)
			l.release()
			if q.Number > 1 {
				l.t.Error("a leader whose state machine works asks again")
			}
		}, raft.None},
		{"one that does not take entries is ahead", func(l *stuckHost, q controlRecord) {
			if l.last == through { // and so is behind
				l.submit("y")
				l.manual.runIdle()
				l.last++
			}
			if q.to == 3 {
				l.ack(2, l.last)
				l.answer(q, l.last)
			}
		}, raft.None},
		{"one that was ahead does not answer any more", func(l *stuckHost, q controlRecord) {
			switch {
			case q.to == 2:
				return
			case q.Number == 1:
				l.submit("y")
				l.manual.runIdle()
				l.last++
				l.ack(2, l.last)
			case q.Number == 3:
				l.ack(3, l.last)
			}
			if q.Number <= 2 {
				l.answer(q, l.last)
			}
		}, raft.None},
		{"its machine is stuck again, at a later entry", func(l *stuckHost, q controlRecord) {
			l.answer(q, through)
			if l.last == through {
				l.release()
				l.release = l.holdApply()
				l.commitOne()
			}
		}, raft.None},
		{"of two that are ahead, one has the whole log", func(l *stuckHost, q controlRecord) {
			if q.to == 2 {
				return // both answer at once
			}
			l.commitBehind(2)
			for _, id := range l.others() {
				a := q.AppliedRecord
				a.Applied = through
				(*inbound)(l.Host).Deliver(id, transport.Control, a.Encode(control.AppliedAnswer))
			}
			l.manual.runIdle()
		}, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := openStuckHost(t, 3)
			to := l.pass(12*l.config.electionTicks(), func(q controlRecord) {
				if q.kind == control.AppliedQuestion {
					row.answer(l, q)
				}
			})
			if to != row.to {
				t.Errorf("it hands over to %d, want %d (0: to none)", to, row.to)
			}
			l.release()
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A hand-over that does not succeed is repeated, and not before two election timeouts have passed.
func TestStuckLeaderRestsBetweenHandOvers(t *testing.T) {
	l := openStuckHost(t, 3)
	var at []int64
	for len(at) < 4 {
		if l.pass(12*l.config.electionTicks(), func(q controlRecord) { l.answer(q, l.last) }) == raft.None {
			t.Fatalf("hand-overs at the ticks %v, and no other", at)
		}
		at = append(at, l.group.core.at.Ticks)
		for l.transferee() != raft.None { // the core gives it up after an election timeout
			l.pass(1, func(controlRecord) {})
		}
	}
	for i := 1; i < len(at); i++ {
		if rest := at[i] - at[i-1]; rest < int64(2*l.config.electionTicks()) {
			t.Errorf("hand-overs at the ticks %v, want %d between two", at, 2*l.config.electionTicks())
		}
	}
	l.release()
}

// A leader asks nothing while its state machine works, and nothing when it waits for no entry.
func TestLeaderWithoutAStuckMachineAsksNothing(t *testing.T) {
	l := openControlHost(t, 3)
	l.lead()
	l.last, l.term = begun, 1
	for range 40 {
		l.commitOne()
		if to := l.pass(3, func(q controlRecord) { t.Errorf("it asks: %+v", q) }); to != raft.None {
			t.Fatalf("it hands over to %d", to)
		}
	}
	l.pass(12*l.config.electionTicks(), func(q controlRecord) { t.Errorf("it asks although nothing waits: %+v", q) })
}

// What a member answers to host 2, which asks what it has applied.
func TestMemberSaysWhatItHasApplied(t *testing.T) {
	const term, applied = 1, 4
	for _, row := range []struct {
		name    string
		before  func(*stuckHost)
		from    uint64
		asks    leadership.AppliedRecord
		answers bool
		applied uint64
	}{
		{"its leader", func(*stuckHost) {}, 2, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 7}, true, applied},
		{"its leader, while its own machine is stuck", func(l *stuckHost) {
			l.release = l.holdApply()
			l.commit(theGroup, applied+1, applied+3)
		}, 2, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 8}, true, applied},
		{"another host", func(*stuckHost) {}, 3, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 7}, false, 0},
		{"a host that is unknown", func(*stuckHost) {}, 9, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 7}, false, 0},
		{"its leader of another term", func(*stuckHost) {}, 2, leadership.AppliedRecord{Group: theGroup, Term: term + 1, Number: 7}, false, 0},
		{"its leader, about another group", func(*stuckHost) {}, 2, leadership.AppliedRecord{Group: 8, Term: term, Number: 7}, false, 0},
		{"its leader, beside a full disk", func(l *stuckHost) { l.group.writes.append.Full.Store(true) }, 2, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 7}, false, 0},
		{"its leader, after its end", func(l *stuckHost) { l.group.fail(errors.New("broken")) }, 2, leadership.AppliedRecord{Group: theGroup, Term: term, Number: 7}, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := openControlHost(t, 3)
			l.commit(theGroup, 1, applied+1)
			if s := l.group.Status(); s.Applied != applied || s.Leader != 2 {
				t.Fatalf("setup: %+v", s)
			}
			row.before(l)
			l.control.takeControl()
			l.controls(row.from, control.AppliedQuestion, row.asks)
			want := "[]"
			if row.answers {
				r := row.asks
				r.Applied = row.applied
				want = fmt.Sprint([]controlRecord{{2, control.AppliedAnswer, r}})
			}
			if have := fmt.Sprint(l.control.takeControl()); have != want {
				t.Errorf("the answer is %v, want %v", have, want)
			}
			l.release()
		})
	}
}

// A member that is asked again before its turn answers the latest question only, so what waits is bounded.
func TestQuestionsReplaceEachOther(t *testing.T) {
	l := openControlHost(t, 3)
	l.commit(theGroup, 1, 3)
	for n := range uint64(100) {
		for from := uint64(2); from <= 3; from++ {
			for _, kind := range []byte{control.AppliedQuestion, control.AppliedAnswer} {
				r := leadership.AppliedRecord{Group: theGroup, Term: 1, Number: n}
				(*inbound)(l.Host).Deliver(from, transport.Control, r.Encode(kind))
			}
		}
	}
	in := &l.group.inbox.waiting
	if q, a := len(in.questions), len(in.applied); q != 2 || a != 2 {
		t.Errorf("%d questions and %d answers wait, want 2 of each", q, a)
	}
	l.manual.runIdle()
	if sent := l.control.takeControl(); len(sent) != 1 || sent[0].Number != 99 {
		t.Errorf("the answers are %+v, want one to question 99", sent)
	}
}
