package host_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/tcp"
)

// openLeased is openCluster for a group with leases.
func openLeased(t testing.TB, n int, p pipeline.Pipeline, change func(*host.GroupConfig)) *cluster {
	t.Helper()
	c, dir := &cluster{}, scratch.Dir(t)
	var transports []*tcp.Transport
	peers := map[uint64]string{}
	for i := range n {
		tr, err := tcp.Listen(tcp.Options{ID: uint64(i + 1), Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		transports = append(transports, tr)
		peers[uint64(i+1)] = tr.Addr()
	}
	for i, tr := range transports {
		for id, addr := range peers {
			if id != uint64(i+1) {
				tr.SetPeer(id, addr)
			}
		}
		config := clusterConfig(uint64(i+1), dir, peers)
		h, err := host.Open(context.Background(), config, host.WithTransport(tr), host.WithPipeline(p), host.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close(context.Background()) })
		g := host.GroupConfig{ID: theGroup, Leases: true}
		if change != nil {
			change(&g)
		}
		j := newJournal()
		if _, err := h.OpenGroup(context.Background(), g, j); err != nil {
			t.Fatal(err)
		}
		c.hosts, c.journals, c.configs = append(c.hosts, h), append(c.journals, j), append(c.configs, config)
	}
	return c
}

func (j *journal) has(command string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, has := j.at[command]
	return has
}

// A linearizable read sees what was acknowledged before it began, on every member and in every pipeline.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	for _, p := range pipeline.All {
		for _, n := range []int{1, 3} {
			t.Run(p.Name(), func(t *testing.T) {
				c, ctx := openLeased(t, n, p, nil), deadline(t)
				for _, command := range []string{"a", "b", "c"} {
					if _, err := c.propose(ctx, command); err != nil {
						t.Fatal(err)
					}
					for i, h := range c.hosts {
						g := h.Group(theGroup)
						var r host.Read
						g.StartRead(&r, 0)
						at, err := r.Wait(ctx)
						if err != nil {
							t.Fatal(err)
						}
						if !c.journals[i].has(command) {
							t.Fatalf("host %d reads at %+v and does not have %q", i+1, at, command)
						}
					}
				}
			})
		}
	}
}

