package reports

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
)

// A backlog keeps the first MaxBacklog, says in their place how many are missing, and is whole again behind
// that. The twin is a list without a bound, and the place from which it is not kept.
func TestBacklog(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var b backlog[int]
	var kept []int
	dropped := 0
	for i := range 40 * MaxBacklog {
		if puts := random.IntN(2) == 0 || i/MaxBacklog%4 == 0; puts {
			keeps := dropped == 0 && len(kept) < MaxBacklog
			if b.enqueue(i) != keeps {
				t.Fatalf("step %d: kept %t, want %t, with %d waiting and %d dropped", i, !keeps, keeps, len(kept), dropped)
			}
			if keeps {
				kept = append(kept, i)
			} else {
				dropped++
			}
			continue
		}
		v, missing, ok := b.dequeue()
		switch {
		case len(kept) > 0:
			if !ok || v != kept[0] || missing != 0 {
				t.Fatalf("step %d: %d, %d missing, %t; want %d", i, v, missing, ok, kept[0])
			}
			kept = kept[1:]
		case ok || missing != dropped:
			t.Fatalf("step %d: %d missing, %t; want %d", i, missing, ok, dropped)
		default:
			dropped = 0
		}
	}
}

// byHand is an env.Scheduler whose worker the test runs.
type byHand struct{ env.Scheduler }

func (byHand) Go(string, env.Kind, env.Worker) env.Task { return byHand{} }
func (byHand) Wake()                                    {}
func (byHand) Stop()                                    {}

// A function that panics, or ends its goroutine, has missed one event; the next comes.
func TestAHookGoesOnAfterAPanic(t *testing.T) {
	var events Events
	calls, logged := 0, &strings.Builder{}
	h := StartHook(&events, byHand{}, slog.New(slog.NewTextHandler(logged, nil)), func(event.Event) {
		if calls++; calls == 1 {
			panic(errors.New("broken"))
		}
	})
	events.Emit(event.DiskFull{})
	events.Emit(event.DiskFull{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if calls != 2 || events.Dropped() != 1 || !strings.Contains(logged.String(), "WithEvents") {
		t.Errorf("%d calls, %d missed, and the log says %q; want 2, 1 and the name of the function", calls, events.Dropped(), logged)
	}
}

// A logger that hangs when it is asked whether a level is enabled delays no caller.
func TestALoggerThatHangsWhenAsked(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	w := StartLogWriter(slog.New(asking{slog.DiscardHandler, func(slog.Level) bool { asked <- struct{}{}; <-release; return false }}), byHand{})
	w.Logger().Info("a line") // returns, or the test hangs
	go w.RunOnce()
	<-asked
	close(release)
}

// asking is a slog.Handler that asks a function what is enabled.
type asking struct {
	slog.Handler
	enabled func(slog.Level) bool
}

func (a asking) Enabled(_ context.Context, level slog.Level) bool { return a.enabled(level) }

// The log says where lines are missing, and their number is counted.
func TestMissingLinesAreSaid(t *testing.T) {
	logged := &strings.Builder{}
	w := StartLogWriter(slog.New(slog.NewTextHandler(logged, nil)), byHand{})
	for range MaxBacklog + 3 {
		w.Logger().Info("a line")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Dropped() != 3 || strings.Count(logged.String(), "a line") != MaxBacklog || !strings.Contains(logged.String(), "lines=3") {
		t.Errorf("%d dropped; the log has %d lines and ends with %q", w.Dropped(), strings.Count(logged.String(), "a line"), logged.String()[logged.Len()-150:])
	}
}
