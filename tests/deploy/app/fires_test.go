package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// A cluster that works fires no alert: not while it serves, and not while it idles.
func TestAHealthyClusterFiresNothing(t *testing.T) {
	c, w := startTrio(t, nil), newWatch(t)
	c.propose("first")  // a new cluster is not healthy before
	for i := range 80 { // 20 minutes
		if i%4 == 0 {
			c.propose("x")
		}
		if firing := w.round(c.targets()); len(firing) > 0 {
			t.Fatalf("after %v: %v %v", time.Duration(i)*scrapeInterval, firing, w.fired)
		}
	}
}

// cause makes the cause of an alert.
type cause struct {
	alerts string // that fire then
	change func(c *millrace.Config)
	// setup starts the cluster in place of startTrio.
	setup func(t *testing.T, c *trio)
	make  func(t *testing.T, c *trio)
	each  func(c *trio) // before each scrape
}

// causes are those that a cluster in this process can have. Other tests have the rest.
var causes = []cause{
	{
		alerts: "MillraceHostDown MillraceMemberUnreachable",
		make:   func(_ *testing.T, c *trio) { c.stop(c.followers()[0]) },
	},
	{
		alerts: "MillraceNotFounded",
		setup:  func(_ *testing.T, c *trio) { c.start(1); c.start(2) },
	},
	{
		alerts: "MillraceNoLeader MillraceHostDown",
		make:   func(_ *testing.T, c *trio) { leader := c.leader(); c.stop(leader); c.stop(leader%3 + 1) },
	},
	{
		alerts: "MillraceNothingCommitted",
		change: func(c *millrace.Config) { c.ElectionTimeout, c.StallTimeout = 3*time.Second, time.Hour },
		make: func(_ *testing.T, c *trio) {
			for _, id := range c.followers() {
				c.disks[id].SetHook(hang(c))
			}
		},
		each: func(c *trio) { c.submit("x") },
	},
	{
		alerts: "MillraceOverloaded",
		change: func(c *millrace.Config) { c.MemoryBytes, c.StallTimeout, c.MaxCommandBytes = 8<<20, time.Hour, 256<<10 },
		make: func(_ *testing.T, c *trio) {
			for _, id := range c.followers() {
				c.disks[id].SetHook(hang(c))
			}
		},
		each: func(c *trio) { // also when no member leads
			for range 20 {
				_, _ = c.node(1).Submit(strings.Repeat("x", 128<<10)) // it is refused when there is no space
			}
		},
	},
	{
		alerts: "MillraceGroupStopped",
		make: func(_ *testing.T, c *trio) {
			c.disks[c.followers()[0]].SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpSync {
					return syscall.EIO
				}
				return nil
			})
			c.propose("x")
		},
	},
	{
		alerts: "MillraceMachineHalted",
		make:   func(_ *testing.T, c *trio) { c.propose(fmt.Sprint("panic ", c.followers()[0])) },
	},
	{
		alerts: "MillraceMembersDiffer",
		make:   func(_ *testing.T, c *trio) { c.propose(fmt.Sprint("differ ", c.followers()[0])) },
		each:   func(c *trio) { c.submit("x") },
	},
	{
		alerts: "MillraceWithoutAuthority",
		make: func(t *testing.T, c *trio) { // alone it cannot catch up
			for id := uint64(1); id <= 3; id++ {
				c.stop(id)
			}
			o := wal.InspectOptions{FS: c.disks[3].Mount(), Dir: "/data/log"}
			damage(t, c.disks[3], o)
			if r, err := wal.RepairLog(t.Context(), wal.RepairOptions{InspectOptions: o, Write: true}); err != nil || !r.Fence.Amnesia {
				t.Fatalf("%+v, %v", r, err)
			}
			c.start(3)
		},
	},
	{
		alerts: "MillraceIdentityRefused",
		make: func(_ *testing.T, c *trio) {
			id := c.followers()[0]
			c.stop(id)
			c.disks[id] = crashfs.New()
			c.start(id)
		},
	},
	{
		alerts: "MillraceMemberBehind",
		change: func(c *millrace.Config) { c.StallTimeout = time.Hour },
		make:   func(_ *testing.T, c *trio) { c.disks[c.followers()[0]].SetHook(hang(c)) },
		each:   func(c *trio) { c.submit("x") },
	},
	{
		alerts: "MillraceDiskFull",
		make: func(_ *testing.T, c *trio) {
			c.disks[c.followers()[0]].SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpPreallocate || op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpWrite && op.Len > 64<<10 {
					return syscall.ENOSPC
				}
				return nil
			})
		},
		each: func(c *trio) { c.submit(strings.Repeat("x", 1<<20)) },
	},
	{
		alerts: "MillraceDiskStalled",
		make: func(_ *testing.T, c *trio) {
			c.disks[c.followers()[0]].SetHook(hang(c))
			c.propose("x")
		},
	},
	{
		alerts: "MillraceDiskSlow",
		make: func(_ *testing.T, c *trio) {
			c.disks[c.followers()[0]].SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpSync {
					<-time.After(400 * time.Millisecond)
				}
				return nil
			})
		},
		each: func(c *trio) { c.submit("x") },
	},
	{
		alerts: "MillraceApplyHung MillraceUnhealthy",
		make:   func(_ *testing.T, c *trio) { c.propose(fmt.Sprint("hang ", c.followers()[0])) },
	},
	{
		alerts: "MillraceSnapshotsFail",
		make: func(t *testing.T, c *trio) {
			for range 2 {
				if _, err := c.node(1).TakeSnapshot(t.Context()); err == nil {
					t.Fatal("a snapshot was taken")
				}
				c.propose("x")
			}
		},
	},
	{
		alerts: "MillraceLeaderChanges",
		each: func(c *trio) {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			leader := c.leader()
			_ = c.node(leader).TransferLeadership(ctx, leader%3+1) // the next round tries again
		},
	},
	{
		alerts: "MillraceSubscriberBehind",
		make: func(t *testing.T, c *trio) {
			n := c.node(1)
			go func() {
				for range n.Subscribe(t.Context(), n.LastPublication()) {
					<-c.release // it takes one, and sleeps
				}
			}()
			eventually(t, "a subscriber", func() error {
				if n.Metrics().Published.Subscribers == 0 {
					return errors.New("there is none")
				}
				return nil
			})
			c.propose("publish 1") // the subscriber sleeps from then on
		},
		each: func(c *trio) { c.submit("publish 2000") },
	},
	{
		alerts: "MillraceSubscriberForgotten",
		change: func(c *millrace.Config) { c.PublicationBytes = 1 },
		make: func(t *testing.T, c *trio) {
			n := c.node(1)
			for range 2 {
				c.propose("publish 10")
			}
			eventually(t, "publications on host 1", func() error {
				if n.Metrics().Published.Published < 20 {
					return errors.New("there are none")
				}
				return nil
			})
			for _, err := range n.Subscribe(t.Context(), millrace.Bookmark{}) {
				if !errors.Is(err, millrace.ErrForgotten) {
					t.Error(err)
				}
				break
			}
		},
	},
	{
		alerts: "MillraceSettingsDiffer",
		change: func(c *millrace.Config) {
			if c.ID == 3 {
				c.HeartbeatInterval = 60 * time.Millisecond
			}
		},
		each: func(c *trio) { c.submit("x") },
	},
}

