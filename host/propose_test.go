package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft/raftpb"
)

func TestNotLeaderError(t *testing.T) {
	for _, row := range []struct {
		err  *outcome.NotLeaderError
		want string
	}{
		{&outcome.NotLeaderError{}, "millrace: not the leader; no leader is known at the moment"},
		{&outcome.NotLeaderError{Leader: 3}, "millrace: not the leader; host 3 leads"},
		{&outcome.NotLeaderError{Leader: 3, Addr: "c:1", ClientAddr: "http://c:8080"}, "millrace: not the leader; host 3 leads, and serves clients at http://c:8080"},
	} {
		if row.err.Error() != row.want {
			t.Errorf("%q", row.err)
		}
		wrapped := fmt.Errorf("outer: %w", row.err)
		if !errors.Is(wrapped, outcome.ErrNotLeader) || errors.Is(wrapped, outcome.ErrStopped) || outcome.MayHaveCommitted(wrapped) {
			t.Errorf("%v is not an ErrNotLeader alone", wrapped)
		}
	}
}

func TestFollowerNamesItsLeader(t *testing.T) {
	l := openTestHost(t, 3)
	p := l.submit("x")
	l.manual.runIdle()
	var refused *outcome.NotLeaderError
	if _, err := poll(t, p); !errors.Is(err, outcome.ErrNotFounded) {
		t.Error(err)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
	p = l.submit("x")
	l.manual.runIdle()
	if _, err := poll(t, p); !errors.As(err, &refused) || refused.Leader != 2 {
		t.Error(err)
	}
}

func TestSubmitRefusesAtOnce(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	if _, err := l.group.Submit(nil); !errors.Is(err, outcome.ErrEmpty) {
		t.Error(err)
	}
	if _, err := l.group.Propose(t.Context(), []byte{}); !errors.Is(err, outcome.ErrEmpty) {
		t.Error(err)
	}
	if _, err := l.group.Submit(make([]byte, 1<<10+1)); !errors.Is(err, outcome.ErrTooLarge) {
		t.Error(err)
	}
	p := l.submit(string(make([]byte, 1<<10)))
	l.manual.runIdle()
	if r, err := poll(t, p); err != nil || r.Index != begun+1 {
		t.Error(r, err)
	}
}

// The queue before the turn is bounded, and so are the proposals that are not answered.
func TestOverload(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	l.lead()
	kib := make([]byte, 1<<10)
	each := int64(1<<10 + proposals.OverheadBytes)
	waiting := int64(0)
	for ; waiting < 100; waiting++ {
		if _, err := l.group.Submit(kib); err != nil {
			if !errors.Is(err, outcome.ErrOverloaded) {
				t.Errorf("before the turn: %v", err)
			}
			break
		}
	}
	half := func(share int64) int64 { return (share/each + 1) / 2 }
	if most := half(l.memory.waiting.Max); waiting != most {
		t.Errorf("%d commands wait for the turn, want %d: half of the share", waiting, most)
	}
	l.manual.runIdle()
	proposed := uint64(waiting)
	for ; proposed < 100; proposed++ {
		p := l.submit(string(kib))
		l.manual.runIdle()
		if _, done, err := p.Poll(); done {
			if !errors.Is(err, outcome.ErrOverloaded) {
				t.Errorf("after the turn: %v", err)
			}
			break
		}
	}
	if most := half(l.memory.proposed.Max); proposed != uint64(most) {
		t.Errorf("%d commands are proposed, want %d: half of the share", proposed, most)
	}
	for index := uint64(begun + 1); index <= begun+proposed; index++ { // all are committed, in as many appends as it takes
		l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index})
	}
	p := l.submit("x")
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + proposed + 1})
	if r, err := poll(t, p); err != nil || r.Index != begun+proposed+1 {
		t.Errorf("when everything is answered: %v %v", r, err)
	}
}

// A deposed leader tells no client the outcome of its command until it is decided at its index.
func TestDeposedLeader(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			l := openTestHost(t, 3, WithPipeline(p))
			l.lead()
			kept, lost := l.submit("kept"), l.submit("lost")
			l.manual.runIdle()
			// Host 2 has the first of them and leads term 2; its entry replaces the second.
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: begun + 1, LogTerm: 1, Commit: begun, Entries: span(begun+2, begun+3, 2)})
			for name, w := range map[string]Pending{"kept": kept, "lost": lost} {
				if _, done, err := w.Poll(); done {
					t.Errorf("%s: told %v before anything was committed", name, err)
				}
			}
			l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2, Commit: begun + 2})
			if r, err := poll(t, kept); err != nil || r != (outcome.Receipt{Index: begun + 1, Term: 1}) {
				t.Errorf("kept: %v %v", r, err)
			}
			if _, err := poll(t, lost); !errors.Is(err, outcome.ErrDropped) || outcome.MayHaveCommitted(err) {
				t.Errorf("lost: %v", err)
			}
		})
	}
}

// The commands of a deposed leader that were in no other log are answered as soon as the next leader has
// committed one entry, even if no client proposes more.
func TestDeposedLeaderOfAnIdleGroup(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			l := openTestHost(t, 3, WithPipeline(p))
			l.lead()
			lost := []Pending{l.submit("lost"), l.submit("lost too"), l.submit("and this")}
			l.manual.runIdle()
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: begun, LogTerm: 1, Commit: begun, Entries: span(begun+1, begun+2, 2)})
			l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2, Commit: begun + 1})
			for i, w := range lost {
				if _, err := poll(t, w); !errors.Is(err, outcome.ErrDropped) || outcome.MayHaveCommitted(err) {
					t.Errorf("command %d was told %v", i, err)
				}
			}
		})
	}
}

