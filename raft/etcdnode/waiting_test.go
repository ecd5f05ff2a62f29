package etcdnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// start runs a call that may wait, and returns the channel for its result.
func start(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	return result
}

func wantWaiting(t *testing.T, what string, result <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		t.Errorf("%s did not wait: %v", what, err)
	default:
	}
}

func TestProposeWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t, 1, 1, nil)
		a.drain()
		proposal := start(func() error { return a.Propose(t.Context(), []byte("x")) })
		change := start(func() error {
			return a.ProposeConfChange(t.Context(), raftpb.ConfChange{Type: raftpb.ConfChangeAddLearnerNode, NodeID: 2})
		})
		wantWaiting(t, "Propose", proposal)
		wantWaiting(t, "ProposeConfChange", change)
		if err := a.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.drain()
		if err := errors.Join(<-proposal, <-change); err != nil {
			t.Error(err)
		}
		a.drain()
		if len(a.applied) != 1 {
			t.Errorf("applied %q", a.applied)
		}
	})
}

func TestAProposalThatWaitsEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t, 1, 1, nil)
		ctx, cancel := context.WithCancel(t.Context())
		proposal := start(func() error { return a.Propose(ctx, []byte("x")) })
		wantWaiting(t, "Propose", proposal)
		cancel()
		wantErr(t, "Propose", <-proposal, context.Canceled)
		a.drain()
		_ = a.Campaign(t.Context())
		a.drain()
		if len(a.applied) != 0 {
			t.Errorf("a proposal that had ended was applied: %q", a.applied)
		}
	})
}

func TestWhatWaitsForALeaderIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t, 1, 1, nil)
		var waiters []<-chan error
		for range MaxWaitingProposals {
			waiters = append(waiters, start(func() error { return a.Propose(t.Context(), []byte("x")) }))
		}
		synctest.Wait()
		wantErr(t, "one more", a.Propose(t.Context(), []byte("x")), raft.ErrProposalDropped)
		a.Stop()
		for _, w := range waiters {
			wantErr(t, "one that waited", <-w, raft.ErrStopped)
		}
		if a.waiting.count != 0 || a.waiting.bytes != 0 {
			t.Errorf("when all have gone, %d of %d bytes are counted as waiting", a.waiting.count, a.waiting.bytes)
		}
	})
}

// The first proposal waits however large it is; otherwise it could never be made.
func TestWhatWaitsForALeaderIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t, 1, 1, nil)
		large := start(func() error { return a.Propose(t.Context(), make([]byte, MaxWaitingBytes+1)) })
		wantWaiting(t, "a large proposal", large)
		wantErr(t, "one more", a.Propose(t.Context(), []byte("x")), raft.ErrProposalDropped)
		a.Stop()
		wantErr(t, "the large one", <-large, raft.ErrStopped)
	})
}

func TestStopEndsEveryCallWithErrStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := found(t, 1, 3, func(c *raft.Config) { c.AsyncStorageWrites = true })
		proposal := start(func() error { return a.Propose(t.Context(), []byte("x")) })
		wantWaiting(t, "Propose", proposal)
		if ready := a.Ready(); len(ready) != 1 || a.Err() != nil {
			t.Fatalf("a founder has %d Readys in the channel, and the error %v", len(ready), a.Err())
		}
		if err := a.Step(t.Context(), raftpb.Message{Type: raftpb.MsgVote, From: 2, To: 1, Term: 9}); err != nil {
			t.Fatal(err) // it makes a second Ready, which waits for the first
		}
		a.Stop()
		a.Stop()
		wantErr(t, "the proposal that waited", <-proposal, raft.ErrStopped)
		wantErr(t, "Err", a.Err(), raft.ErrStopped)
		for what, call := range calls(a.Local) {
			wantErr(t, what, call(t.Context()), raft.ErrStopped)
		}
		a.Tick()
		a.Advance()
		a.ReportUnreachable(2)
		if _, ok := a.poll(); ok {
			t.Error("a Ready after Stop")
		}
		if s := a.Status(); s.ID != 1 || s.Commit != 3 {
			t.Errorf("the last status: %+v", s.BasicStatus)
		}
		cs := a.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: 4})
		if len(cs.Voters) != 4 {
			t.Errorf("a consumer that applies what it took before Stop gets the configuration %v", cs)
		}
		if len(a.ready) != 0 {
			t.Error("a status of an ended node left a Ready in its channel")
		}
		<-a.Done()
	})
}

