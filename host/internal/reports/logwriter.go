package reports

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/containment"
)

// A logger may hang: it writes to a terminal, a pipe or a disk. So nothing of a host writes to the user's
// logger itself. What is logged goes into a backlog, and a worker writes it. A line at which the handler
// panics is lost, and counted (HostMetrics.LogLinesDropped).

// LogWriter writes log lines: env.Worker.
type LogWriter struct {
	backlog backlog[logLine]
	base    slog.Handler // the user's
	dropped atomic.Uint64
	task    env.Task
}

type logLine struct {
	handler slog.Handler
	record  slog.Record
}

// StartLogWriter schedules a writer for the user's logger.
func StartLogWriter(l *slog.Logger, scheduler env.Scheduler) *LogWriter {
	w := &LogWriter{base: l.Handler()}
	w.task = scheduler.Go("log writer", env.Compute, w)
	return w
}

// Logger returns a logger that leaves its lines to the writer.
func (w *LogWriter) Logger() *slog.Logger { return slog.New(later{w.base, w}) }

// Dropped returns how many lines were lost.
func (w *LogWriter) Dropped() uint64 { return w.dropped.Load() }

// RunOnce implements env.Worker: one line.
func (w *LogWriter) RunOnce() (more bool) {
	line, dropped, ok := w.backlog.dequeue()
	if !ok && dropped == 0 {
		return false
	}
	var ended error
	defer func() { more = true }() // also if the handler ends this goroutine
	err := containment.Call("the slog.Handler", func() error {
		if ok && line.handler.Enabled(context.Background(), line.record.Level) {
			_ = line.handler.Handle(context.Background(), line.record) // there is no place to report it
		}
		if dropped > 0 {
			w.reportDropped(dropped)
		}
		return nil
	}, &ended)
	if err != nil {
		w.dropped.Add(1) // a handler that panics cannot be told
	}
	return true
}

// Close stops the worker and writes what waits.
func (w *LogWriter) Close() error {
	w.task.Stop()
	containment.RunOut(w)
	return nil
}

// later is a slog.Handler that leaves its records to a LogWriter.
type later struct {
	slog.Handler
	writer *LogWriter
}

// Enabled implements slog.Handler. The user's handler is asked by the writer: it may block.
func (l later) Enabled(context.Context, slog.Level) bool { return true }

func (l later) Handle(_ context.Context, r slog.Record) error {
	if !l.writer.backlog.enqueue(logLine{l.Handler, r.Clone()}) {
		l.writer.dropped.Add(1)
	}
	l.writer.task.Wake()
	return nil
}

func (l later) WithAttrs(attrs []slog.Attr) slog.Handler {
	return later{l.Handler.WithAttrs(attrs), l.writer}
}

func (l later) WithGroup(name string) slog.Handler { return later{l.Handler.WithGroup(name), l.writer} }

// reportDropped says how many lines are missing.
func (w *LogWriter) reportDropped(n int) {
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "millrace: the logger did not keep up; lines are missing here", 0)
	r.AddAttrs(slog.Int("lines", n))
	_ = w.base.Handle(context.Background(), r)
}
