package host

import (
	"context"
	"iter"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/reports"
)

// Events returns the events of this host from now on, in order. The sequence ends when ctx ends or the host
// is closed. A reader that does not keep up misses events and gets an event.EventsDropped in their place. Any
// number of sequences may be read at a time, each of them once. A sequence that is not read holds events
// until ctx ends.
func (h *Host) Events(ctx context.Context) iter.Seq[event.Event] {
	more := make(chan struct{}, 1)
	l := &reports.Listener{Notify: func() {
		select {
		case more <- struct{}{}:
		default:
		}
	}}
	h.reports.events.Add(l)
	remove := context.AfterFunc(ctx, func() { h.reports.events.Remove(l) })
	return func(yield func(event.Event) bool) {
		defer func() {
			remove()
			h.reports.events.Remove(l)
		}()
		for closed := false; ; {
			for e, ok := l.Next(); ok; e, ok = l.Next() {
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

// WithEvents makes the host call f with each Event, one at a time and in order. f runs beside the host: if
// f hangs, this costs events (event.EventsDropped) and makes Close wait, nothing else. If f panics, or ends
// its goroutine, it has missed that event. This is logged with the stack and counted
// (HostMetrics.EventsDropped), and f gets the next event. f must not call Host.Close.
func WithEvents(f func(event.Event)) Option { return func(e *environment) { e.hook = f } }
