// Package componenttest tests components: clusters of the lab run on them.
package componenttest

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
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host/pipeline"
)

// Setup says which cluster a test opens.
type Setup = rig.Setup

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

func open(t *testing.T, components component.Components, change func(*Setup)) *rig.Cluster {
	t.Helper()
	s := rig.Setup{
		Dir: t.TempDir(), Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}, Faults: true,
		Heartbeat: 30 * time.Millisecond, Election: 300 * time.Millisecond, Foreign: components,
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

// ComesBack demands that a cluster carries writes. All its hosts are closed, and open again with what was
// acknowledged: their machines are empty then, and the engines too, so everything came out of the logs.
// What was written since follows.
func ComesBack(t *testing.T, components component.Components, change func(*Setup)) {
	t.Helper()
	c := open(t, components, change)
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
}

// Measures demands of a job on a log, an engine and a transport that it leaves an archive whose labels name
// them, with figures of their own counters.
func Measures(t *testing.T, components component.Components, log, engine, transport string) {
	t.Helper()
	for length := range labtest.Lengths(200 * time.Millisecond) {
		if measures(t, length, components, log, engine, transport) {
			return
		}
	}
	t.Error("no operation ended")
}

// measures measures one point, and reports whether an operation ended in its window.
func measures(t *testing.T, length time.Duration, components component.Components, log, engine, transport string) bool {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	j := experiment.Job{
		Options: experiment.Options{Recipe: "measure", Summary: "Does it run?", Dir: t.TempDir(), Out: out, Hosts: 3, Progress: report.Silence{}},
		Plans: []experiment.Plan{{
			Log: log, Engine: engine, Transport: transport, Pipelines: []string{"async"}, EarlyAck: true, Groups: 2, Hosts: 3,
			ValueBytes: 1024, Operation: experiment.Write, Clients: []int{8}, MaxInFlight: 1, Duration: length, MaxWarmup: 50 * time.Millisecond, Repeats: 1,
		}},
	}
	if err := j.Plans[0].Validate(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := j.Run(t.Context(), &text, components); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	p := a.Run.Points[0]
	if l := p.Labels; l[archive.LabelLog] != log || l[archive.LabelEngine] != engine || l[archive.LabelTransport] != transport {
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

// EndsAtBound demands that a run that writes more than its log keeps ends with a sentence, and not without
// memory.
func EndsAtBound(t *testing.T, log component.OpenLog, sentence string) {
	t.Helper()
	components := component.Components{Logs: map[string]component.OpenLog{"small": log}}
	c := open(t, components, func(s *Setup) { s.Log = "small" })
	w := load.Window{Source: load.NewSource(10_000, 1), Length: time.Minute, Generator: load.Closed{Clients: 8}, Observer: silent{}, Ledger: c.Ledger(), Timeline: true}
	if _, err := w.Run(t.Context(), c); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), sentence) {
		t.Errorf("%v", err)
	}
}

// RefusesUnknown demands that a component that a program does not have is refused by name.
func RefusesUnknown(t *testing.T, components component.Components) {
	t.Helper()
	for _, s := range []rig.Setup{{Log: "x"}, {Engine: "x"}} {
		s.Dir, s.Hosts, s.Transport, s.Pipeline, s.Foreign = t.TempDir(), 1, rig.TCP, pipeline.Async{}, components
		if _, err := rig.Open(t.Context(), s); err == nil {
			t.Errorf("%q, %q: opened", s.Log, s.Engine)
		}
	}
}