// A read of a client's own write on another host, a bounded read, and a function between two batches.
func TestKindsOfReads(t *testing.T) {
	c, ctx := openLeased(t, 3, pipeline.Async{}, nil), deadline(t)
	receipt, err := c.propose(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range c.hosts {
		g := h.Group(theGroup)
		var own, first, second, between host.Read
		g.StartApplied(&own, receipt.Index)
		if at, err := own.Wait(ctx); err != nil || at.Index != receipt.Index || !c.journals[i].has("a") {
			t.Fatalf("host %d: %+v, %v", i+1, at, err)
		}
		g.StartRead(&first, time.Hour)
		if _, err := first.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		g.StartRead(&second, time.Hour)
		if at, done, err := second.Poll(); err != nil || !done || at.Index < receipt.Index || at.Age <= 0 {
			t.Fatalf("host %d: a bounded read after another: %+v, %t, %v", i+1, at, done, err)
		}
		ran := false
		g.StartBetween(&between, func() { ran = c.journals[i].index >= receipt.Index })
		if _, err := between.Wait(ctx); err != nil || !ran {
			t.Fatalf("host %d: %t, %v", i+1, ran, err)
		}
		var panics host.Read
		g.StartBetween(&panics, func() { panic("as the test says") })
		if _, err := panics.Wait(ctx); err == nil || !strings.Contains(err.Error(), "as the test says") {
			t.Fatalf("a function that panics: %v", err)
		}
		if err := g.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A Read that is misused says so, and never returns the outcome of another read.
func TestMisusedReads(t *testing.T) {
	c, ctx := openLeased(t, 1, pipeline.Async{}, nil), deadline(t)
	g := c.hosts[0].Group(theGroup)
	if _, err := c.propose(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	var r host.Read
	if _, done, err := r.Poll(); !done || err == nil {
		t.Error("a Read that was not started has no error")
	}
	g.StartRead(&r, 0)
	if _, err := r.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	g.StartRead(&r, 0)
	if _, err := r.Wait(ctx); err == nil {
		t.Error("a Read that was started twice has an outcome")
	}
}

// Reads end with the host, with their context, and when too many wait.
func TestReadsEnd(t *testing.T) {
	c := openCluster(t, 3, scratch.Dir(t), pipeline.Async{})
	ctx := deadline(t)
	if _, err := c.propose(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	g := c.hosts[0].Group(theGroup)
	var waits, short, between host.Read
	g.StartApplied(&waits, 1<<40)
	soon, cancel := context.WithCancel(ctx)
	g.StartApplied(&short, 1<<40)
	cancel()
	if _, err := short.Wait(soon); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that is given up: %v", err)
	}
	reads := make([]host.Read, 1<<20)
	var overloaded error
	for i := range reads {
		g.StartApplied(&reads[i], 1<<40)
		if _, done, err := reads[i].Poll(); done {
			overloaded = err
			break
		}
	}
	if !errors.Is(overloaded, outcome.ErrOverloaded) {
		t.Errorf("too many reads: %v", overloaded)
	}
	if err := c.hosts[0].Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := waits.Wait(ctx); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("a read on a host that was closed: %v", err)
	}
	if used := c.hosts[0].Memory().Waiting.Used; used != 0 {
		t.Errorf("%d bytes of reads are held after Close", used)
	}
	g.StartBetween(&between, func() { t.Error("it runs on a closed host") })
	if _, err := between.Wait(ctx); !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("a read after Close: %v", err)
	}
}

// A lease comes with a read, holds for less than an election timeout, and only on the leader.
func TestLease(t *testing.T) {
	c, ctx := openLeased(t, 3, pipeline.Async{}, nil), deadline(t)
	if _, err := c.propose(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	var leased atomic.Bool
	for i, h := range c.hosts {
		g := h.Group(theGroup)
		for range 100 { // a busy machine may be too slow for the first lease
			var r host.Read
			g.StartRead(&r, 0)
			if _, err := r.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			l, ok := g.Lease(0, 0.01)
			if !ok {
				if leader, _ := g.WaitLeader(ctx); leader.ID != uint64(i+1) {
					break
				}
				continue
			}
			has := c.journals[i].has("a")
			if l.Holds() && !has {
				t.Fatal("a read under a lease does not see what was acknowledged")
			}
			leased.Store(true)
			if _, ok := g.Lease(0, 1); ok {
				t.Error("a lease with clocks of any rate")
			}
			if _, ok := g.Lease(time.Nanosecond, 0); ok {
				t.Error("a lease that is older than it may be")
			}
			break
		}
	}
	if !leased.Load() {
		t.Error("no host had a lease")
	}
	if (host.Lease{}).Holds() {
		t.Error("the zero Lease holds")
	}
}

// A member whose setting of leases differs from the founders' stops, with a sentence.
func TestLeasesAreASettingOfTheGroup(t *testing.T) {
	c, ctx := openLeased(t, 1, pipeline.Async{}, nil), deadline(t)
	if _, err := c.propose(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := c.hosts[0].Group(theGroup).Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err := c.hosts[0].OpenGroup(ctx, host.GroupConfig{ID: theGroup}, newJournal())
	const want = "millrace: group 1 was founded with Leases true, and host 1 opens it with false; all members need the setting with which it was founded"
	if err == nil || err.Error() != want {
		t.Errorf("have %v, want %s", err, want)
	}
}

// A member whose setting differs from that of the leader that founds the group stops before it answers.
func TestLeasesDifferAtFounding(t *testing.T) {
	opened := 0
	c := openLeased(t, 3, pipeline.Async{}, func(g *host.GroupConfig) {
		opened++
		g.Leases = opened == 1
	})
	var groups []*host.Group
	for _, h := range c.hosts {
		groups = append(groups, h.Group(theGroup))
	}
	select {
	case <-groups[0].Failed():
	case <-groups[1].Failed():
	case <-groups[2].Failed():
	case <-deadline(t).Done():
		t.Fatal("no member stops")
	}
	stopped := 0
	for _, g := range groups {
		if err := g.Err(); err != nil {
			stopped++
			if !strings.Contains(err.Error(), "Leases") {
				t.Error(err)
			}
		}
	}
	t.Logf("%d members have stopped", stopped)
}
