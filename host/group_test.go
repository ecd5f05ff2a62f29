package host

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

func envelopes(group uint64, m raftpb.Message) []transport.Envelope {
	return []transport.Envelope{{Group: group, Message: m}}
}

// An append that carries only a commit index is held back, and leaves when the timer fires: neither earlier
// nor never.
func TestHeldAppendLeavesWithTheTimer(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	p := l.submit("x")
	l.manual.runIdle()
	if sent := l.out.take(raftpb.MsgApp); len(sent) != 2 || sent[0].To != 2 || len(sent[0].Entries) != 1 {
		t.Fatalf("sent %v, want the command to hosts 2 and 3", sent)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if r, err := poll(t, p); err != nil || r != (outcome.Receipt{Index: begun + 1, Term: 1}) {
		t.Fatalf("got %v, %v", r, err)
	}
	if sent := l.out.take(raftpb.MsgApp); len(sent) != 0 {
		t.Fatalf("sent %v at once", sent)
	}
	if l.manual.fireTimers() == 0 {
		t.Fatal("no timer is set")
	}
	sent := l.out.take(raftpb.MsgApp)
	if len(sent) == 0 || sent[0].Commit != begun+1 || len(sent[0].Entries) != 0 {
		t.Fatalf("sent %v, want the commit index 4", sent)
	}
	if l.manual.fireTimers() != 0 {
		t.Error("the timer is set although nothing is held back")
	}
}

// A held append goes with the next append, and its timer then finds nothing.
func TestHeldAppendGoesWithTheNext(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	l.submit("x")
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	l.out.take(raftpb.MsgApp)
	l.submit("y")
	l.manual.runIdle()
	for _, m := range l.out.take(raftpb.MsgApp) {
		if m.To == 2 && (m.Commit != begun+1 || len(m.Entries) != 1) {
			t.Errorf("sent %+v, want one entry with commit index 4", m)
		}
	}
	l.manual.fireTimers()
	for _, m := range l.out.take(raftpb.MsgApp) {
		if m.To == 2 {
			t.Errorf("sent %+v again", m)
		}
	}
}

// Status is the state after the last turn, even if that turn had nothing to write, send or apply.
func TestStatusIsOfTheLastTurn(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			l := openTestHost(t, 1, WithPipeline(p))
			l.lead()
			l.submit("x")
			l.manual.runIdle()
			if s := l.group.Status(); s.Applied != begun+1 || s.Durable != begun+1 || s.Committed != begun+1 || s.LastIndex != begun+1 || s.AppliedCommands != 1 {
				t.Errorf("all is done, and the status is %+v", s)
			}
		})
	}
}

// bogusAnswer is an answer that no apply lane gives: it says that entries were applied which the lane never
// got.
var bogusAnswer = raftpb.Message{
	Type: raftpb.MsgStorageApplyResp, From: raft.LocalApplyThread, To: 1, Entries: []raftpb.Entry{{Index: 1 << 40, Term: 1}},
}

// A broken invariant in the middle of a turn stops the group, and all clients are answered: those in the log,
// those taken in the same turn, and those that come later.
func TestBrokenInvariantAnswersEveryone(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	inLog := l.submit("in the log")
	l.manual.runIdle()
	taken := []Pending{l.submit("taken"), l.submit("taken too")}
	l.group.inbox.enqueueAnswers([]raftpb.Message{bogusAnswer})
	l.manual.runIdle()
	var broken *raft.BrokenInvariant
	if !errors.As(l.group.Err(), &broken) {
		t.Fatalf("the group stopped with %v", l.group.Err())
	}
	if _, err := poll(t, inLog); !errors.Is(err, outcome.ErrIndeterminate) || !errors.As(err, &broken) {
		t.Errorf("in the log: %v", err)
	}
	for _, p := range taken {
		if _, err := poll(t, p); !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
			t.Errorf("taken: %v", err)
		}
	}
	if _, err := l.group.Submit([]byte("late")); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("late: %v", err)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A message that a peer has garbled or made up is refused at the gate, and neither log nor group suffer.
