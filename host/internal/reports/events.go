// Package reports passes on what a host reports: its events to their listeners, its log lines to the user's
// logger. Each reader has a backlog of its own (MaxBacklog), and loses what does not fit. Nothing here blocks
// who reports. Each type has its own lock, under which nothing is called but a Listener's Notify.
package reports

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/internal/lock"
)

// Events passes the events of a host to its listeners. Each has a backlog of its own, so one that hangs
// delays neither the host nor another listener.
type Events struct {
	mu        lock.Mutex
	listeners []*Listener
	dropped   atomic.Uint64
}

// Listener is a backlog of events, and what to do when it is not empty any more.
type Listener struct {
	backlog backlog[event.Event]
	Notify  func()
}

// Emit never blocks and calls nothing of the user's.
func (s *Events) Emit(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if !l.backlog.enqueue(e) {
			s.dropped.Add(1)
		}
		l.Notify()
	}
}

// Dropped returns how many events have not reached a listener, of all listeners together.
func (s *Events) Dropped() uint64 { return s.dropped.Load() }

// Listeners returns how many there are.
func (s *Events) Listeners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

// Add makes l hear of what is emitted from now on.
func (s *Events) Add(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
}

// Remove forgets l.
func (s *Events) Remove(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.listeners {
		if s.listeners[i] == l {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return
		}
	}
}

// Next takes the next event of a listener.
func (l *Listener) Next() (event.Event, bool) {
	e, dropped, ok := l.backlog.dequeue()
	if dropped > 0 {
		return event.EventsDropped{Count: dropped}, true
	}
	return e, ok
}

// Hook calls the function of WithEvents: env.Worker.
type Hook struct {
	Listener
	call   func(event.Event)
	task   env.Task
	events *Events
	logger *slog.Logger
}

// RunOnce implements env.Worker: one event. A function that panics has missed it, and gets the next one.
func (h *Hook) RunOnce() (more bool) {
	e, ok := h.Next()
	if !ok {
		return false
	}
	var ended error
	defer func() {
		if ended != nil {
			h.missed(e, ended)
			more = true
		}
	}()
	if err := containment.Call("the function of WithEvents", func() error { h.call(e); return nil }, &ended); err != nil {
		h.missed(e, err)
	}
	return true
}

// missed counts an event that the function of WithEvents has not taken to its end.
func (h *Hook) missed(e event.Event, err error) {
	h.events.dropped.Add(1)
	h.logger.Error("the function of WithEvents failed; it gets the next event", "event", fmt.Sprintf("%T", e), "err", err)
}

// StartHook schedules the function of WithEvents.
func StartHook(s *Events, scheduler env.Scheduler, logger *slog.Logger, call func(event.Event)) *Hook {
	h := &Hook{call: call, events: s, logger: logger}
	h.task = scheduler.Go("events", env.Compute, h)
	h.Notify = h.task.Wake
	s.Add(&h.Listener)
	return h
}

// Close stops the worker and passes on what waits.
func (h *Hook) Close() error {
	h.task.Stop()
	containment.RunOut(h)
	return nil
}
