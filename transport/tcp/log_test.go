package tcp

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/transport"
)

// heardLog is a log whose clock the test sets. Its lines begin with their level.
type heardLog struct {
	limitedLog
	at    time.Duration
	lines strings.Builder
}

func newHeardLog() *heardLog {
	h := &heardLog{}
	h.logger = slog.New(slog.NewTextHandler(&h.lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	h.now = func() time.Duration { return h.at }
	return h
}

func (h *heardLog) take() (lines []string) {
	if text := strings.TrimSuffix(h.lines.String(), "\n"); text != "" {
		lines = strings.Split(text, "\n")
	}
	h.lines.Reset()
	return lines
}

func (h *heardLog) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := h.take(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func nothing() {}

// A peer that is down for an hour costs a dozen lines, which count all attempts. The first ones are no
// warnings. When it was back for a while, all is new.
func TestPeerThatIsDown(t *testing.T) {
	h, down := newHeardLog(), io.EOF
	const hour = 3600
	for i := range hour {
		h.at = time.Duration(i) * time.Second
		h.unconnected(2, down, nothing)
	}
	lines := h.take()
	if len(lines) > 12 {
		t.Errorf("%d lines in an hour, want at most 12", len(lines))
	}
	for i, want := range []string{
		`level=INFO msg="cannot connect to a peer" peer=2 error=EOF`,
		`level=INFO msg="cannot connect to a peer" peer=2 error=EOF`,
		`level=WARN msg="cannot connect to a peer" peer=2 error=EOF repeats=9`,
		`level=WARN msg="cannot connect to a peer" peer=2 error=EOF repeats=59`,
		`level=WARN msg="cannot connect to a peer" peer=2 error=EOF repeats=599`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
	h.at += mayBeAway
	h.ended(2, mayBeAway-1, "error", io.EOF)
	h.expect(t, "a connection that has not lasted", `level=WARN msg="the connection to a peer ended" peer=2 error=EOF`)
	h.at += mayBeAway
	h.ended(2, mayBeAway, "error", io.EOF)
	h.unconnected(2, down, nothing)
	h.expect(t, "after one that has lasted", `level=INFO msg="the connection to a peer ended" peer=2 error=EOF`, `level=INFO msg="cannot connect to a peer" peer=2 error=EOF`)
}

// A peer that takes connections and drops them is away, and is warned of.
func TestPeerThatComesAndGoes(t *testing.T) {
	h := newHeardLog()
	for range 60 {
		h.at += time.Second
		h.ended(2, time.Second)
	}
	h.expect(t, "in a minute",
		`level=INFO msg="the connection to a peer ended" peer=2`,
		`level=INFO msg="the connection to a peer ended" peer=2`,
		`level=WARN msg="the connection to a peer ended" peer=2 repeats=9`)
}

// Two failures of a peer that is dialed on demand, an hour apart, are no absence of an hour.
func TestSeldomFailuresAreNoAbsence(t *testing.T) {
	h := newHeardLog()
	for range 2 {
		h.at += time.Hour
		h.unconnected(2, io.EOF, nothing)
		h.expect(t, "a failure", `level=INFO msg="cannot connect to a peer" peer=2 error=EOF`)
	}
}

// What needs an operator is a warning at once: this host is refused, or a certificate is wrong.
func TestRefusalsAreWarnings(t *testing.T) {
	for _, err := range []error{&refusal{errors.New("no")}, &certificateError{err: errors.New("no")}} {
		h := newHeardLog()
		h.unconnected(2, err, nothing)
		h.expect(t, "a refusal", `level=WARN msg="cannot connect to a peer" peer=2 error=`+err.Error())
	}
}

// What is said about one peer, or strangers, hides nothing that is said about others.
func TestLimitedLog(t *testing.T) {
	h := newHeardLog()
	for range 2 {
		for _, about := range []topic{{peer: 2, message: "x"}, {peer: 3, message: "x"}, {peer: 2, message: "y"}, {message: "x"}, {message: "x", named: true}} {
			h.report(about, slog.LevelInfo, nothing)
		}
	}
	if got := h.take(); len(got) != 5 {
		t.Errorf("%d lines, want 5: %q", len(got), got)
	}
}

// A program that looks whether the port is open is counted, with TLS and without, and is no warning.
func TestProbes(t *testing.T) {
	for name, err := range map[string]error{"closed": io.EOF, "reset": syscall.ECONNRESET} {
		if !(&inbound{}).probed(&net.OpError{Op: "read", Err: err}) || (&inbound{spoke: true}).probed(err) {
			t.Errorf("%s: only a connection without a byte is a probe", name)
		}
	}
	h := newHeardLog()
	tr, err := Listen(Options{ID: 1, Logger: h.logger})
	if err != nil {
		t.Fatal(err)
	}
	tr.Start(silentReceiver{})
	for range 100 {
		conn, err := net.Dial("tcp", tr.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		_, _ = conn.Read(make([]byte, 1)) // returns when the host has closed it, after it has counted
		conn.Close()
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if s := tr.Stats(); s.Probes != 100 || s.Refusals != 0 {
		t.Errorf("%d probes and %d refusals, want 100 and 0", s.Probes, s.Refusals)
	}
	h.expect(t, "probes")
}

type silentReceiver struct{ transport.Receiver }

func (silentReceiver) Introduce() transport.Introduction { return transport.Introduction{} }