func TestLyingPeerDoesNotStopTheGroup(t *testing.T) {
	entry := func(typ raftpb.EntryType, index uint64) []raftpb.Entry {
		return []raftpb.Entry{{Index: index, Term: 1, Type: typ, Data: []byte("x")}}
	}
	const far = 1<<64 - 1
	for _, m := range []raftpb.Message{
		{Type: raftpb.MsgApp, Term: 1, Entries: entry(256, 1)},
		{Type: raftpb.MsgApp, Term: 1, Entries: entry(-1, 1)},
		{Type: raftpb.MsgApp, Term: 1, Entries: entry(0, 2)},
		{Type: raftpb.MsgApp, Term: 1, Entries: entry(0, 0)},
		{Type: raftpb.MsgApp, Term: 1, Index: far, LogTerm: 1, Entries: entry(0, 0)},
		{Type: raftpb.MsgApp, Term: 1, Index: far, LogTerm: far, Commit: far},
		{Type: raftpb.MsgApp, Term: far, Entries: entry(0, 1)},
		{Type: raftpb.MsgHeartbeat, Term: 1, Commit: far},
		{Type: raftpb.MsgAppResp, Term: 1, Index: far},
		{Type: raftpb.MsgAppResp, Term: 1, Index: far, Reject: true, RejectHint: far, LogTerm: far},
		{Type: raftpb.MsgVote, Term: 5, Index: far, LogTerm: far},
		{Type: raftpb.MsgSnap, Term: 5, Index: far},
		{Type: raftpb.MsgProp, Entries: entry(0, 7)},
		{Type: raftpb.MsgProp, Entries: entry(300, 7)},
		{Type: raftpb.MsgProp},
		{Type: raftpb.MsgStorageAppendResp, Term: 1, Index: 9},
		{Type: raftpb.MsgStorageApplyResp, Entries: entry(0, 9)},
		{Type: raftpb.MsgHup}, {Type: raftpb.MsgTimeoutNow, Term: 1}, {Type: 99, Term: 1}, {Type: -1, Term: 1},
	} {
		for _, p := range pipeline.All {
			for _, leads := range []bool{false, true} {
				l := openTestHost(t, 3, WithPipeline(p))
				if leads {
					l.lead()
				}
				l.deliver(m)
				l.manual.tick()
				if err := l.group.Err(); err != nil {
					t.Errorf("%s, leads %t: %v made the group stop: %v", p.Name(), leads, m, err)
				}
				if err := l.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Messages that name another sender or receiver than their connection, or another group, are counted and
// dropped, and so are types that no host sends.
func TestReceiveChecksTheWay(t *testing.T) {
	l := openTestHost(t, 3)
	before := l.group.Status().Dropped
	refused := []raftpb.Message{
		{Type: raftpb.MsgHeartbeat, Term: 9, From: 3, To: 1},
		{Type: raftpb.MsgHeartbeat, Term: 9, From: 2, To: 3},
		{Type: raftpb.MsgHeartbeat, Term: 9, From: 2, To: 1, Responses: []raftpb.Message{{Entries: span(1, 2, 9)}}},
	}
	sent := []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow}
	for typ := raftpb.MessageType(-1); typ < 40; typ++ {
		if !slices.Contains(sent, typ) {
			refused = append(refused, raftpb.Message{Type: typ, Term: 9, From: 2, To: 1})
		}
	}
	for _, m := range refused {
		(*inbound)(l.Host).Receive(2, envelopes(theGroup, m))
	}
	(*inbound)(l.Host).Receive(2, envelopes(theGroup+1, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 9, From: 2, To: 1}))
	l.manual.runIdle()
	if s := l.group.Status(); s.Dropped-before != uint64(len(refused)) || s.Term != 0 {
		t.Errorf("%d were refused, want %d; term %d", s.Dropped-before, len(refused), s.Term)
	}
	if n := l.network.strays.Load(); n != 1 {
		t.Errorf("%d messages were for a group that is not open, want 1", n)
	}
	for _, typ := range sent {
		if why := l.group.rejectMessage(&raftpb.Message{Type: typ, From: 2, To: 1}, 2); why != "" {
			t.Errorf("%v is refused: %s", typ, why)
		}
	}
}
