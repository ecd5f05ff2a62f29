package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab/client"
	"github.com/millrace/millrace/host/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hosts are servers of which one leads.
type hosts struct {
	servers []*client.Server
	leader  atomic.Int32
	taken   atomic.Int64
}

func serve(t *testing.T, n int) *hosts {
	t.Helper()
	h := &hosts{}
	for i := range n {
		s, err := client.Serve(func(_ context.Context, r client.Request) (client.Status, string) {
			leader := int(h.leader.Load())
			switch {
			case string(r.Value) == "bad":
				return client.Failed, "it is bad"
			case leader < 0:
				return client.NotTaken, ""
			case leader != i:
				return client.NotTaken, h.servers[leader].Addr()
			}
			h.taken.Add(1)
			return client.Done, ""
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

func (h *hosts) client(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	for _, s := range h.servers {
		o.Seeds = append(o.Seeds, s.Addr())
	}
	o.ConnectTimeout = time.Second
	c := client.New(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// A client finds the leader in two attempts at most, and many goroutines share its connection.
func TestFindsTheLeader(t *testing.T) {
	h := serve(t, 3)
	h.leader.Store(2)
	for seed := range uint64(10) {
		c := h.client(t, client.Options{Seed: seed})
		if err := c.Propose(t.Context(), []byte("x")); err != nil || c.Attempts() > 2 {
			t.Errorf("%d attempts, %v", c.Attempts(), err)
		}
	}
	c := h.client(t, client.Options{})
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
	c := h.client(t, client.Options{Seeds: []string{"127.0.0.1:1", "127.0.0.1:1"}})
	blind := h.client(t, client.Options{IgnoreHints: true})
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
	c := h.client(t, client.Options{})
	if err := c.Propose(t.Context(), []byte("bad")); err == nil || errors.Is(err, client.ErrIndeterminate) || fmt.Sprint(err)[len(fmt.Sprint(err))-9:] != "it is bad" {
		t.Error(err)
	}
	began, hang := make(chan bool, 2), make(chan bool)
	mute, err := client.Serve(func(ctx context.Context, _ client.Request) (client.Status, string) {
		began <- true
		select {
		case <-hang:
		case <-ctx.Done():
		}
		return client.Failed, ""
	})
	if err != nil {
		t.Fatal(err)
	}
	impatient := client.New(client.Options{Seeds: []string{mute.Addr()}, ConnectTimeout: time.Second, AnswerTimeout: 20 * time.Millisecond})
	defer impatient.Close()
	if err := impatient.Propose(t.Context(), nil); !errors.Is(err, client.ErrIndeterminate) {
		t.Errorf("a host that answers nothing: %v", err)
	}
	waits := client.New(client.Options{Seeds: []string{mute.Addr()}, ConnectTimeout: time.Second})
	defer waits.Close()
	done := make(chan error)
	go func() { done <- waits.Propose(t.Context(), nil) }()
	<-began
	<-began
	if err := mute.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, client.ErrIndeterminate) && err == nil {
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
	var host *client.Server
	failing, breaking := 2, 1
	host, err := client.Serve(func(_ context.Context, r client.Request) (client.Status, string) {
		if r.Kind == client.OpenSession {
			return client.Done, id.String()
		}
		mu.Lock()
		defer mu.Unlock()
		marks = append(marks, r.Mark)
		switch {
		case failing > 0:
			failing--
			return client.Unknown, "the leader has changed"
		case breaking > 0:
			breaking--
			host.Break()
		}
		return client.Done, ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	c := client.New(client.Options{Seeds: []string{host.Addr()}, ConnectTimeout: time.Second, Sessions: true})
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