// hang is a disk whose writes and syncs do not return before the end of the test.
func hang(c *trio) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			<-c.release
		}
		return nil
	}
}

// damage flips bits of a log until its inspection finds it.
func damage(t *testing.T, disk *crashfs.FS, o wal.InspectOptions) {
	t.Helper()
	for damaged, off := false, int64(0); !damaged; off += 16 {
		in, err := wal.Inspect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		s := in.Segments[len(in.Segments)-1]
		if damaged = len(in.Findings) > 0; !damaged {
			err = disk.FlipBit(o.Dir+"/"+s.Name, s.Durable/2+off, 3)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Each alert fires when its cause is made on real nodes, and not before.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	for _, cause := range causes {
		t.Run(strings.Fields(cause.alerts)[0], func(t *testing.T) {
			var c *trio
			w := newWatch(t)
			if cause.setup != nil {
				c = newTrio(t, cause.change)
				cause.setup(t, c)
			} else {
				c = startTrio(t, cause.change)
				c.propose("first")
				for range 4 {
					w.round(c.targets())
				}
				for _, name := range strings.Fields(cause.alerts) {
					if l, fired := w.fired[name]; fired {
						t.Fatalf("%s fires before its cause: %v", name, l)
					}
				}
			}
			if cause.make != nil {
				cause.make(t, c)
			}
			w.until(t, cause.alerts, c.targets, func() {
				if cause.each != nil {
					cause.each(c)
				}
			})
		})
	}
}

// until scrapes until these alerts fire.
func (w *watch) until(t *testing.T, names string, targets func() map[string]http.Handler, each func()) {
	t.Helper()
	missing := strings.Fields(names)
	eventually(t, names, func() error {
		each()
		w.round(targets())
		missing = slices.DeleteFunc(missing, func(name string) bool { _, fired := w.fired[name]; return fired })
		if len(missing) > 0 {
			return fmt.Errorf("%v do not fire; %v", missing, w.fired)
		}
		return nil
	})
}

// A process that was stopped for seconds, and certificates that expire and that cannot be used: what needs a
// process of its own, and files.
func TestAlertsOfAProcessFire(t *testing.T) {
	t.Parallel()
	pki, p := filepath.Join(t.TempDir(), "pki"), newPlace(t)
	output(t, program(t, "millrace"), "cert", "ca", "--dir", pki, "--name", "kv")
	output(t, program(t, "millrace"), "cert", "member", "--dir", pki, "--id", "1", "--days", "13")
	kv := start(t, os.Environ(), program(t, "kv"), "-id", "1", "-dir", t.TempDir(), "-members", "1="+p.address(1, 7001), "-client-addresses", "1="+p.address(1, 8001),
		"-ops", p.address(1, 9001), "-cert", filepath.Join(pki, "member-1.pem"), "-key", filepath.Join(pki, "member-1-key.pem"), "-ca", filepath.Join(pki, "ca.pem"))
	eventually(t, "kv is ready", func() error { _, err := get("http://" + p.address(1, 9001) + "/readyz"); return err }, kv)
	page := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: p.address(1, 9001)})
	targets := func() map[string]http.Handler { return map[string]http.Handler{"kv-1": page} }
	w := newWatch(t)
	for range 4 {
		w.round(targets())
	}
	if len(w.fired) > 0 {
		t.Fatalf("%v", w.fired)
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := kv.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			<-time.After(3 * time.Second)
		}
	}
	w.until(t, "MillraceProcessPaused MillraceCertificateExpires", targets, func() {})

	if err := os.WriteFile(filepath.Join(pki, "member-1.pem"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until(t, "MillraceCertificateUnusable", targets, func() {})
	kv.stop(t, time.Minute)
}

// No alert is left out: each has a cause in a test here.
func TestEachAlertHasACause(t *testing.T) {
	made := map[string]bool{"MillraceProcessPaused": true, "MillraceCertificateExpires": true, "MillraceCertificateUnusable": true}
	for _, c := range causes {
		for _, name := range strings.Fields(c.alerts) {
			made[name] = true
		}
	}
	for _, a := range alerts(t) {
		if !made[a.name] {
			t.Errorf("no test makes the cause of %s", a.name)
		}
		delete(made, a.name)
	}
	for name := range made {
		t.Errorf("there is no alert %s", name)
	}
}
