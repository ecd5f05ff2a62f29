package host

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/statemachine"
)

// The stack of a state machine that panics is in the log once, and in no error.
func TestPanicIsLoggedWithItsStack(t *testing.T) {
	var log bytes.Buffer
	l := openTestHostWith(t, 1, func(*Config) {}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	l.machine.fail = func(statemachine.Entry) error { panic("no such shelf") }
	l.lead()
	p := l.submit("x")
	l.manual.runIdle()
	err := l.group.Halted()
	if err == nil || !strings.Contains(err.Error(), "no such shelf") || strings.Contains(err.Error(), "goroutine") {
		t.Fatalf("error %v, want one with the panic and without its stack", err)
	}
	if _, err := poll(t, p); err != nil && strings.Contains(err.Error(), "goroutine") {
		t.Errorf("a client gets the stack: %v", err)
	}
	if n := strings.Count(log.String(), "runtime/debug.Stack()"); n != 1 {
		t.Errorf("the stack is in the log %d times, want once:\n%s", n, &log)
	}
}
