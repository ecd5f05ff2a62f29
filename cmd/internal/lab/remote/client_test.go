package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/host/session"
)

// hosts are servers of which one leads.
type hosts struct {
	servers []*remote.ClientServer
	leader  atomic.Int32
	taken   atomic.Int64
}

func serve(t *testing.T, n int) *hosts {
	t.Helper()
	h := &hosts{}
	for i := range n {
		s, err := remote.ServeClients(func(_ context.Context, r remote.Request) (remote.Status, string) {
			leader := int(h.leader.Load())
			switch {
			case string(r.Value) == "bad":
				return remote.Failed, "it is bad"
			case leader < 0:
				return remote.NotTaken, ""
			case leader != i:
				return remote.NotTaken, h.servers[leader].Addr()
			}
			h.taken.Add(1)
			return remote.Done, ""
		})
		if err != nil {
			t.Fatal(err)
		}
		h.servers = append(h.servers, s)
	}
	t.Cleanup(func() {
		for _, s := range h.servers {
			s.Close()
		}
	})
	return h
}

func (h *hosts) client(t *testing.T, o remote.ClientOptions) *remote.Client {
	t.Helper()
	for _, s := range h.servers {
		o.Seeds = append(o.Seeds, s.Addr())
	}
	o.ConnectTimeout = time.Second
	c := remote.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// A client finds the leader in two attempts at most, and many goroutines share its connection.
func TestFindsTheLeader(t *testing.T) {
	h := serve(t, 3)
	h.leader.Store(2)
	for seed := range uint64(10) {
		c := h.client(t, remote.ClientOptions{Seed: seed})
		if err := c.Propose(t.Context(), []byte("x")); err != nil || c.Attempts() > 2 {
			t.Errorf("%d attempts, %v", c.Attempts(), err)
		}
	}
	c := h.client(t, remote.ClientOptions{})
	before := h.taken.Load()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if err := c.Propose(t.Context(), make([]byte, 1000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := h.taken.Load() - before; n != 1000 || c.Attempts() > 2 {
		t.Errorf("%d commands taken over %d connections", n, c.Attempts())
	}
}

// A leader that moves is followed; dead seeds are passed over; without hints the client asks at random.
func TestFollowsTheLeader(t *testing.T) {
	h := serve(t, 3)
	c := h.client(t, remote.ClientOptions{Seeds: []string{"127.0.0.1:1", "127.0.0.1:1"}})
	blind := h.client(t, remote.ClientOptions{IgnoreHints: true})
	for i := range 6 {
		h.leader.Store(int32(i % 3))
		if err := errors.Join(c.Propose(t.Context(), []byte("x")), blind.Propose(t.Context(), []byte("x"))); err != nil {
			t.Error(err)
		}
	}
	h.leader.Store(-1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Propose(ctx, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a leader: %v", err)
	}
}

// What went wrong is told; a connection that breaks, or a host that answers nothing, leaves the command
// indeterminate, and the client looks elsewhere.
func TestFailures(t *testing.T) {
	h := serve(t, 2)
	c := h.client(t, remote.ClientOptions{})
	if err := c.Propose(t.Context(), []byte("bad")); err == nil || errors.Is(err, remote.ErrIndeterminate) || fmt.Sprint(err)[len(fmt.Sprint(err))-9:] != "it is bad" {
		t.Error(err)
	}
	began, hang := make(chan bool, 2), make(chan bool)
	mute, err := remote.ServeClients(func(ctx context.Context, _ remote.Request) (remote.Status, string) {
		began <- true
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return remote.Failed, ""
	})
	if err != nil {
		t.Fatal(err)
	}
	impatient := remote.NewClient(remote.ClientOptions{Seeds: []string{mute.Addr()}, ConnectTimeout: time.Second, AnswerTimeout: 20 * time.Millisecond})
	defer impatient.Close()
	if err := impatient.Propose(t.Context(), nil); !errors.Is(err, remote.ErrIndeterminate) {
		t.Errorf("a host that answers nothing: %v", err)
	}
	waits := remote.NewClient(remote.ClientOptions{Seeds: []string{mute.Addr()}, ConnectTimeout: time.Second})
	defer waits.Close()
	done := make(chan error)
	go func() { done <- waits.Propose(t.Context(), nil) }()
	<-began
	<-began
	if err := mute.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, remote.ErrIndeterminate) && err == nil {
		t.Errorf("a host that goes: %v", err)
	}
}

// A client with a session repeats a command whose connection has broken, under the same number, until it is
// answered: here after a host has carried it out three times and answered none.
func TestRepeatsInItsSession(t *testing.T) {
	var id session.ID
	id.Client[3], id.Birth = 7, 5*time.Second
	var mu sync.Mutex
	var marks []session.Mark
	var host *remote.ClientServer
	failing, breaking := 2, 1
	host, err := remote.ServeClients(func(_ context.Context, r remote.Request) (remote.Status, string) {
		if r.Kind == remote.OpenSession {
			return remote.Done, id.String()
		}
		mu.Lock()
		defer mu.Unlock()
		marks = append(marks, r.Mark)
		switch {
		case failing > 0:
			failing--
			return remote.Unknown, "the leader has changed"
		case breaking > 0:
			breaking--
			host.Break()
		}
		return remote.Done, ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	c := remote.NewClient(remote.ClientOptions{Seeds: []string{host.Addr()}, ConnectTimeout: time.Second, Sessions: true})
	defer c.Close()
	for range 2 {
		if err := c.Propose(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	mark := func(number, low uint64) session.Mark { return session.Mark{ID: id, Number: number, Low: low} }
	if want := []session.Mark{mark(1, 1), mark(1, 1), mark(1, 1), mark(1, 1), mark(2, 2)}; !slices.Equal(marks, want) {
		t.Errorf("sent %v, want %v", marks, want)
	}
	if c.Repeats() != 3 {
		t.Errorf("%d commands were sent again, want 3", c.Repeats())
	}
}

// A connection that is asked for by its owner: it knows what was not sent, says why a server refuses it, and
// gives a host up that answers nothing.
func TestConn(t *testing.T) {
	echo, err := remote.ServeClients(func(_ context.Context, r remote.Request) (remote.Status, string) { return remote.Done, string(r.Value) })
	if err != nil {
		t.Fatal(err)
	}
	c, err := remote.DialConn(t.Context(), echo.Addr(), remote.Dialing{Timeout: time.Second, Silence: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if status, text, err := c.Ask(t.Context(), []byte("a"), []byte("bc")); status != remote.Done || string(text) != "abc" || err != nil {
		t.Errorf("%v, %q, %v", status, text, err)
	}
	if err := echo.Close(); err != nil {
		t.Error(err)
	}
	<-c.Ended()
	if _, _, err := c.Ask(t.Context(), nil); !errors.Is(err, remote.ErrNotSent) {
		t.Errorf("after its end: %v", err)
	}
	c.Close()

	refusing, err := remote.ServeClientsAs(remote.ClientServing{Addr: "127.0.0.1:0", Wrap: func(_ context.Context, c net.Conn) (net.Conn, error) { return c, errors.New("it is late") }})
	if err != nil {
		t.Fatal(err)
	}
	defer refusing.Close()
	if c, err = remote.DialConn(t.Context(), refusing.Addr(), remote.Dialing{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refusal *remote.Refusal
	if _, _, err := c.Ask(t.Context(), []byte("a")); !errors.As(err, &refusal) || refusal.Why != "it is late" {
		t.Errorf("a refused connection: %v", err)
	}

	mute, err := remote.ServeClients(func(ctx context.Context, _ remote.Request) (remote.Status, string) {
		<-ctx.Done()
		return remote.Failed, ""
	})
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	quiet, err := remote.DialConn(t.Context(), mute.Addr(), remote.Dialing{Timeout: time.Second, Silence: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	if _, _, err := quiet.Ask(t.Context(), []byte("a")); !errors.Is(err, remote.ErrIndeterminate) || !strings.Contains(err.Error(), "has answered nothing for 20ms") {
		t.Errorf("a host that answers nothing: %v", err)
	}
	if _, err := remote.DialConn(t.Context(), mute.Addr(), remote.Dialing{Timeout: time.Second, Wrap: func(context.Context, net.Conn) (net.Conn, error) { return nil, errors.New("no") }}); err == nil || err.Error() != "no" {
		t.Errorf("%v", err)
	}
}
