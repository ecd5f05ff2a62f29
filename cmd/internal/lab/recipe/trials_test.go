package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/outcome"
)

// inCluster calls f with a cluster of a session.
func inCluster(t *testing.T, setup rig.Setup, f func(ctx context.Context, s *experiment.Session, c *rig.Cluster) error) {
	t.Helper()
	o := experiment.Options{Recipe: "test", Dir: t.TempDir(), Hosts: setup.Hosts, Progress: report.Silence{}}
	_, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		return s.InCluster(ctx, setup, func(c *rig.Cluster) error { return f(ctx, s, c) })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The first read after a restart does not wait for the first write: with slow disks it comes earlier.
func TestTheFirstReadIsNotBehindTheWrite(t *testing.T) {
	setup := three()
	setup.Faults = true
	inCluster(t, setup, func(ctx context.Context, s *experiment.Session, c *rig.Cluster) error {
		for _, m := range c.Members() {
			m.SlowDisk(100 * time.Millisecond)
		}
		f, _, err := restart(ctx, s, c, b6Case{"a follower is killed", killed, oneFollower})
		if read, write := f[readSec.Name], f[writeSec.Name]; err == nil && !(read > 0 && read < write) {
			t.Errorf("the first read after %v s, the first write after %v s", read, write)
		}
		return err
	})
}

// Trials that were cut short are kept, and count in no median: it would be one of fewer than were demanded.
func TestTrialsCutShortAreInNoMedian(t *testing.T) {
	s, cutShort := sessionWith(t, nil), errors.New("cut short")
	f := newFound()
	f.add(time.Millisecond, 2)
	if err := f.save(s, "some", time.Now(), cutShort); !errors.Is(err, cutShort) {
		t.Error(err)
	}
	if err := f.save(s, "all", time.Now(), nil); err != nil {
		t.Error(err)
	}
	putTrials(s, three(), "some logs", []trial{{commit: 1, level: 1}}, time.Now(), true)
	for _, name := range []string{"some", "all", "some logs"} {
		values := s.Values(name, archive.Ops.Name)
		if kept := len(s.Point(name, nil).Repeats); kept != 1 || (len(values) == 1) != (name == "all") {
			t.Errorf("%s: %d repeats, %v", name, kept, values)
		}
	}
}

// Without a leader no member refuses a plan, so the demand that one is refused is not met by that.
func TestWithoutALeaderNothingIsRefused(t *testing.T) {
	setup := three()
	setup.Hosts = 1
	inCluster(t, setup, func(ctx context.Context, _ *experiment.Session, c *rig.Cluster) error {
		if err := c.Member(0).Stop(); err != nil {
			return err
		}
		if err := planOnce(ctx, c, nil); err == nil || errors.Is(err, outcome.ErrMembersUnchanged) {
			t.Errorf("%v", err)
		}
		return nil
	})
}

// The processor time of the client's process is that of all writes by which it is divided: of the warm-up,
// too.
func TestTheClientCountsItsWarmUp(t *testing.T) {
	setup := three()
	setup.Hosts, setup.Sessions = 1, true
	inCluster(t, setup, func(ctx context.Context, s *experiment.Session, c *rig.Cluster) (err error) {
		service, err := newService(c, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, service.close()) }()
		o, _, said, err := runClient(ctx, clientJob{
			Seeds: service.addrs, Threads: 4, ValueBytes: logcabinValue, Warmup: experiment.Steady(300*time.Millisecond, 300*time.Millisecond), Length: 20 * time.Millisecond, Seed: 1, Sessions: true,
		})
		if err == nil && said.CPU <= o.CPU {
			t.Errorf("%v of processor time, and %v of it in the measurement", said.CPU, o.CPU)
		}
		return err
	})
}

// A client that finds no leader ends when the program is gone that has started it.
func TestTheClientEndsWithItsOwner(t *testing.T) {
	dead, err := deadAddress()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	process := exec.CommandContext(ctx, program, ClientVerb)
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.NewEncoder(in).Encode(clientJob{Seeds: []string{dead}, ValueBytes: load.MinValueBytes}), in.Close()); err != nil {
		t.Error(err)
	}
	if err := process.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("it ended with %v (%v)", err, ctx.Err())
	}
}

// What a recipe says beforehand of its disk space is what its measurements will ask for.
func TestNoMeasurementIsRefusedInTheMiddle(t *testing.T) {
	for _, size := range []Size{Full, Quick, Glance, Long} {
		c := scaleB5(size)
		for _, state := range c.states {
			for _, percent := range c.loads {
				if need, said := int(c.plan(state, percent).NeedBytes()>>20), b5.needMiB(size); need > said {
					t.Errorf("size %d, state of %d MiB, at %d %%: %d MiB, and %d were said", size, state>>20, percent, need, said)
				}
			}
		}
	}
}

// The capacity of b4 with one state is not a repeat of that with another.
func TestCapacitiesOfStatesAreApart(t *testing.T) {
	of := experiment.Point{Setup: three(), ValueBytes: b0Value}
	small, large := b4Peak(of, 0), b4Peak(of, 100<<20)
	if small.Name == large.Name || small.Labels["state"] == large.Labels["state"] {
		t.Errorf("%q %v, and %q %v", small.Name, small.Labels, large.Name, large.Labels)
	}
}
