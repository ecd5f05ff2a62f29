package sim

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Options.Observations is everything that a run observes, a line each, in order and with its virtual time.
// Two trees of the source that write the same lines for a seed behave in the same way. A digest of events
// alone would not say so: an event names how long a frame is, and not what it says.

// observe writes a line. Callers ask observed first, so that a run without them formats nothing.
func (w *world) observe(format string, args ...any) {
	fmt.Fprintf(w.options.Observations, "%d ", int64(w.now))
	fmt.Fprintf(w.options.Observations, format, args...)
	fmt.Fprintln(w.options.Observations)
}

func (w *world) observed() bool { return w.options.Observations != nil }

// observeFrame writes what a process sends, whether or not it arrives.
func (w *world) observeFrame(from *life, to uint64, frame []byte) {
	if w.observed() {
		w.observe("%s sends host %d %x", from.name, to, frame)
	}
}

// observeOperation writes what a process does to its disk.
func (h *machine) observeOperation(op crashfs.Op) {
	if h.w.observed() {
		h.w.observe("disk of host %d: %v", h.id, op)
	}
}

// observeApplied writes a command that a state machine applies.
func (r *replica) observeApplied(at raftpb.Position, term uint64, data string) {
	if w := r.life.w; w.observed() {
		w.observe("%s applies entry %v of term %d: %x", r.name, at, term, hashOf([]byte(data)))
	}
}

// observeLine writes a line of a process's log, without the stack of a panic, which has addresses.
func (l *life) observeLine(r slog.Record) {
	if !l.w.observed() {
		return
	}
	l.w.observe("%s logs %s", l.name, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			l.w.observe("  %s", a)
		}
		return true
	})
}

// observeStatus writes the state of a group, if it differs from the last one.
func (r *replica) observeStatus(s diagnosis.Status) {
	if w := r.life.w; w.observed() && s != r.watch.status {
		w.observe("%s: %+v", r.name, s)
	}
}

// observeAnswer writes what a client is told.
func (r *replica) observeAnswer(command string, receipt outcome.Receipt, how any) {
	if w := r.life.w; w.observed() {
		w.observe("%s answers %x: %+v, %v", r.name, hashOf([]byte(command)), receipt, how)
	}
}

// observeRead writes how a read ends.
func (r *replica) observeRead(kind readKind, err error) {
	if w := r.life.w; w.observed() {
		w.observe("%s ends a %v read: %v", r.name, kind, err)
	}
}

// observeEvent writes what a process reports.
func (l *life) observeEvent(e event.Event) {
	if l.w.observed() {
		l.w.observe("%s reports %s %+v", l.name, reflect.TypeOf(e).Name(), e)
	}
}
