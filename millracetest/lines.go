package millracetest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxLines bounds the log lines that are kept, the latest of all hosts together.
const maxLines = 1000

// lines keeps log lines, to be printed if the test fails.
type lines struct {
	began time.Time

	mu    sync.Mutex
	kept  []string // a ring, once it is full
	total int
}

func newLines() *lines { return &lines{began: time.Now()} }

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) < maxLines {
		l.kept = append(l.kept, line)
	} else {
		l.kept[l.total%maxLines] = line
	}
	l.total++
}

// String returns the lines that are kept.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "millracetest: what the hosts have logged: %d lines", l.total)
	first := 0
	if l.total > maxLines {
		fmt.Fprintf(&b, ", of which these are the last %d", maxLines)
		first = l.total % maxLines
	}
	for i := range l.kept {
		b.WriteString("\n" + l.kept[(first+i)%len(l.kept)])
	}
	return b.String()
}

// of returns the handler for the log lines of a host.
func (l *lines) of(id uint64) slog.Handler {
	return handler{lines: l, prefix: fmt.Sprintf("node %d", id)}
}

// handler is a slog.Handler.
type handler struct {
	lines  *lines
	prefix string
	attrs  string
	group  string
}

func (h handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%10v %s: %v %s%s", r.Time.Sub(h.lines.began).Round(time.Millisecond), h.prefix, r.Level, r.Message, h.attrs)
	r.Attrs(func(a slog.Attr) bool { b.WriteString(h.format(a)); return true })
	h.lines.add(b.String())
	return nil
}

func (h handler) format(a slog.Attr) string { return fmt.Sprintf(" %s%s=%v", h.group, a.Key, a.Value) }

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += h.format(a)
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	h.group += name + "."
	return h
}
