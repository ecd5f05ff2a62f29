package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

// callCluster is hosts in one process, each with a group of commands.
type callCluster struct {
	network  *loopback.Network
	hosts    []*Host
	groups   []*Group
	machines []*echoMachine
}

func openCallCluster(t *testing.T, n int, config GroupConfig) *callCluster {
	t.Helper()
	return openCallClusterWith(t, n, config, func(*Config) {})
}

// openCallClusterWith opens hosts with a changed configuration.
func openCallClusterWith(t *testing.T, n int, config GroupConfig, change func(*Config)) *callCluster {
	t.Helper()
	c := &callCluster{network: loopback.NewNetwork()}
	peers := map[uint64]string{}
	for i := range n {
		peers[uint64(i+1)] = fmt.Sprint("host-", i+1)
	}
	config.ID = 1
	var own []Transport
	for id := uint64(1); id <= uint64(n); id++ {
		at := c.network.Host(id)
		for peer := range peers {
			if peer != id {
				at.SetPeer(peer, "")
			}
		}
		own = append(own, at)
	}
	for id := uint64(1); id <= uint64(n); id++ {
		hostConfig := Config{ID: id, Dir: "data", Members: peers, HeartbeatInterval: 10 * time.Millisecond}
		change(&hostConfig)
		h, err := Open(t.Context(), hostConfig, WithFS(crashfs.New()), WithTransport(own[id-1]), WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close(context.Background()) })
		m := &echoMachine{}
		g, err := h.OpenGroup(t.Context(), config, Commands(m, statemachine.CommandOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		c.hosts, c.groups, c.machines = append(c.hosts, h), append(c.groups, g), append(c.machines, m)
	}
	return c
}

// A command may be handed to any host, at any time: each caller gets the result of its own host's machine.
func TestCallsOnEveryHost(t *testing.T) {
	c := openCallCluster(t, 3, GroupConfig{})
	const each = 300
	callers := make([][]*echoCaller, 3)
	for i := range each {
		for k, g := range c.groups {
			e := newEchoCaller()
			if err := g.Call(e.call(fmt.Sprint("command ", i, " of host ", k+1))); err != nil {
				t.Fatal(err)
			}
			callers[k] = append(callers[k], e)
		}
	}
	for k := range callers {
		for i, e := range callers[k] {
			want := fmt.Sprint("command ", i, " of host ", k+1)
			select {
			case got := <-e.result:
				if got != want {
					t.Fatalf("result %q, want %q", got, want)
				}
				if r := <-e.committed; r.Index == 0 {
					t.Fatal("committed without an index")
				}
			case err := <-e.failed:
				t.Fatalf("%s: %v", want, err)
			case <-time.After(20 * time.Second):
				t.Fatalf("%s gets no result; status %+v", want, c.groups[k].Status())
			}
		}
	}
	for k, g := range c.groups {
		if n := g.proposals.Counts().Bytes; n != 0 {
			t.Errorf("host %d still has %d bytes of calls on their way", k+1, n)
		}
		if err := c.hosts[k].Close(t.Context()); err != nil {
			t.Error(err)
		}
		if m := c.hosts[k].Memory(); m.Waiting.Used != 0 || m.Proposed.Used != 0 {
			t.Errorf("host %d holds %+v after its end", k+1, m)
		}
	}
}

// A call that must not be forwarded fails where the host does not lead.
func TestCallHere(t *testing.T) {
	c := openCallCluster(t, 3, GroupConfig{})
	l, err := c.groups[0].WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := c.groups[l.ID%3]
	if _, err := other.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	call := newEchoCaller().call("x")
	call.Here = true
	if err := other.Call(call); !errors.Is(err, outcome.ErrNotLeader) {
		t.Fatalf("error %v, want ErrNotLeader", err)
	}
}

// Without a leader a call waits. Its caller can give it up, and knows then that it was not committed.
func TestCallWithoutLeader(t *testing.T) {
	c := &callCluster{network: loopback.NewNetwork()}
	at := c.network.Host(1)
	h, err := Open(t.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a", 2: "b", 3: "c"}, HeartbeatInterval: 10 * time.Millisecond},
		WithFS(crashfs.New()), WithTransport(at), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	withdrawn, waits := newEchoCaller(), newEchoCaller()
	call := withdrawn.call("given up")
	for _, c := range []*Call{call, waits.call("waits")} {
		if err := g.Call(c); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Withdraw(ctx, call); err == nil || outcome.MayHaveCommitted(err) || !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want one that says that it was not proposed", err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waits.failed; !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
		t.Fatalf("error %v, want ErrStopped", err)
	}
	select {
	case err := <-withdrawn.failed:
		t.Fatalf("a caller that has given up is told %v", err)
	default:
	}
}

// A leader with much less memory than the host that forwards takes its commands nevertheless, in frames that
// it has space for.
func TestForwardToALeaderWithLittleMemory(t *testing.T) {
	c := openCallClusterWith(t, 3, GroupConfig{}, func(c *Config) {
		if c.ID != 2 {
			c.MemoryBytes = minMemoryBytes
		}
	})
	large := c.groups[1]
	leader, err := large.WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if leader.ID == 2 {
		if err := large.TransferLeadership(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	var callers []*echoCaller
	for range 1000 {
		e := newEchoCaller()
		if err := large.Call(e.call("a command of some bytes")); err != nil {
			t.Fatal(err)
		}
		callers = append(callers, e)
	}
	for i, e := range callers {
		select {
		case <-e.result:
		case err := <-e.failed:
			t.Fatalf("command %d: %v", i, err)
		case <-time.After(20 * time.Second):
			t.Fatalf("command %d has no result; status %+v", i, large.Status())
		}
	}
}
