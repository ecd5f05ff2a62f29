package millrace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/millracetest"
)

// announcer counts commands, and publishes each number twice.
type announcer struct{ n uint64 }

func (a *announcer) Apply(batch []millrace.Command[uint64], results []uint64) error {
	for _, c := range batch {
		a.n++
		c.Publish(fmt.Appendf(nil, "%d", a.n))
		c.Publish(fmt.Appendf(nil, "again %d", a.n))
	}
	for i := range results {
		results[i] = a.n
	}
	return nil
}

func (a *announcer) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, a.n)), nil
}

func (a *announcer) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &a.n)
}

func announcers(uint64) millrace.Machine[uint64, uint64] {
	return millrace.InMemory(&announcer{}, millrace.Binary[uint64]()).Unwatched()
}

// listener checks that publications are those of an announcer, each once and in order.
type listener struct {
	t    *testing.T
	seen millrace.Bookmark
	next uint64 // so many halves of numbers are known
}

func (l *listener) hear(p millrace.Publication) {
	want := fmt.Sprint(l.next/2 + 1)
	if l.next%2 == 1 {
		want = "again " + want
	}
	if string(p.Data) != want || p.At.Compare(l.seen) <= 0 {
		l.t.Fatalf("publication %d is %q at %v, after %v; want %q", l.next, p.Data, p.At, l.seen, want)
	}
	l.next++
	l.seen = p.At
}

// listen hears so many numbers of a node, through an iterator.
func (l *listener) listen(n *millrace.Node[uint64, uint64], through uint64) {
	l.t.Helper()
	for p, err := range n.Subscribe(l.t.Context(), l.seen) {
		if err != nil {
			l.t.Fatal(err)
		}
		if l.hear(p); l.next == 2*through {
			return
		}
	}
}

// A subscriber goes from node to node with its bookmark, in the middle of a command too, across restarts,
// snapshots and a lost directory, and hears everything once.
func TestSubscribersGoFromNodeToNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := millracetest.New(t, 3, announcers)
		c.Leader(t.Context())
		said := uint64(0)
		say := func(n int) {
			for range n {
				if _, err := c.Node(c.Leader(t.Context())).Propose(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				said++
			}
		}
		l := &listener{t: t}
		say(10)
		l.listen(c.Node(1), said)
		say(5)
		for p, err := range c.Node(2).Subscribe(t.Context(), l.seen) {
			if err != nil {
				t.Fatal(err)
			}
			l.hear(p)
			break // in the middle of a command
		}
		l.listen(c.Node(3), said)
		if _, err := c.Node(2).Group().TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Kill(2)
		say(7)
		c.Restart(2)
		c.Leader(t.Context())
		early := &listener{t: t}
		early.listen(c.Node(2), said) // from before the snapshot that it began with
		l.listen(c.Node(2), said)
		for range 60 { // it sleeps for ten minutes, of the bubble
			say(3)
			<-time.After(10 * time.Second)
		}
		l.listen(c.Node(1), said)
	})
}

// A subscriber that sleeps while more is published than is kept hears from where the node goes on. The loop
// ends with the context, and with the node, and says so.
func TestSubscriberThatSleeps(t *testing.T) {
	c := alone(t)
	c.PublicationBytes = 2 << 10
	n, err := millrace.Open(t.Context(), c, announcers(1), quiet())
	if err != nil {
		t.Fatal(err)
	}
	lead(t, n)
	say := func(k int) {
		for range k {
			if _, err := n.Propose(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := func(ctx context.Context, after millrace.Bookmark) (heard int, err error) {
		for _, err = range n.Subscribe(ctx, after) {
			if err != nil {
				return heard, err
			}
			heard++
		}
		t.Fatal("the loop has ended without an error")
		return 0, nil
	}
	say(3)
	l := &listener{t: t}
	l.listen(n, 3)
	say(100)
	var forgotten *millrace.ForgottenError
	if _, err := end(t.Context(), l.seen); !errors.As(err, &forgotten) || !errors.Is(err, millrace.ErrForgotten) || forgotten.After != l.seen || forgotten.First.Compare(l.seen) <= 0 {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if heard, err := end(soon, forgotten.First); heard < 10 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(heard, err)
	}
	if heard, err := end(soon, n.LastPublication()); heard > 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(heard, err)
	}
	m := n.Metrics().Published
	if m.Subscribers != 0 || m.Forgotten == 0 || m.Published != 206 || m.Bytes > 2<<10 {
		t.Errorf("%+v", m)
	}
	last := n.LastPublication()
	closed := make(chan error)
	go func() { closed <- n.Close(context.Background()) }()
	if _, err := end(t.Context(), last); !errors.Is(err, millrace.ErrStopped) {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if b, err := millrace.ParseBookmark(last.String()); b != last || err != nil {
		t.Error(b, err)
	}
	for _, bad := range []string{"", "1.2", "1.2.x", "1.2.4294967296", "-1.0.0"} {
		if _, err := millrace.ParseBookmark(bad); err == nil {
			t.Errorf("%q is taken for a bookmark", bad)
		}
	}
}

// A machine that waits for publications is refused at once. A group without a CommandMachine says so.
func TestSubscribeInApply(t *testing.T) {
	var n *millrace.Node[[]byte, uint64]
	heard := make(chan error, 1)
	machine := &ledger{apply: func([]millrace.Command[[]byte]) error {
		for _, err := range n.Subscribe(context.Background(), millrace.Bookmark{}) {
			heard <- err
		}
		return nil
	}}
	n = open(t, alone(t), millrace.InMemory(machine, millrace.Bytes()))
	lead(t, n)
	if _, err := n.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-heard; !errors.Is(err, millrace.ErrReentrant) {
		t.Error(err)
	}
	if host.ErrNoPublications.Error() == "" {
		t.Error("no sentence")
	}
}
