package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
)

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

// each is every component, with one of its neighbours.
var each = map[string]func(*rig.Setup){
	"etcd":             func(s *rig.Setup) { s.Log = "etcd" },
	"etcd, P1":         func(s *rig.Setup) { s.Log, s.Pipeline = "etcd", pipeline.Basic{} },
	"etcd, groups":     func(s *rig.Setup) { s.Log, s.Groups, s.FsyncDelay = "etcd", 4, time.Millisecond },
	"pebble":           func(s *rig.Setup) { s.Log = "pebble" },
	"pebble, P2":       func(s *rig.Setup) { s.Log, s.Pipeline = "pebble", pipeline.Parallel{} },
	"pebble on pebble": func(s *rig.Setup) { s.Log, s.Engine, s.Groups = "pebble", "pebble", 4 },
}

func open(t *testing.T, change func(*rig.Setup)) *rig.Cluster {
	t.Helper()
	s := rig.Setup{
		Dir: t.TempDir(), Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}, Faults: true,
		Heartbeat: 30 * time.Millisecond, Election: 300 * time.Millisecond, Foreign: components(),
	}
	change(&s)
	if s.Transport != rig.TCP {
		s.Faults = s.NetworkDelay > 0
	}
	c, err := rig.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func write(t *testing.T, c *rig.Cluster) {
	t.Helper()
	w := load.Window{
		Source: load.NewSource(300, 1), Length: 100 * time.Millisecond, Generator: load.Closed{Clients: 8}, Observer: silent{}, Ledger: c.Ledger(), Timeline: true,
	}
	o, err := w.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if n, failed := o.Timeline.Counts(0, o.Timeline.End()); n == 0 || failed > 0 {
		t.Errorf("%d writes, %d failed: %v", n, failed, o.Errors)
	}
}

// Every component carries writes. All hosts are closed, and open again with what was acknowledged: their
// machines are empty then, and the engines too, so everything came out of the logs. What was written since
// follows.
func TestAClusterComesBack(t *testing.T) {
	for name, change := range each {
		t.Run(name, func(t *testing.T) {
			c := open(t, change)
			write(t, c)
			for _, m := range c.Members() {
				if err := m.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, m := range c.Members() {
				if err := m.Again(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Verify(ctx, c.Ledger()); err != nil {
				t.Fatal(err)
			}
			write(t, c)
			if n := c.Ledger().Acked(); n == 0 {
				t.Error("nothing was acknowledged")
			}
		})
	}
}

// A component that this program does not have is refused by name.
func TestUnknownComponents(t *testing.T) {
	for _, s := range []rig.Setup{{Log: "x"}, {Engine: "x"}} {
		s.Dir, s.Hosts, s.Transport, s.Pipeline, s.Foreign = t.TempDir(), 1, rig.TCP, pipeline.Async{}, components()
		if _, err := rig.Open(t.Context(), s); err == nil {
			t.Error(fmt.Sprintf("%q, %q: opened", s.Log, s.Engine))
		}
	}
}
