package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// trioOfDisks are three hosts with two groups, on disks in memory.
type trioOfDisks struct {
	t       *testing.T
	network *loopback.Network
	disks   [3]*crashfs.FS
	hosts   [3]*host.Host
	events  chan event.Event // of the hosts that are started with them
}

func (c *trioOfDisks) config(i int) host.Config {
	return clusterConfig(uint64(i+1), "/data", map[uint64]string{1: "1", 2: "2", 3: "3"})
}

// start opens host i and some of its groups.
func (c *trioOfDisks) start(i int, groups ...uint64) {
	c.t.Helper()
	end := c.network.Host(uint64(i + 1))
	for id, addr := range c.config(i).Members {
		end.SetPeer(id, addr)
	}
	h, err := host.Open(deadline(c.t), c.config(i), host.WithTransport(end), host.WithFS(c.disks[i].Mount()),
		host.WithLogger(quiet), host.WithEvents(func(e event.Event) {
			switch what := e.(type) {
			case event.AuthorityLost, event.AuthorityRegained:
				c.events <- e
			case event.LogEvent:
				if _, ended := what.Event.(wal.AmnesiaEnded); ended {
					c.events <- e
				}
			}
		}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.hosts[i] = h
	c.t.Cleanup(func() { h.Close(context.Background()) })
	for _, id := range groups {
		if _, err := h.OpenGroup(deadline(c.t), host.GroupConfig{ID: id}, newJournal()); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *trioOfDisks) stop(i int) {
	c.t.Helper()
	if err := c.hosts[i].Close(deadline(c.t)); err != nil {
		c.t.Fatal(err)
	}
}

// propose proposes to whatever host leads a group, until one takes the command.
func (c *trioOfDisks) propose(group uint64, command string) outcome.Receipt {
	c.t.Helper()
	ctx := deadline(c.t)
	for i := 0; ctx.Err() == nil; i++ {
		g := c.hosts[i%3].Group(group)
		if g == nil || g.Err() != nil {
			continue
		}
		r, err := g.Propose(ctx, []byte(command))
		if err == nil {
			return r
		}
		_, _ = g.WaitLeader(ctx)
	}
	c.t.Fatalf("group %d does not take %q", group, command)
	return outcome.Receipt{}
}

// expect waits for events, in any order.
func (c *trioOfDisks) expect(want ...string) {
	c.t.Helper()
	missing := map[string]bool{}
	for _, what := range want {
		missing[what] = true
	}
	for ctx := deadline(c.t); len(missing) > 0; {
		select {
		case e := <-c.events:
			what := fmt.Sprintf("%T", e)
			switch e := e.(type) {
			case event.AuthorityLost:
				what = fmt.Sprintf("lost %d", e.Group)
			case event.AuthorityRegained:
				what = fmt.Sprintf("regained %d", e.Group)
			case event.LogEvent:
				what = "ended"
			}
			if !missing[what] {
				c.t.Fatalf("have %s, want %v", what, missing)
			}
			delete(missing, what)
		case <-ctx.Done():
			c.t.Fatalf("waited for %v", missing)
		}
	}
}

// One flipped bit does not cost a member. An operator repairs the log, and the host works without authority
// until it has caught up: group by group, and the log forgets the damage when all groups of it have caught
// up.
func TestARepairedHostRegainsAuthority(t *testing.T) {
	c := &trioOfDisks{t: t, network: loopback.NewNetwork(), events: make(chan event.Event, 100)}
	for i := range c.disks {
		c.disks[i] = crashfs.New()
		c.start(i, 1, 2)
	}
	var receipts [3]outcome.Receipt
	for n := range 20 {
		for group := uint64(1); group <= 2; group++ {
			receipts[group] = c.propose(group, fmt.Sprintf("command %d", n))
		}
	}
	for group := uint64(1); group <= 2; group++ {
		g := c.hosts[2].Group(group)
		for ctx := deadline(t); g.Status().Applied < receipts[group].Index; {
			if _, err := g.WaitLeader(ctx); err != nil {
				t.Fatal(err)
			}
			c.propose(group, "more")
		}
	}
	c.stop(2)
	o := wal.InspectOptions{FS: c.disks[2].Mount(), Dir: "/data/3/log"}
	damage(t, c.disks[2], o)
	if _, err := host.Open(deadline(t), c.config(2), host.WithTransport(loopback.NewNetwork().Host(3)), host.WithFS(c.disks[2].Mount()), host.WithLogger(quiet)); !errors.Is(err, wal.ErrCorrupt) {
		t.Fatalf("with a flipped bit: %v", err)
	}
	if r, err := wal.RepairLog(t.Context(), wal.RepairOptions{InspectOptions: o, Write: true}); err != nil || !r.Done || !r.Fence.Amnesia {
		t.Fatalf("%+v, %v", r, err)
	}
	c.start(2, 1)
	c.expect("lost 1", "regained 1")
	if s := c.hosts[2].Group(1).Status(); s.WithoutAuthority || s.Durable < receipts[1].Index {
		t.Errorf("has authority again at %+v, and %d was acknowledged", s, receipts[1].Index)
	}
	c.stop(2) // group 2 was not opened, so the mark stays
	c.start(2, 1, 2)
	c.expect("lost 1", "lost 2", "regained 1", "regained 2", "ended")
	c.stop(2)
	c.start(2, 1, 2)
	c.propose(1, "at the end")
	for group := uint64(1); group <= 2; group++ {
		if s := c.hosts[2].Group(group).Status(); s.WithoutAuthority {
			t.Errorf("without authority once more: %+v", s)
		}
	}
	select {
	case e := <-c.events:
		t.Errorf("unexpected: %+v", e)
	default:
	}
}