// Any number of callers may wait for one command, before and after its outcome is known, and all get its
// outcome.
func TestWaitIsIdempotent(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	p, early := l.submit("x"), make(chan outcome.Receipt)
	for range 3 {
		go func() {
			r, _ := p.Wait(t.Context())
			early <- r
		}()
	}
	l.manual.runIdle()
	want := outcome.Receipt{Index: begun + 1, Term: 1}
	for range 3 {
		if r := <-early; r != want {
			t.Errorf("waited from the start: %v, want %v", r, want)
		}
	}
	next := l.submit("y")
	l.manual.runIdle()
	for range 2 {
		if r, err := p.Wait(t.Context()); err != nil || r != want {
			t.Errorf("waited again: %v %v, want %v", r, err, want)
		}
		if r, err := poll(t, next); err != nil || r.Index != begun+2 {
			t.Errorf("the next command: %v %v", r, err)
		}
	}
	if _, err := (Pending{}).Wait(t.Context()); err == nil {
		t.Error("a Pending of no command has an outcome")
	}
}

// A command whose context ends before its turn is certainly not proposed; after its turn it may be committed.
func TestContextEndsBeforeTheTurn(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	cause := errors.New("the user went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := l.group.Propose(ctx, []byte("withdrawn"))
		done <- err
	}()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		l.group.inbox.mu.Lock()
		waiting = len(l.group.inbox.waiting.proposals)
		l.group.inbox.mu.Unlock()
	}
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) || outcome.MayHaveCommitted(err) {
		t.Errorf("the client was told %v", err)
	}
	p := l.submit("kept")
	l.manual.runIdle()
	if r, err := poll(t, p); err != nil || r.Index != begun+1 {
		t.Errorf("the next command: %v %v, want index 2, right behind the leader's first entry", r, err)
	}
	if n := len(l.machine.entries); n != 1 {
		t.Errorf("%d commands were applied, want 1", n)
	}
}

// Close is not a failure: a supervisor that waits for Failed must not wake up.
func TestCloseIsNoFailure(t *testing.T) {
	l := openTestHost(t, 1)
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.group.Failed():
		t.Error("Failed is closed by Close")
	default:
	}
	if !errors.Is(l.group.Err(), outcome.ErrStopped) {
		t.Error(l.group.Err())
	}
}

// A wait that ends early says that the outcome is unknown, and why; a later wait gets it.
func TestContextEndsTheWait(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	cause := errors.New("the user went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := l.submit("x")
	l.manual.runIdle()
	cancel(cause)
	if _, err := p.Wait(ctx); !outcome.MayHaveCommitted(err) || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if r, err := p.Wait(t.Context()); err != nil || r != (outcome.Receipt{Index: begun + 1, Term: 1}) {
		t.Errorf("a later wait got %v %v", r, err)
	}
}

// If the outcome is known and the context has ended, the outcome wins.
func TestOutcomeCountsMoreThanTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // select takes any that is ready
		w := proposals.NewWaiter()
		w.Answer(proposals.Settlement{Receipt: outcome.Receipt{Index: 7, Term: 1}})
		if r, err := (Pending{w: w}).Wait(ctx); err != nil || r.Index != 7 {
			t.Fatal(r, err)
		}
	}
}

// A host that has stopped knows no leader, whatever it knew before.
func TestWaitLeaderOfAStoppedHost(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	if leader, err := l.group.WaitLeader(t.Context()); err != nil || leader != (Leader{ID: 1, Addr: l.config.Members[1], Self: true}) {
		t.Error(leader, err)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if leader, err := l.group.WaitLeader(t.Context()); !errors.Is(err, outcome.ErrStopped) {
		t.Error(leader, err)
	}
	if s := l.group.Status(); s.Role != event.RoleFollower || s.Leader != 0 || s.Applied != begun {
		t.Errorf("a host that has stopped says %+v", s)
	}
}

func TestPoll(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	p := l.submit("x")
	for range 2 {
		l.manual.runIdle()
		if _, done, _ := p.Poll(); done {
			t.Fatal("done before a quorum has it")
		}
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if r, done, err := p.Poll(); !done || err != nil || r != (outcome.Receipt{Index: begun + 1, Term: 1}) {
		t.Error(r, done, err)
	}
}

// Close answers all clients: commands in the log may be committed, commands that still wait for a turn
// certainly are not.
func TestCloseAnswersEveryone(t *testing.T) {
	for _, p := range pipeline.All {
		l := openTestHost(t, 3, WithPipeline(p))
		l.lead()
		inLog := l.submit("in the log")
		l.manual.runIdle()
		queued := l.submit("queued")
		for range 2 {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if _, err := poll(t, inLog); !outcome.MayHaveCommitted(err) || !errors.Is(err, outcome.ErrStopped) {
			t.Errorf("in the log: %v", err)
		}
		if _, err := poll(t, queued); !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
			t.Errorf("queued: %v", err)
		}
		if _, err := l.group.Propose(t.Context(), []byte("late")); !errors.Is(err, outcome.ErrStopped) {
			t.Errorf("late: %v", err)
		}
		if !errors.Is(l.group.Err(), outcome.ErrStopped) {
			t.Error(l.group.Err())
		}
		if l.group.Status().ID != 1 {
			t.Error("no status after Close")
		}
	}
}
