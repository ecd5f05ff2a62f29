package rig_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/wal"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func setup(t *testing.T) rig.Setup {
	return rig.Setup{
		Dir: t.TempDir(), Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}, Leases: true,
		Heartbeat: 30 * time.Millisecond, Election: 300 * time.Millisecond,
	}
}

func open(t *testing.T, s rig.Setup) *rig.Cluster {
	t.Helper()
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

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

type target interface {
	load.Target
	Ledger() *load.Ledger
}

// mixed is a mix with the ledger of a window that has none.
type mixed struct{ *rig.Mixed }

func (mixed) Ledger() *load.Ledger { return nil }

// window loads target with a few clients for a moment, and as long as beside takes: longer on a slow machine,
// until some operations have ended. What beside does is done once. All that was acknowledged
// must be there.
func window(t *testing.T, target target, beside func(context.Context) error) load.Outcome {
	t.Helper()
	var o load.Outcome
	var completed, failed uint64
	for length := range labtest.Lengths(30 * time.Millisecond) {
		var err error
		o, err = load.Window{
			Source: load.NewSource(64, 1), Length: length, Generator: load.Closed{Clients: 6}, Observer: silent{},
			Beside: beside, Ledger: target.Ledger(), Timeline: true,
		}.Run(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if completed, failed = o.Timeline.Counts(0, o.Timeline.End()); completed >= some {
			return o
		}
		beside = nil
	}
	t.Errorf("%d operations ended well, %d failed: %v", completed, failed, o.Errors)
	return o
}

// some operations are enough that a mix has both kinds.
const some = 20

// Each transport, pipeline and mode carries writes, and each reading reads them, window after window.
func TestComponents(t *testing.T) {
	for i, change := range []func(*rig.Setup){
		func(*rig.Setup) {},
		func(s *rig.Setup) { s.Transport, s.Pipeline, s.Groups = rig.TLS, pipeline.Clamped{}, 3 },
		func(s *rig.Setup) { s.Transport, s.Pipeline, s.Leases = rig.Loopback, pipeline.Basic{}, false },
		func(s *rig.Setup) {
			s.Pipeline, s.Leases, s.NetworkDelay = pipeline.Parallel{}, false, time.Millisecond
		},
		func(s *rig.Setup) { s.Durability, s.LateAcknowledgement = wal.ModeMemory, true },
		func(s *rig.Setup) { s.Transport, s.Faults, s.FsyncDelay = rig.TLS, true, time.Millisecond },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := setup(t)
			change(&s)
			c := open(t, s)
			window(t, c, nil)
			for _, by := range rig.AllReadings {
				if r, err := c.Reads(by); err == nil {
					window(t, r, nil)
				} else if by != rig.ByLease || s.Leases {
					t.Error(err)
				}
			}
			for _, by := range rig.AllReadings {
				m, err := c.Mix(by, 50, 64, 1)
				if err != nil {
					continue // by lease, without leases
				}
				window(t, mixed{m}, nil)
				if r, w := m.Reads().Count(), m.Writes().Count(); r == 0 || w == 0 || r > 3*w+50 || w > 3*r+50 {
					t.Errorf("%s: %d reads and %d writes of a half each", by, r, w)
				}
			}
			if have, want := c.Ledger().Acked(), c.Counters().AppliedEntries/3; have > want {
				t.Errorf("%d acknowledged, %d applied", have, want)
			}
		})
	}
}

