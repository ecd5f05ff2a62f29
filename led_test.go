package millrace_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/scratch"
)

// Each term has one leader in Led, whose machine has everything of earlier terms, and whose context ends with
// the leadership. Led ends with its context, with its loop, and with its node.
func TestLed(t *testing.T) {
	machines := map[uint64]*counter{1: {}, 2: {}, 3: {}}
	c := three(t, func(id uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(machines[id], millrace.Binary[int64]())
	})
	type led struct {
		node *millrace.Node[int64, int64]
		term uint64
		sum  int64
		ctx  context.Context
	}
	began := make(chan led)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 3)
	for i, n := range c.nodes {
		go func() {
			defer func() { ended <- i }()
			for ctx := range n.Led(ctx) {
				l := led{node: n, term: n.Status().Term, ctx: ctx}
				if err := n.ViewExclusive(ctx, millrace.Local, func() error { l.sum = machines[uint64(i+1)].N; return nil }); err != nil {
					continue // the leadership has ended already
				}
				select {
				case began <- l:
					<-ctx.Done()
				case <-ctx.Done():
				}
			}
		}()
	}
	want, last := int64(0), uint64(0)
	for range 5 {
		l := <-began
		if l.sum < want || l.term <= last {
			t.Fatalf("in term %d, after term %d, the machine has %d of %d", l.term, last, l.sum, want)
		}
		last = l.term
		for range 10 {
			if _, err := l.node.Propose(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			want++
		}
		if l.ctx.Err() != nil {
			continue // another leader has come by itself
		}
		if err := l.node.TransferLeadership(l.ctx, 0); err != nil && l.ctx.Err() == nil {
			t.Fatal(err)
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the context does not end with the leadership")
		}
		if !errors.Is(context.Cause(l.ctx), millrace.ErrNotLed) {
			t.Fatalf("the cause is %v", context.Cause(l.ctx))
		}
	}
	l := <-began
	cancel()
	for range 3 {
		<-ended
	}
	if !errors.Is(context.Cause(l.ctx), context.Canceled) {
		t.Errorf("at the end the cause is %v", context.Cause(l.ctx))
	}

	// A body that breaks ends the loop; a node that stops, too.
	c.whoLeads(t, func(*millrace.Node[int64, int64], context.Context) {})
	leader := c.whoLeads(t, func(n *millrace.Node[int64, int64], led context.Context) {
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-led.Done()
	})
	for range leader.Led(t.Context()) {
		t.Error("a node that is closed leads")
	}

	// Led of a node that waits for its turn to lead ends when it is closed, and Failed says so.
	for _, n := range c.nodes {
		if n == leader {
			continue
		}
		go func() {
			for led := range n.Led(context.Background()) {
				<-led.Done()
			}
			ended <- 0
		}()
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-n.Failed()
		<-ended
	}
}

// whoLeads calls f in a loop over Led of a node that leads, breaks it, and returns the node. The first node
// says who leads. It may know an earlier leader for a while, so it is asked again until its answer leads.
func (c *trio[C, R]) whoLeads(t *testing.T, f func(*millrace.Node[C, R], context.Context)) *millrace.Node[C, R] {
	t.Helper()
	for {
		leader, _ := c.leader(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		for led := range leader.Led(ctx) {
			f(leader, led)
			cancel()
			return leader
		}
		cancel()
	}
}

// A body that returns does not get the same term again.
func TestLedYieldsATermOnce(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel) // long enough for a second time, which would be at once
	times := 0
	for range n.Led(ctx) {
		times++
	}
	if times != 1 {
		t.Errorf("a term was yielded %d times", times)
	}
}

// WaitReady waits for the founding and a leader, and says what was missing.
func TestWaitReady(t *testing.T) {
	c := three(t, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
	})
	for _, n := range c.nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	leader, _ := c.leader(t)
	c.isolate(leader, true)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := leader.WaitReady(short); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "millrace: not ready: ") {
		t.Errorf("cut off: %v", err)
	}
	c.isolate(leader, false)

	one := alone(t)
	one.Members, one.Listen = map[uint64]string{1: scratch.Address(t), 2: "127.0.0.1:1"}, ""
	waits := open(t, one, millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	short, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := waits.WaitReady(short); !errors.Is(err, millrace.ErrNotFounded) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not founded: %v", err)
	}
}
