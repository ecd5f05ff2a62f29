package host

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// What finds no descriptor again and again says so at growing distances, and at once when it begins again.
func TestShortagesAreSaidSeldom(t *testing.T) {
	var log bytes.Buffer
	var now time.Duration
	s := &shortages{logger: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Duration { return now }}
	short, tried := errors.New("no descriptor"), 0
	for range 60 * 100 { // a minute
		now += 10 * time.Millisecond
		s.later(func() { tried++ }, short)
		s.beat()
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 || tried != 60*100 { // at once, after 1 s, and after 10 s more
		t.Errorf("a minute of shortage: %d lines, and %d attempts\n%s", lines, tried, log.String())
	}
	s.beat()
	log.Reset()
	s.later(func() {}, short)
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("it begins again, with %d lines", lines)
	}
}

// A join token names the CA of the host that makes it. While the certificate cannot be read there is none:
// it would let its bearer join a cluster with any CA.
func TestNoJoinTokenWithoutTheCertificate(t *testing.T) {
	l := openTestHost(t, 1)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	l.config.TLS = &TLS{CertFile: "gone.pem", KeyFile: "gone.key", CAFile: "gone.ca"}
	if _, err := l.group.StartJoinToken(JoinTokenOptions{}); err == nil || !strings.Contains(err.Error(), "certificate cannot be read now") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a token without the certificate: %v", err)
	}
	l.config.TLS = nil
	if _, err := l.group.StartJoinToken(JoinTokenOptions{}); err != nil {
		t.Errorf("a token without TLS: %v", err)
	}
}