// What was acknowledged is there after power cuts of one host and of all, and after logs were made to
// differ; and a host whose directory is lost waits until its member is replaced.
func TestLosses(t *testing.T) {
	s := setup(t)
	s.Faults, s.PowerCuts, s.Leases = true, true, false
	c := open(t, s)
	all := []int{0, 1, 2}
	for _, which := range [][]int{{1}, all} {
		if err := c.Fill(t.Context(), 100, 64); err != nil {
			t.Fatal(err)
		}
		for _, i := range which {
			c.Member(i).CutPower(7)
		}
		if err := c.OnEach(which, func(m *rig.Member) error { return m.Again(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		if err := c.Verify(t.Context(), c.Ledger()); err != nil {
			t.Fatal(err)
		}
	}
	old, term := c.Leader(0), c.Term()
	second := (old + 1) % 3
	if last, err := c.Diverge(t.Context(), old, second, 30, 5, 64); err != nil || last != term+10 {
		t.Fatal(last, err)
	}
	first, other := c.Member(old).Group(0).Status(), c.Member(second).Group(0).Status()
	if first.LastIndex > other.LastIndex || first.Term < term+10 {
		t.Errorf("the logs end at %+v and %+v", first, other)
	}
	before := c.Rejections(old)
	c.Member(second).Group(0).Campaign()
	if err := rig.Until(t.Context(), "there is a leader", func() (bool, error) { return c.Leader(0) >= 0, nil }); err != nil {
		t.Fatal(err)
	}
	c.Hold(old, false)
	if err := c.Verify(t.Context(), c.Ledger()); err != nil {
		t.Fatal(err)
	}
	if n := c.Rejections(old) - before; n == 0 || n > 6 {
		t.Errorf("%d probes for 5 terms", n)
	}
}

// A cluster with sessions applies a command once, however often it comes.
func TestSessions(t *testing.T) {
	s := setup(t)
	s.Sessions = true
	c := open(t, s)
	group := c.Member(c.Leader(0)).Group(0)
	client, page := c.Ledger().Open()
	mark := session.Mark{ID: group.NewSession(), Number: 1, Low: 1}
	value := load.NewSource(64, 1).Value(load.ValueID{Client: client, Seq: page.Send()})
	for range 3 {
		if err := rig.Call(t.Context(), group, &mark, value); err != nil {
			t.Fatal(err)
		}
	}
	page.Acknowledge(0)
	window(t, c, nil)
	if err := c.Verify(t.Context(), c.Ledger()); err != nil {
		t.Error(err)
	}
}

// A cold start reads what a host has from the disk.
func TestChill(t *testing.T) {
	s := setup(t)
	s.Faults = true
	c := open(t, s)
	all := []int{0, 1, 2}
	if err := c.OnEach(all, (*rig.Member).Kill); err != nil {
		t.Fatal(err)
	}
	rate, err := c.Chill(t.Context(), all)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil || rate <= 0 {
		t.Errorf("%v bytes a second, %v", rate, err)
	}
}

// Clients survive what an experiment does to hosts, disks and links, and nothing that was acknowledged is
// lost.
func TestFaults(t *testing.T) {
	s := setup(t)
	s.Faults = true
	s.Snapshots = host.SnapshotPolicy{LogBytes: 256 << 10, KeepBytes: 1}
	s.StateBytes = 1<<20 + 5
	c := open(t, s)
	for _, tc := range []struct {
		name  string
		event func(context.Context) error
	}{
		{"a follower is killed", func(ctx context.Context) error {
			f := c.Member(c.Follower())
			if err := f.Kill(); err != nil {
				return err
			}
			return f.Again(ctx)
		}},
		{"the leader is killed", func(ctx context.Context) error {
			l := c.Member(c.Leader(0))
			if err := l.Kill(); err != nil {
				return err
			}
			if err := rig.Until(ctx, "another host leads", func() (bool, error) {
				now := c.Leader(0)
				return now >= 0 && c.Member(now) != l, nil
			}); err != nil {
				return err
			}
			return l.Again(ctx)
		}},
		{"a host is stopped", func(ctx context.Context) error {
			l, term := c.Member(c.Leader(0)), c.Term()
			if err := l.Stop(); err != nil {
				return err
			}
			if now := c.Term(); now <= term {
				return fmt.Errorf("the host handed nothing over: term %d before, %d after", term, now)
			}
			if n, err := l.LogBytes(); err != nil || n == 0 {
				return fmt.Errorf("%d bytes of log, %w", n, err)
			}
			return l.Again(ctx)
		}},
		{"a follower hears nothing, has a slow link, a slow disk", func(ctx context.Context) error {
			f := c.Follower()
			c.Hold(f, true)
			c.Hold(f, false)
			c.Refuse(f, true)
			c.Refuse(f, false)
			c.SetRate(f, 1e6)
			c.SetRate(f, 0)
			c.Member(f).SlowDisk(5 * time.Millisecond)
			c.Member(f).SlowDisk(0)
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			window(t, c, tc.event)
			if err := c.Settle(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The slow disk of the leader makes a write wait where no other disk is.
func TestLeaderFsyncDelay(t *testing.T) {
	s := setup(t)
	s.Hosts, s.LeaderFsyncDelay = 1, 20*time.Millisecond
	c := open(t, s)
	began := time.Now()
	if err := c.Fill(t.Context(), 1, 64); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < s.LeaderFsyncDelay {
		t.Errorf("a write took %v", took)
	}
}

// The disk of each host carries no more than its bandwidth: a write whose bytes take it a while is not
// acknowledged before.
func TestDiskBandwidth(t *testing.T) {
	const bytesPerSecond, valueBytes = 40_000_000, 4_000_000
	s := setup(t)
	s.Hosts, s.DiskBandwidth = 1, bytesPerSecond
	c := open(t, s)
	began := time.Now()
	if err := c.Fill(t.Context(), 1, valueBytes); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < valueBytes*time.Second/bytesPerSecond {
		t.Errorf("%d bytes took %v at %d bytes a second", valueBytes, took, bytesPerSecond)
	}
}

// lossy is an engine that loses every hundredth value.
type lossy struct{ seen, kept uint64 }

func (l *lossy) Put(entries []statemachine.Entry) error {
	for i := range entries {
		if len(entries[i].Data) == 0 {
			continue
		}
		if l.seen++; l.seen%100 != 0 {
			l.kept++
		}
	}
	return nil
}

func (l *lossy) Count() (uint64, error) { return l.kept, nil }
func (l *lossy) Close() error           { return nil }

// An engine that lacks what its machine has applied is found, and components that are not there are refused.
func TestEngines(t *testing.T) {
	s := setup(t)
	s.Hosts, s.Engine = 1, "lossy"
	s.Foreign.Engines = map[string]rig.OpenEngine{"lossy": func(string) (rig.Engine, error) { return &lossy{}, nil }}
	c := open(t, s)
	if err := c.Fill(t.Context(), 99, 64); err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context(), c.Ledger()); err != nil {
		t.Errorf("before a loss: %v", err)
	}
	if err := c.Fill(t.Context(), 1, 64); err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context(), c.Ledger()); !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "the engine holds 99 values, and its machine has applied 100") {
		t.Errorf("after it: %v", err)
	}
	for _, change := range []func(*rig.Setup){
		func(s *rig.Setup) { s.Engine = "x" }, func(s *rig.Setup) { s.Log = "x" },
		func(s *rig.Setup) { s.Snapshots.LogBytes = 1 },
	} {
		other := s
		change(&other)
		if _, err := rig.Open(t.Context(), other); err == nil {
			t.Errorf("%q, %q, %+v: opened", other.Log, other.Engine, other.Snapshots)
		}
	}
}
