package host

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
)

// events passes the events of a host to its listeners. Each has a backlog of its own, so one that hangs
// delays neither the host nor another listener.
type events struct {
	mu        sync.Mutex
	listeners []*listener
	dropped   atomic.Uint64 // for all listeners together
}

// listener is a backlog of events, and what to do when it is not empty any more.
type listener struct {
	backlog backlog[event.Event]
	notify  func()
}

// emit never blocks and calls nothing of the user's.
func (s *events) emit(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if !l.backlog.put(e) {
			s.dropped.Add(1)
		}
		l.notify()
	}
}

func (s *events) add(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
}

func (s *events) remove(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.listeners {
		if s.listeners[i] == l {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return
		}
	}
}

// Events returns the events of this host from now on, in order. The sequence ends when ctx ends or the host
// is closed. A reader that does not keep up misses events and gets an event.EventsDropped in their place. Any
// number of sequences may be read at a time, each of them once. A sequence that is not read holds events
// until ctx ends.
func (h *Host) Events(ctx context.Context) iter.Seq[event.Event] {
	more := make(chan struct{}, 1)
	l := &listener{notify: func() {
		select {
		case more <- struct{}{}:
		default:
		}
	}}
	h.reports.events.add(l)
	remove := context.AfterFunc(ctx, func() { h.reports.events.remove(l) })
	return func(yield func(event.Event) bool) {
		defer func() {
			remove()
			h.reports.events.remove(l)
		}()
		for closed := false; ; {
			for e, ok := l.next(); ok; e, ok = l.next() {
				if !yield(e) {
					return
				}
			}
			if closed {
				return
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			case <-h.shutdown.done:
				closed = true // what was emitted before that comes first
			}
		}
	}
}

// next takes the next event of a listener.
func (l *listener) next() (event.Event, bool) {
	e, dropped, ok := l.backlog.take()
	if dropped > 0 {
		return event.EventsDropped{Count: dropped}, true
	}
	return e, ok
}

// hook calls the function of WithEvents: env.Worker.
type hook struct {
	listener
	call   func(event.Event)
	task   env.Task
	events *events
	logger *slog.Logger
}

// RunOnce implements env.Worker: one event. A function that panics has missed it, and gets the next one.
func (h *hook) RunOnce() (more bool) {
	e, ok := h.next()
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
func (h *hook) missed(e event.Event, err error) {
	h.events.dropped.Add(1)
	h.logger.Error("the function of WithEvents failed; it gets the next event", "event", fmt.Sprintf("%T", e), "err", err)
}

// startHook schedules the function of WithEvents.
func startHook(s *events, scheduler env.Scheduler, logger *slog.Logger, call func(event.Event)) *hook {
	h := &hook{call: call, events: s, logger: logger}
	h.task = scheduler.Go("events", env.Compute, h)
	h.notify = h.task.Wake
	s.add(&h.listener)
	return h
}

// Close stops the worker and passes on what waits.
func (h *hook) Close() error {
	h.task.Stop()
	containment.RunOut(h)
	return nil
}

// WithEvents makes the host call f with each Event, one at a time and in order. f runs beside the host: if
// f hangs, this costs events (event.EventsDropped) and makes Close wait, nothing else. If f panics, or ends
// its goroutine, it has missed that event. This is logged with the stack and counted
// (HostMetrics.EventsDropped), and f gets the next event. f must not call Host.Close.
func WithEvents(f func(event.Event)) Option { return func(e *environment) { e.hook = f } }
