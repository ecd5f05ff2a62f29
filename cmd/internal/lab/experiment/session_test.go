package experiment_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// servesJob in the environment makes the test program one that is handed a job.
const servesJob = "MILLRACE_TEST_SERVES_JOB"

func TestMain(m *testing.M) {
	if os.Getenv(servesJob) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := experiment.Serve(ctx, os.Stdin, os.Stdout, os.Stderr, rig.Foreign{})
	stop()
	if err != nil {
		panic(err)
	}
}

func options(t *testing.T) experiment.Options {
	return experiment.Options{
		Recipe: "test", Summary: "Does it run?", Command: []string{"millrace", "lab"}, Config: map[string]string{"nodes": "3"}, Seed: 7,
		Dir: t.TempDir(), Out: filepath.Join(t.TempDir(), "out"), Hosts: 3, Progress: report.Silence{},
	}
}

// A run measures every point in every round, verifies it, and leaves an archive that the reader takes.
func TestRunLeavesAnArchive(t *testing.T) {
	for length := range labtest.Lengths(1100 * time.Millisecond) {
		if leavesAnArchive(t, length) {
			return
		}
	}
	t.Error("some repeat measured too little")
}

// windowFigures are above 0 in a window in which anything happened.
var windowFigures = []archive.Metric{archive.Ops, archive.OpsPerSec, archive.P99Us, archive.FsyncsPerOp, archive.EntriesPerAppend, archive.NetBytesPerOp, archive.CPUUsPerOp}

// leavesAnArchive reports whether each repeat measured every figure, and checks the archive then.
func leavesAnArchive(t *testing.T, length time.Duration) bool {
	o := options(t)
	o.Probe = 20 * time.Millisecond
	p := good()
	p.Duration, p.Pipelines, p.Rates = length, []string{"async"}, []float64{200}
	s, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		if err := s.MeasureAll(ctx, p.Points(rig.Foreign{}), p.Repeats); err != nil {
			return err
		}
		value, ok := s.Ratio(archive.OpsPerSec.Name, "async, 2 clients", "async, 200/s")
		s.Judge(experiment.Criterion{Name: "a ratio", Limit: "≥ 0", Unit: archive.UnitRatio, Holds: experiment.AtLeast(0)}, value, ok, "")
		s.Judge(experiment.Criterion{Name: "another", Limit: "≤ -1", Unit: archive.UnitCount, Holds: experiment.AtMost(-1)}, value, ok, "")
		s.Judge(experiment.Criterion{Name: "a third", Limit: "≥ 1", Unit: archive.UnitRatio}, 0, false, "left out")
		s.Reference("a source", "ops", archive.UnitPerSecond, new(5.0), "async, 2 clients", archive.OpsPerSec.Name, "")
		s.Omit("five nodes")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Empty(t, o.Dir)
	a, err := archive.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range a.Run.Points {
		for _, r := range p.Repeats {
			none := func(m archive.Metric) bool { return r.Figures[m.Name] <= 0 }
			if slices.ContainsFunc(windowFigures, none) || len(r.Series) > 0 && len(r.Series[0].Columns[archive.OpsPerSec.Name]) == 0 {
				return false
			}
		}
	}
	if a.Run.Partial || len(a.Run.Points) != 2 || len(a.Run.Criteria) != 3 || a.Envs.Load.Disk == nil {
		t.Errorf("%+v", a.Run)
	}
	for i, want := range []archive.Verdict{archive.Pass, archive.Fail, archive.NotMeasured} {
		if c := a.Run.Criteria[i]; c.Verdict != want {
			t.Errorf("%s: %s, want %s", c.Name, c.Verdict, want)
		}
	}
	orders := map[int]bool{}
	for _, p := range a.Run.Points {
		if len(p.Repeats) != 2 {
			t.Errorf("%s has %d repeats", p.Name, len(p.Repeats))
		}
		for _, r := range p.Repeats {
			orders[r.Order] = true
			if len(r.Series) == 0 || len(r.Series[0].Columns[archive.OpsPerSec.Name]) == 0 {
				t.Errorf("%s has no series", p.Name)
			}
			var ops int64
			if err := a.ReadHistograms(r.Histograms, func(i archive.Interval) error {
				if i.Tag == "write" {
					ops += i.Histogram.TotalCount()
				}
				return nil
			}); err != nil || float64(ops) < r.Figures[archive.Ops.Name] {
				t.Errorf("%s: %d latencies of %v operations, %v", p.Name, ops, r.Figures[archive.Ops.Name], err)
			}
		}
	}
	if len(orders) != 4 {
		t.Errorf("orders %v", orders)
	}
	var text bytes.Buffer
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Does it run?", "async, 200/s", "ops/s", "p99", "NOT-MEASURED", "theirs 5", "Left out: five nodes", "async: ", " writes/s at 2 clients, p99 ", "; of the criteria 1 pass, 1 fail, 1 were not measured."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	return true
}

