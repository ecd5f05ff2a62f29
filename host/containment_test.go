package host

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
)

// A turn that follows nil stops its group, and no other one: the clients are answered, the log has the stack,
// and the group can be opened again.
func TestPanicOfATurnStopsTheGroup(t *testing.T) {
	var text strings.Builder
	l := openTestHost(t, 3, WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
	other := l.open(theGroup+1, &commands{})
	l.lead()
	p := l.submit("x")
	l.manual.runIdle()
	l.group.core.node.RawNode = nil
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})

	var panicked *containment.Panic
	if err := l.group.Err(); !errors.As(err, &panicked) || !strings.Contains(err.Error(), "nil pointer") {
		t.Fatalf("the group: %v", err)
	}
	if !strings.Contains(string(panicked.Stack), "raft.(*RawNode).") {
		t.Errorf("the stack does not say where: %s", panicked.Stack)
	}
	if _, err := poll(t, p); !errors.Is(err, outcome.ErrIndeterminate) {
		t.Errorf("the client: %v", err)
	}
	if !strings.Contains(text.String(), "stack=") {
		t.Errorf("the log has no stack: %s", text.String())
	}
	if err := other.Err(); err != nil {
		t.Errorf("another group: %v", err)
	}
	l.leadGroup(other)
}

// A duty is a part of its turn: a panic in it stops its group, and not the host.
func TestPanicOfADutyStopsTheGroup(t *testing.T) {
	l := openTestHost(t, 3)
	l.env.env.Duties.Called = func(string) { panic("a bug") }
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1})
	if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("the group: %v", err)
	}
}

// A panic in the middle of what groups share goes on, and ends the process.
func TestPanicUnderALockGoesOn(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.LogCacheBytes = -1 })
	l.lead()
	l.storage.readers = storage.StartReaders(l.others(), func(string, env.Worker) env.Task { return nil }, nil)
	l.group.writes.storage.Begin((*storageGroup)(l.group), l.storage.readers)
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "host/internal/storage.(*Readers).ask may have left what groups share half-done") {
			t.Errorf("the turn: %v", p)
		}
	}()
	l.addStranger()
	t.Error("nothing was read")
}
