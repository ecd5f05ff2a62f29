package host

import (
	"context"
	"sync"
	"testing"
)

// A sequence of events ends with the host, and not before its last event: here one that is emitted between
// the reader's look at an empty backlog and its wait.
func TestEventsEndWithTheLast(t *testing.T) {
	h := &Host{events: new(events), shutdown: shutdown{done: make(chan struct{})}}
	ends := &waitsOnce{Context: t.Context(), first: func() {
		h.events.emit(DiskFull{})
		close(h.shutdown.done)
	}}
	for range 64 { // select chooses at random
		sequence, got := h.Events(ends), 0
		for range sequence {
			got++
		}
		if got != 1 {
			t.Fatal("the host has ended, and its last event is missing")
		}
		h.shutdown.done, ends.once = make(chan struct{}), sync.Once{}
	}
}

// waitsOnce calls a function when a goroutine begins to wait for it.
type waitsOnce struct {
	context.Context
	once  sync.Once
	first func()
}

func (w *waitsOnce) Done() <-chan struct{} {
	w.once.Do(w.first)
	return w.Context.Done()
}