// An interrupted run keeps what was finished and says that it is partial.
func TestInterruptedRun(t *testing.T) {
	o := options(t)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := good()
	s, err := experiment.Run(ctx, o, func(ctx context.Context, s *experiment.Session) error {
		if _, err := s.Measure(ctx, p.Points(rig.Foreign{})[0]); err != nil {
			t.Error(err)
		}
		cancel(stop)
		_, err := s.Measure(ctx, p.Points(rig.Foreign{})[0])
		return err
	})
	if !errors.Is(err, stop) || s == nil || !s.Archive.Partial {
		t.Fatalf("%+v, %v", s, err)
	}
	labtest.Empty(t, o.Dir)
	a, err := archive.Read(o.Out)
	if err != nil || !a.Run.Partial || len(a.Run.Points) != 1 || len(a.Run.Points[0].Repeats) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if w := a.Run.Warnings; len(w) == 0 || w[len(w)-1].Code != archive.WarnPartial {
		t.Errorf("%+v", w)
	}
}

// A run that fails keeps what was finished, and says why in a text of bounded length.
func TestFailedRun(t *testing.T) {
	o := options(t)
	broken := errors.New(strings.Repeat("ä", 5000))
	s, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		return errors.Join(s.Add("a point", map[string]string{"a": "b"}, archive.Repeat{}), broken)
	})
	if !errors.Is(err, broken) || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	a, err := archive.Read(o.Out)
	if err != nil || !a.Run.Partial || len(a.Run.Points) != 1 || !strings.HasPrefix(a.Run.Warnings[len(a.Run.Warnings)-1].Text, "The run was cut short: ä") {
		t.Errorf("%+v, %v", a, err)
	}
}

// What makes figures other than those of a durable system on a real network is said once for the run.
func TestLabelling(t *testing.T) {
	o := options(t)
	o.Out = ""
	s, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		for _, change := range []func(*experiment.Plan){
			func(p *experiment.Plan) { p.Log = "unsafe-os" },
			func(p *experiment.Plan) { p.Log, p.Transport = "memory", "loopback" },
			func(p *experiment.Plan) { p.FsyncDelay, p.NetDelay = time.Millisecond, time.Millisecond },
			func(p *experiment.Plan) { p.FsyncDelay = time.Millisecond },
		} {
			p := good()
			change(&p)
			if _, err := s.Measure(ctx, p.Points(rig.Foreign{})[0]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, w := range s.Archive.Warnings {
		count[w.Code]++
	}
	if count[archive.WarnNotDurable] != 1 || count[archive.WarnInMemory] != 2 || count[archive.WarnFake] != 2 {
		t.Errorf("%+v", s.Archive.Warnings)
	}
}

// The impact of an event that stops a cluster for a while.
func TestImpact(t *testing.T) {
	for before := range labtest.Lengths(500 * time.Millisecond) {
		i := impact(t, before)
		if i.LongestGap >= 200*time.Millisecond && i.LongestGap <= i.Duration && i.LostOps > 0 && i.RateRatio <= 0.9 {
			return
		}
		t.Logf("after %v: %+v", before, i)
	}
	t.Error("the event has no impact")
}

// impact is that of an event after a while.
func impact(t *testing.T, before time.Duration) (i experiment.Impact) {
	o := options(t)
	o.Out = ""
	p := good().Points(rig.Foreign{})[0]
	p.Setup.Faults, p.Setup.Heartbeat, p.Setup.Election = true, 50*time.Millisecond, 2*time.Second
	_, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		s.Declare(experiment.ImpactMetrics...)
		return s.InCluster(ctx, p.Setup, func(c *rig.Cluster) error {
			var from, to time.Time
			t2, err := s.Observe(ctx, c, p, func(ctx context.Context) error {
				if err := lab.Sleep(ctx, before); err != nil {
					return err
				}
				from = time.Now()
				for i := range c.Members() {
					c.Hold(i, true)
				}
				if err := lab.Sleep(ctx, 300*time.Millisecond); err != nil {
					return err
				}
				for i := range c.Members() {
					c.Hold(i, false)
				}
				to = time.Now()
				return nil
			})
			if err != nil {
				return err
			}
			tl := t2.Timeline
			i = experiment.ImpactOf(tl, experiment.Span{From: t2.Warmup, To: tl.At(from)}, experiment.Span{From: tl.At(from), To: tl.At(to)})
			f := map[string]float64{}
			if i.AddTo(f); f[archive.LongestGapSec.Name] != i.LongestGap.Seconds() || f[experiment.EventSec.Name] == 0 {
				t.Errorf("%v", f)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}
