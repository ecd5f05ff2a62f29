package experiment_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
)

// handOver hands a job to this test program, in a process of its own, and returns what came back.
func handOver(t *testing.T, ctx context.Context, j experiment.Job, progress *os.File) (text string, err error) {
	t.Helper()
	t.Setenv(servesJob, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = j.HandOver(ctx, self, experiment.AsEvents, &out, progress)
	return out.String(), err
}

func job(t *testing.T) experiment.Job {
	p := good()
	p.Pipelines, p.Hosts = []string{"async"}, 1
	return experiment.Job{Options: options(t), Plans: []experiment.Plan{p}}
}

// A job that is done in another process leaves the archive, prints the table, tells its progress, and fails
// as it would here: with the field and the kind of the error.
func TestHandOver(t *testing.T) {
	told, err := os.Create(filepath.Join(t.TempDir(), "progress"))
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	j := job(t)
	text, err := handOver(t, t.Context(), j, told)
	if err != nil || !strings.Contains(text, "async, 2 clients") {
		t.Fatalf("%v in\n%s", err, text)
	}
	a, err := archive.Read(j.Options.Out)
	if err != nil || len(a.Run.Points) != 1 || len(a.Run.Points[0].Repeats) != 2 || a.Run.Seed != 7 || a.Run.Partial {
		t.Errorf("%+v, %v", a, err)
	}
	events, err := os.ReadFile(told.Name())
	if err != nil || strings.Count(string(events), `"event":"done"`) != 2 {
		t.Errorf("%v in\n%s", err, events)
	}

	j = job(t)
	j.Sweep = &experiment.Sweep{Start: 50, Factor: 2, Max: 60}
	j.Plans[0].Clients, j.Plans[0].Rates = nil, []float64{50}
	if text, err = handOver(t, t.Context(), j, told); err != nil || !strings.HasPrefix(text, "async: the ") || !strings.Contains(text, "async, 50/s") {
		t.Errorf("sweep: %v in\n%s", err, text)
	}

	j = job(t)
	j.Options.Dir = "/does/not/exist"
	_, err = handOver(t, t.Context(), j, told)
	var refused *lab.FieldError
	if !errors.As(err, &refused) || refused.Field != "Dir" || !errors.Is(err, lab.ErrCannot) {
		t.Errorf("no such directory: %v", err)
	}
	if err := job(t).HandOver(t.Context(), "/does/not/exist", experiment.Quietly, &bytes.Buffer{}, told); err == nil || !strings.Contains(err.Error(), "without an answer") {
		t.Errorf("no such program: %v", err)
	}
}

// An interrupted job comes back with what was finished.
func TestHandOverInterrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j := job(t)
	j.Plans[0].Duration, j.Plans[0].Repeats = time.Minute, 1
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("the user")
	go func() {
		defer w.Close()
		seen, buffer := "", make([]byte, 4096)
		for !strings.Contains(seen, `"phase":"measure"`) {
			n, err := r.Read(buffer)
			if err != nil {
				return
			}
			seen += string(buffer[:n])
		}
		cancel(why)
	}()
	text, err := handOver(t, ctx, j, w)
	if !errors.Is(err, why) || !strings.Contains(text, "PARTIAL") {
		t.Errorf("%v in\n%s", err, text)
	}
	if a, err := archive.Read(j.Options.Out); err != nil || !a.Run.Partial {
		t.Errorf("%+v, %v", a, err)
	}
}
