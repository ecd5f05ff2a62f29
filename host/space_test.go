package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

// loneGroup opens a group that never has a leader, on a host with little memory.
func loneGroup(t *testing.T) (*Host, *Group) {
	t.Helper()
	h, err := Open(t.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a", 2: "b", 3: "c"}, MemoryBytes: minMemoryBytes},
		WithFS(crashfs.New()), WithTransport(loopback.NewNetwork().Host(1)), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(context.Background()) })
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	return h, g
}

// A full inbox refuses with the numbers and with when to try again. Waits for space are bounded, end with
// their context, and end when calls are given up.
func TestSpaceForCalls(t *testing.T) {
	_, g := loneGroup(t)
	var taken []*Call
	var err error
	for err == nil {
		c := newEchoCaller().call(strings.Repeat("x", 100))
		if err = g.Call(c); err == nil {
			taken = append(taken, c)
		}
	}
	var o *outcome.OverloadedError
	if !errors.As(err, &o) || !errors.Is(err, outcome.ErrOverloaded) {
		t.Fatalf("error %v, want an OverloadedError", err)
	}
	if o.Commands != len(taken) || o.Bytes != int64(len(taken))*proposals.BytesOf(taken[0].Data) || o.Share != g.host.memory.waiting.Max {
		t.Errorf("%+v after %d calls of %d bytes", *o, len(taken), proposals.BytesOf(taken[0].Data))
	}
	if after, ok := outcome.RetryAfter(err); !ok || after < time.Millisecond || after > 10*time.Second {
		t.Errorf("RetryAfter is %v, %v", after, ok)
	}
	refused := newEchoCaller().call(strings.Repeat("x", 100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.WaitSpace(ctx, refused); !errors.Is(err, outcome.ErrOverloaded) || !errors.Is(err, context.Canceled) || outcome.MayHaveCommitted(err) {
		t.Errorf("error %v of a wait that ended with its context", err)
	}
	if n := g.proposals.spaceWaiters.Waiting(); n != 0 {
		t.Errorf("%d waits are left", n)
	}
	waits := make(chan error, 1)
	go func() { waits <- g.WaitSpace(t.Context(), refused) }()
	for _, c := range taken {
		if err := g.Withdraw(ctx, c); outcome.MayHaveCommitted(err) || err == nil {
			t.Errorf("error %v of a call that was given up without a leader", err)
		}
	}
	select {
	case err := <-waits:
		if err != nil {
			t.Errorf("the wait ends with %v although there is space", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the wait does not end although there is space")
	}
	if err := g.Call(refused); err != nil {
		t.Errorf("error %v although there is space", err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := g.WaitSpace(t.Context(), refused); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("error %v of a wait after the end, want ErrStopped", err)
	}
}

// The waits for space are bounded, too.
func TestSpaceWaitsAreBounded(t *testing.T) {
	_, g := loneGroup(t)
	g.inbox.memory.waiting.Hold(g.inbox.memory.waiting.Max) // nothing fits
	defer g.inbox.memory.waiting.Give(g.inbox.memory.waiting.Max)
	c := newEchoCaller().call("x")
	waits := make([]SpaceWait, proposals.MaxSpaceWaits+1)
	for i := range waits {
		g.AskSpace(&waits[i], c)
	}
	if done, _ := waits[proposals.MaxSpaceWaits-1].Poll(); done {
		t.Error("a wait within the bound has ended")
	}
	if done, err := waits[proposals.MaxSpaceWaits].Poll(); !done || !errors.Is(err, outcome.ErrOverloaded) {
		t.Errorf("%v, %v for one wait too many, want ErrOverloaded", done, err)
	}
}

// Commands that Call refuses are counted, as those of Propose are. A caller that waits for space is refused
// when its wait fails. A call that its client withdraws without a leader counts as withdrawn.
func TestRefusedCallsAreCounted(t *testing.T) {
	h, g := loneGroup(t)
	var taken []*Call
	call := func(bytes int, set func(*Call)) error {
		c := newEchoCaller().call(strings.Repeat("x", bytes))
		set(c)
		err := g.Call(c)
		if err == nil {
			taken = append(taken, c)
		}
		return err
	}
	plain, waits := func(*Call) {}, func(c *Call) { c.Waits = true }
	for call(100, plain) == nil {
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newEchoCaller().call(strings.Repeat("x", 100))
	c.Waits = true
	err := errors.Join(call(100, waits), call(100, waits), g.WaitSpace(ctx, c))
	err = errors.Join(err, call(g.config.MaxCommandBytes+1, plain), call(1, func(c *Call) { c.Here = true }))
	r := g.Metrics().Proposals.Refused
	if r.Overloaded != 2 || r.TooLarge != 1 || r.NotLeader != 1 || r.Withdrawn+r.Other+r.Stopped != 0 {
		t.Errorf("%+v are counted; the errors: %v", r, err)
	}
	if n := g.proposals.overload.Commands.Load().N; n != 2 {
		t.Errorf("Explain knows %d commands that were refused, want 2", n)
	}
	for _, c := range taken {
		_ = g.Withdraw(ctx, c)
	}
	h.Close(context.Background())
	if r := g.Metrics().Proposals.Refused; r.Withdrawn != uint64(len(taken)) || r.Stopped+r.Other != 0 || r.NotLeader != 1 {
		t.Errorf("after %d withdrawals and Close: %+v", len(taken), r)
	}
}