func TestAStorageFailureEndsTheNodeAndIsWhatEveryCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lied := errors.New("the disk lies")
		var failure error
		a := found(t, 1, 1, func(c *raft.Config) {
			c.AsyncStorageWrites = true
			c.Storage = &watched{Storage: c.Storage, read: func() error { return failure }}
		})
		w := &workers{app: a}
		w.drain(t)
		proposal := start(func() error { return a.Propose(t.Context(), []byte("x")) })
		wantWaiting(t, "Propose", proposal)
		failure = lied
		_ = a.Campaign(t.Context())
		w.drain(t) // elected; its first entry must be applied, and cannot be read
		<-a.Done()
		if err := <-proposal; err != nil { // it was woken by the leader, or by the end
			wantErr(t, "the proposal that waited", err, lied)
		}
		a.Stop()
		wantErr(t, "Err", a.Err(), lied)
		for what, call := range calls(a.Local) {
			wantErr(t, what, call(t.Context()), lied)
		}
		if _, ok := a.poll(); ok {
			t.Error("a Ready after the failure")
		}
	})
}

// workers does the storage work of an app in asynchronous mode, in order.
type workers struct{ *app }

func (w *workers) drain(t *testing.T) {
	for rd, ok := w.poll(); ok; rd, ok = w.poll() {
		w.handle(t, rd)
	}
}

func (w *workers) handle(t *testing.T, rd raft.Ready) {
	for _, m := range rd.Messages {
		switch m.To {
		case raft.LocalAppendThread:
			w.save(raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}, m.Entries)
		case raft.LocalApplyThread:
			w.apply(m.Entries)
		default:
			w.send(m)
		}
		for _, answer := range m.Responses {
			if answer.To != 1 {
				w.send(answer)
			} else if err := w.Step(t.Context(), answer); err != nil && w.Err() == nil {
				t.Errorf("the node refused its own worker's %v: %v", answer.Type, err)
			}
		}
	}
}

func TestAsynchronousModeIsAnsweredByStep(t *testing.T) {
	a := found(t, 1, 1, func(c *raft.Config) { c.AsyncStorageWrites = true })
	w := &workers{app: a}
	w.drain(t)
	_ = a.Campaign(t.Context())
	w.drain(t)
	for i := range 10 {
		if err := a.Propose(t.Context(), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	w.drain(t)
	if len(a.applied) != 10 {
		t.Errorf("applied %q", a.applied)
	}
	kept := a.Ready()
	if err := a.Propose(t.Context(), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for range 10 { // a kept channel brings one Ready a tick
		a.Tick()
		a.Status() // runs the tick
		for len(kept) > 0 {
			w.handle(t, <-kept)
		}
	}
	if len(a.applied) != 11 {
		t.Errorf("by a kept channel, applied %q", a.applied)
	}
}

// Without Advance, the call of Ready() alone says that a Ready is wanted: a consumer at work gets everything
// that came meanwhile in one Ready.
func TestAReadyInAsynchronousModeIsBuiltWhenAskedFor(t *testing.T) {
	w := &workers{app: found(t, 1, 1, func(c *raft.Config) { c.AsyncStorageWrites = true })}
	w.drain(t)
	_ = w.Campaign(t.Context())
	w.drain(t)
	if err := w.Propose(t.Context(), []byte("first")); err != nil {
		t.Fatal(err)
	}
	rd := <-w.ready // drain asked for it
	for range 10 {
		if err := w.Propose(t.Context(), []byte("later")); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.ready) != 0 {
		t.Error("a Ready was built while its consumer was at work")
	}
	w.handle(t, rd)
	if rd, _ = w.poll(); len(rd.Entries) != 10 {
		t.Errorf("the next Ready has %d entries, want 10", len(rd.Entries))
	}
	w.handle(t, rd)
	w.drain(t)
	if len(w.applied) != 11 {
		t.Errorf("applied %q", w.applied)
	}
}

func TestAdvanceInAsynchronousModeNamesTheRule(t *testing.T) {
	a := found(t, 1, 1, func(c *raft.Config) { c.AsyncStorageWrites = true })
	func() {
		defer func() {
			if rule, ok := recover().(*raft.BrokenInvariant); !ok || !strings.Contains(rule.Rule, "Advance belongs to synchronous mode") {
				t.Errorf("Advance in asynchronous mode panicked with %v", rule)
			}
		}()
		a.Advance()
	}()
	wantErr(t, "who recovers finds a node that has ended", a.Campaign(t.Context()), errPanicked)
}
