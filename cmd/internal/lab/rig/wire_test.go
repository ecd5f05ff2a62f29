package rig_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// echo is a host that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return listener.Addr().String()
}

func link(t *testing.T) *rig.Link {
	t.Helper()
	l, err := rig.NewLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func dial(t *testing.T, l *rig.Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// there sends text and reads it back.
func there(c net.Conn, text string) (string, time.Duration, error) {
	began := time.Now()
	if _, err := io.WriteString(c, text); err != nil {
		return "", 0, err
	}
	buffer := make([]byte, len(text))
	_, err := io.ReadFull(c, buffer)
	return string(buffer), time.Since(began), err
}

// Every byte arrives, in order, and not before the delay of both directions.
func TestDelay(t *testing.T) {
	l := link(t)
	c := dial(t, l)
	for _, delay := range []time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond} {
		l.SetDelay(delay)
		for _, text := range []string{"a", "bc", string(make([]byte, 300_000))} {
			if have, took, err := there(c, text); err != nil || have != text || took < 2*delay {
				t.Errorf("%d bytes of %d after %v with a delay of %v: %v", len(have), len(text), took, delay, err)
			}
		}
	}
}

// A rate bounds what passes: 100 kB to and fro are 200 kB.
func TestRate(t *testing.T) {
	l := link(t)
	l.SetRate(2e6)
	if _, took, err := there(dial(t, l), string(make([]byte, 100_000))); err != nil || took < 90*time.Millisecond {
		t.Errorf("after %v: %v", took, err)
	}
}

// What is held arrives later; a refused connection is reset, and a new one too, until the link passes again.
func TestModes(t *testing.T) {
	l := link(t)
	c := dial(t, l)
	if _, _, err := there(c, "up"); err != nil {
		t.Fatal(err)
	}
	l.Set(rig.Holds)
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) && !isTimeout(err) {
		t.Errorf("a link that holds: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	l.Set(rig.Passes)
	buffer := make([]byte, 4)
	if _, err := io.ReadFull(c, buffer); err != nil || string(buffer) != "held" {
		t.Errorf("%q, %v", buffer, err)
	}
	l.Set(rig.Refuses)
	if _, err := c.Read(buffer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a link that refuses: %v", err)
	}
	if c, err := net.Dial("tcp", l.Addr()); err == nil { // it may be reset before this end has it
		defer c.Close()
		if _, _, err := there(c, "new"); err == nil {
			t.Error("a link that refuses passes a new connection")
		}
	}
	l.Set(rig.Passes)
	l.SetTarget(echo(t))
	if have, _, err := there(dial(t, l), "again"); err != nil || have != "again" {
		t.Errorf("%q, %v", have, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
