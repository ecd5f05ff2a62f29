package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/foreign/etcdlog"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
)

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

// each is every component, with one of its neighbours.
var each = map[string]func(*rig.Setup){
	"grpc":             func(s *rig.Setup) { s.Transport = "grpc" },
	"grpc, far":        func(s *rig.Setup) { s.Transport, s.Log, s.NetworkDelay = "grpc", "etcd", 2*time.Millisecond },
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
	for length := range labtest.Lengths(100 * time.Millisecond) {
		w := load.Window{
			Source: load.NewSource(300, 1), Length: length, Generator: load.Closed{Clients: 8}, Observer: silent{}, Ledger: c.Ledger(), Timeline: true,
		}
		o, err := w.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		n, failed := o.Timeline.Counts(0, o.Timeline.End())
		if failed > 0 {
			t.Errorf("%d writes, %d failed: %v", n, failed, o.Errors)
		}
		if n > 0 {
			return
		}
	}
	t.Error("no write ended")
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

// A job on foreign components leaves an archive whose labels name them, with figures of their own counters.
func TestJob(t *testing.T) {
	for length := range labtest.Lengths(200 * time.Millisecond) {
		if job(t, length) {
			return
		}
	}
	t.Error("no operation ended")
}

// job measures one point, and reports whether an operation ended in its window.
func job(t *testing.T, length time.Duration) bool {
	out := filepath.Join(t.TempDir(), "out")
	j := experiment.Job{
		Options: experiment.Options{Recipe: "measure", Summary: "Does it run?", Dir: t.TempDir(), Out: out, Hosts: 3, Progress: report.Silence{}},
		Plans: []experiment.Plan{{
			Log: experiment.EtcdLog, Engine: experiment.PebbleEngine, Transport: experiment.GRPC, Pipelines: []string{"async"}, EarlyAck: true, Groups: 2, Hosts: 3,
			ValueBytes: 1024, Operation: experiment.Write, Clients: []int{8}, MaxInFlight: 1, Duration: length, MaxWarmup: 50 * time.Millisecond, Repeats: 1,
		}},
	}
	if err := j.Plans[0].Validate(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := j.Run(t.Context(), &text, components()); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	p := a.Run.Points[0]
	if l := p.Labels; l[archive.LabelLog] != "etcd" || l[archive.LabelEngine] != "pebble" || l[archive.LabelTransport] != "grpc" {
		t.Errorf("labels %v", l)
	}
	if x, _ := p.Median(archive.Ops.Name); x == 0 {
		return false
	}
	for _, m := range []archive.Metric{archive.OpsPerSec, archive.FsyncsPerOp, archive.BytesPerFsync, archive.EntriesPerAppend, archive.NetBytesPerOp} {
		if x, ok := p.Median(m.Name); !ok || x <= 0 {
			t.Errorf("%s: %v, %v", m.Name, x, ok)
		}
	}
	return true
}

// A run that writes more than such a log keeps ends with a sentence, and not without memory.
func TestTheBoundOfALogEndsTheRun(t *testing.T) {
	c := open(t, func(s *rig.Setup) {
		s.Log = "small"
		s.Foreign.Logs = map[string]rig.OpenLog{"small": func(c host.LogConfig, d rig.Disk) (host.Log, error) {
			return etcdlog.OpenBounded(c, d, 1<<20)
		}}
	})
	w := load.Window{Source: load.NewSource(10_000, 1), Length: time.Minute, Generator: load.Closed{Clients: 8}, Observer: silent{}, Ledger: c.Ledger(), Timeline: true}
	if _, err := w.Run(t.Context(), c); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "append beyond 1048576 bytes of entries in memory") {
		t.Errorf("%v", err)
	}
}

// A component that this program does not have is refused by name.
func TestUnknownComponents(t *testing.T) {
	for _, s := range []rig.Setup{{Log: "x"}, {Engine: "x"}} {
		s.Dir, s.Hosts, s.Transport, s.Pipeline, s.Foreign = t.TempDir(), 1, rig.TCP, pipeline.Async{}, components()
		if _, err := rig.Open(t.Context(), s); err == nil {
			t.Errorf("%q, %q: opened", s.Log, s.Engine)
		}
	}
}
