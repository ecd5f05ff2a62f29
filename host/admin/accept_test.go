package admin

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// shortListener is a listener that has no descriptor until a time, and gives one connection then.
type shortListener struct {
	net.Listener
	until  time.Time
	tries  int
	conns  chan net.Conn
	closed chan struct{}
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.tries++; time.Now().Before(l.until) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *shortListener) Close() error { close(l.closed); return nil }

// For an hour the process has no descriptor. The socket tries again without a busy loop, says so at growing
// distances, and then it answers.
func TestAcceptWaitsForADescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = time.Hour
		here, there := net.Pipe()
		l := &shortListener{until: time.Now().Add(short), conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conns <- there
		var lines strings.Builder
		s := newServer(l, "/nowhere", newFake(), slog.New(slog.NewTextHandler(&lines, nil)), idleTimeout, takeTimeout)
		s.all.Go(s.accept)
		go func() { _, _ = here.Write([]byte("nonsense\n")) }()
		var answer [1]byte
		if _, err := here.Read(answer[:]); err != nil || answer[0] != '{' {
			t.Errorf("have %q, %v, want an answer", answer, err)
		}
		synctest.Wait()
		if most := int(short/acceptPause) + 2; l.tries > most {
			t.Errorf("have %d attempts, want at most %d", l.tries, most)
		}
		if n := strings.Count(lines.String(), "cannot accept"); n < 4 || n > 10 || !strings.Contains(lines.String(), "repeats=") {
			t.Errorf("have %d lines, want some at growing distances:\n%s", n, lines.String())
		}
		_ = here.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Close does not wait for a descriptor.
func TestCloseWithoutADescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &shortListener{until: began.Add(time.Hour), closed: make(chan struct{})}
		s := newServer(l, fmt.Sprint(t.TempDir(), "/none"), newFake(), slog.New(slog.DiscardHandler), idleTimeout, takeTimeout)
		s.all.Go(s.accept)
		synctest.Wait() // it pauses
		if err := s.Close(); err != nil || time.Since(began) > 0 {
			t.Errorf("have %v after %v, want at once", err, time.Since(began))
		}
	})
}
