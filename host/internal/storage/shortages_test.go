package storage

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
	s := new(Shortages)
	s.Open(slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return now })
	short, tried := errors.New("no descriptor"), 0
	for range 60 * 100 { // a minute
		now += 10 * time.Millisecond
		s.Later(func() { tried++ }, short)
		s.Tick()
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 || tried != 60*100 { // at once, after 1 s, and after 10 s more
		t.Errorf("a minute of shortage: %d lines, and %d attempts\n%s", lines, tried, log.String())
	}
	s.Tick()
	log.Reset()
	s.Later(func() {}, short)
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("it begins again, with %d lines", lines)
	}
}
