package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A program learns of changes of role, of a full disk, of entries that are forgotten then, and of the end of
// a group, in this order.
func TestEvents(t *testing.T) {
	var events []string
	l := openTestHost(t, 3, WithEvents(func(e Event) {
		switch e := e.(type) {
		case RoleChanged:
			events = append(events, fmt.Sprintf("term %d: %v, leader %d", e.Term, e.Role, e.Leader))
		case DiskFull:
			events = append(events, "disk full")
		case RefusedForgotten:
			events = append(events, fmt.Sprintf("forgotten behind %d", e.LastIndex))
		case GroupStopped:
			events = append(events, fmt.Sprintf("stopped: %t", errors.Is(e.Err, errBroken)))
		}
	}))
	defer l.Close(t.Context())
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Entries: span(1, 3, 1), Commit: 2})
	l.disk.SetHook(noNewSegments)
	long := span(3, 4, 1)
	long[0].Data = make([]byte, 100<<10)
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: long, Commit: 3})
	for range l.group.forgetAfterTicks + 1 {
		l.manual.tick()
	}
	l.disk.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errBroken))
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Index: 2, LogTerm: 1, Entries: span(3, 4, 1), Commit: 3})
	want := []string{"term 1: StateFollower, leader 2", "disk full", "forgotten behind 2", "term 1: StateFollower, leader 0", "term 1: StateFollower, leader 2", "stopped: true"}
	if !slices.Equal(events, want) {
		t.Errorf("events\n%q, want\n%q", events, want)
	}
}

var errBroken = errors.New("the disk is broken")

// A logger that hangs when it is asked whether a level is enabled delays no turn.
func TestLoggerThatHangsWhenAsked(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	w := startLogWriter(slog.New(asking{slog.DiscardHandler, func(slog.Level) bool { asked <- struct{}{}; <-release; return false }}), &manualEnv{})
	w.logger().Info("a line") // returns, or the test hangs
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
