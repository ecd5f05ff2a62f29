package host

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/reports"
)

// A sequence of events ends with the host, and not before its last event: here one that is emitted between
// the reader's look at an empty backlog and its wait.
func TestEventsEndWithTheLast(t *testing.T) {
	h := &Host{reports: hostReports{events: new(reports.Events)}, shutdown: hostShutdown{shutdown: shutdown{done: make(chan struct{})}}}
	ends := &waitsOnce{Context: t.Context()}
	for range 64 { // select chooses at random
		sequence, got := h.Events(ends), 0
		ends.once, ends.first = sync.Once{}, func() {
			h.reports.events.Emit(event.DiskFull{})
			close(h.shutdown.done)
		}
		for range sequence {
			got++
		}
		if got != 1 {
			t.Fatal("the host has ended, and its last event is missing")
		}
		h.shutdown.done, ends.first = make(chan struct{}), nil
	}
}

// waitsOnce calls a function when a goroutine begins to wait for it.
type waitsOnce struct {
	context.Context
	once  sync.Once
	first func()
}

func (w *waitsOnce) Done() <-chan struct{} {
	if w.first != nil {
		w.once.Do(w.first)
	}
	return w.Context.Done()
}

// A sequence that is never read is forgotten when its context ends, and one that was read, when it ends.
func TestSequencesAreForgotten(t *testing.T) {
	h := &Host{reports: hostReports{events: new(reports.Events)}, shutdown: hostShutdown{shutdown: shutdown{done: make(chan struct{})}}}
	ctx, cancel := context.WithCancel(t.Context())
	h.Events(ctx)
	h.reports.events.Emit(event.DiskFull{})
	listeners := h.reports.events.Listeners
	if n := listeners(); n != 1 {
		t.Fatalf("%d listeners, want 1", n)
	}
	cancel()
	for listeners() > 0 {
		runtime.Gosched() // the context calls its functions on goroutines of their own
	}
	sequence := h.Events(t.Context())
	h.reports.events.Emit(event.DiskFull{})
	for range sequence {
		break
	}
	if n := listeners(); n != 0 {
		t.Errorf("%d listeners after the sequence has ended", n)
	}
}
