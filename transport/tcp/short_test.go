package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A process, or its machine, has no descriptor left for a while (host/testdata/opens.md).

var short = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}

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
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", short[l.tries%3])}
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// shortTransport is a transport that accepts from such a listener.
func shortTransport(t *testing.T, l *shortListener) (*Transport, *heardLog) {
	tr, err := Listen(Options{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.listener.Close(); err != nil {
		t.Fatal(err)
	}
	began, heard := time.Now(), newHeardLog()
	tr.listener, tr.receiver = l, newLedger()
	tr.log.logger, tr.log.now = heard.logger, func() time.Duration { return time.Since(began) }
	tr.work.Go(tr.accept)
	return tr, heard
}

// For an hour no connection can be accepted. The listener tries again without a busy loop, says so at growing
// distances, and then it accepts.
func TestAcceptWaitsForADescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		here, there := net.Pipe()
		l := &shortListener{until: time.Now().Add(hour), conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conns <- there
		tr, heard := shortTransport(t, l)
		if _, err := here.Write([]byte{0}); err != nil { // it waits until the transport reads
			t.Fatal(err)
		}
		if took := time.Since(l.until.Add(-hour)); took < hour || tr.Stats().Accepts != 1 {
			t.Errorf("have %d connections after %v, want one after an hour", tr.Stats().Accepts, took)
		}
		here.Close()
		synctest.Wait()
		if most := int(hour/acceptPause) + 2; l.tries > most {
			t.Errorf("have %d attempts in an hour, want at most %d", l.tries, most)
		}
		if lines := heard.take(); len(lines) < 4 || len(lines) > 10 {
			t.Errorf("have %d lines, want some at growing distances: %q", len(lines), lines)
		}
		close(l.closed)
		tr.stop()
		tr.work.Wait()
	})
}

// Close does not wait for a descriptor.
func TestCloseWithoutADescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		tr, _ := shortTransport(t, &shortListener{until: began.Add(time.Hour), closed: make(chan struct{})})
		synctest.Wait() // it pauses
		tr.stop()
		tr.work.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("have %v, want at once", took)
		}
	})
}

// A connection that cannot be made is tried again, as when no host listens there.
func TestDialWaitsForADescriptor(t *testing.T) {
	addr, conns := deaf(t)
	var tries atomic.Int32
	tr := listening(t, newLedger(), func(o *Options) {
		o.Resolve = func(context.Context, uint64, string) (string, error) {
			if n := int(tries.Add(1)); n <= 6 {
				return "", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", short[n%3])}
			}
			return addr, nil
		}
	})
	next(t, conns, "connection when there is a descriptor").Close()
	if s := tr.Stats(); s.DialFailures < 6 {
		t.Errorf("have %d failures, want 6", s.DialFailures)
	}
}

// Files of certificates, keys and CAs that cannot be opened for now change nothing, and are not refused. Each
// look tries again, and the log says so at growing distances. With descriptors, what is new is taken.
func TestCredentialsWaitForADescriptor(t *testing.T) {
	a := newAuthority(t, "ours")
	ends, sources := pairUnder(t, a)
	one, source, before := ends[0], sources[0], sources[0].current.Load()
	heard := newHeardLog()
	one.trust.logger = heard.logger
	looks := func(n int) {
		t.Helper()
		for range n {
			one.reviewTrust()
		}
		if n := len(one.events); n > 0 {
			t.Fatalf("have event %#v, want none", <-one.events)
		}
		if one.trust.wanted.Load() != before || one.Stats().TLS.LoadFailures > 0 {
			t.Error("other credentials were taken or refused")
		}
	}
	source.current.Store(a.credentials(1, a.valid(200*time.Hour)))
	for i, cause := range short {
		err := fmt.Errorf("the key: %w", &os.PathError{Op: "open", Path: "host.key", Err: cause})
		source.err.Store(&err)
		looks(300)
		lines := heard.take()
		if first := i == 0; first && len(lines) != 4 || !first && len(lines) > 1 {
			t.Errorf("%v: have %d lines for 300 looks: %q", cause, len(lines), lines)
		}
		for _, line := range lines {
			if !strings.Contains(line, "certificates cannot be opened for now") || !strings.Contains(line, cause.Error()) {
				t.Errorf("%v: have %q", cause, line)
			}
		}
	}
	reaches(t, ends[0], ends[1], 7)
	source.err.Store(nil)
	one.reviewTrust()
	event[CredentialsLoaded](t, one)
	before = one.trust.wanted.Load()
	if before != source.current.Load() {
		t.Error("the new credentials were not taken")
	}
	heard.take()
	err := error(syscall.EMFILE)
	source.err.Store(&err)
	if looks(1); len(heard.take()) != 1 {
		t.Error("another lack is not said at once")
	}
}
