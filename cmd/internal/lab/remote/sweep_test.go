package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// atPoint is a progress that does something when a point begins.
type atPoint struct {
	report.Silence
	do func(n int)
}

func (p atPoint) Point(n int, _ string, _ time.Duration) { p.do(n) }

// sweep does a small sweep on members, with windows of length, and returns its archive and its error. do
// hears each point.
func sweep(t *testing.T, ctx context.Context, of *remote.Cluster, length time.Duration, do func(n int)) (*archive.Archive, error) {
	t.Helper()
	plan := of.Hello().Components.Experiment(3)
	plan.ValueBytes, plan.Operation, plan.Clients, plan.Rates, plan.MaxInFlight = 64, experiment.Write, nil, []float64{100}, 100
	plan.Duration, plan.MaxWarmup, plan.Repeats = length, 20*time.Millisecond, 1
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	err := experiment.Job{
		Options: experiment.Options{
			Recipe: "sweep", Command: []string{"millrace"}, Config: map[string]string{}, Dir: t.TempDir(), Out: out, Progress: atPoint{do: do},
			Elsewhere: remote.Members{Cluster: of}, Afar: true,
		},
		Plans: []experiment.Plan{plan}, Sweep: &experiment.Sweep{Start: 100, Factor: 2, Steps: 1, Limit: time.Minute, Max: 300},
	}.Run(ctx, io.Discard, rig.Foreign{})
	a, bad := archive.Read(out)
	if bad != nil {
		t.Fatal(bad)
	}
	return a, err
}

// told says of a run what the tests look at.
func told(a *archive.Archive) string {
	return fmt.Sprintf("partial %v, %d points, criteria %+v", a.Run.Partial, len(a.Run.Points), a.Run.Criteria)
}

// A sweep finds the knee of members that run, rate after rate. When it is interrupted, or a member goes, the
// rates that were measured stay.
func TestSweep(t *testing.T) {
	c := start(t, 3, components, nil)
	of := c.connect()
	var a *archive.Archive
	var err error
	length := 100 * time.Millisecond
	for length = range labtest.Lengths(length) { // until the first rate is within its means
		if a, err = sweep(t, t.Context(), of, length, func(int) {}); len(a.Run.Points) > 1 {
			break
		}
	}
	if err != nil || a.Run.Partial || len(a.Run.Points) < 2 || len(a.Run.Criteria) != 2 || len(a.Envs.Members) != 3 {
		t.Errorf("%v; %s; %d members", err, told(a), len(a.Envs.Members))
	}
	for _, p := range a.Run.Points {
		if p.Labels[archive.LabelProcesses] != "remote" || p.Labels[archive.LabelRate] == "" || p.Repeats[0].Figures[experiment.LoadCores.Name] <= 0 {
			t.Errorf("%+v", p)
		}
	}

	enough := errors.New("enough")
	for ; length < time.Minute; length *= 2 { // until the first rate is within its means again
		ctx, cancel := context.WithCancelCause(t.Context())
		a, err = sweep(t, ctx, of, length, func(n int) {
			if n == 1 {
				cancel(enough)
			}
		})
		if cancel(nil); a.Run.Partial {
			break
		}
	}
	if !errors.Is(err, enough) || strings.Contains(err.Error(), "without an answer") || !a.Run.Partial || len(a.Run.Points) != 1 || a.Run.Criteria != nil {
		t.Errorf("interrupted: %v; %s", err, told(a))
	}

	for ; length < time.Minute; length *= 2 {
		a, err = sweep(t, t.Context(), of, length, func(n int) {
			if n == 1 {
				c.stop(1)
			}
		})
		if a.Run.Partial {
			break
		}
	}
	if err == nil || !a.Run.Partial || len(a.Run.Points) != 2 || a.Run.Criteria != nil {
		t.Fatalf("a member goes: %v; %s", err, told(a))
	}
	last := a.Run.Points[1]
	if want := last.Name + ": the sweep ends here"; !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "member 2 at "+c.loads[1]) {
		t.Errorf("%v, want %s", err, want)
	}
	if w := last.AllWarnings(); !slices.ContainsFunc(w, func(w archive.Warning) bool { return w.Code == archive.WarnMemberGone }) {
		t.Errorf("%+v", w)
	}
}

// The error of a load names the members that do not answer at its end, once.
func TestErrorsNameMembers(t *testing.T) {
	c := start(t, 2, components, nil)
	of, broken := remote.Members{Cluster: c.connect()}, errors.New("broken")
	in := func(f func(experiment.Abroad) error) error { return of.In(t.Context(), "", rig.Setup{}, f) }
	if err := in(func(experiment.Abroad) error { return broken }); err != broken {
		t.Errorf("all are there: %v", err)
	}
	err := in(func(r experiment.Abroad) error {
		c.stop(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return r.Verify(ctx, r.Ledger())
	})
	if name := "member 2 at " + c.loads[1]; err == nil || strings.Count(err.Error(), name) != 1 || strings.Contains(err.Error(), "without an answer now") {
		t.Errorf("it says it itself: %v", err)
	}
	if err := c.again(1); err != nil {
		t.Fatal(err)
	}
	err = in(func(experiment.Abroad) error {
		c.stop(1)
		return broken
	})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "broken; without an answer now: member 2 at "+c.loads[1]) {
		t.Errorf("it is gone: %v", err)
	}
}
