package pebble

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Stalls that puts feel are reported, with those that came since the last report.
func TestStallsAreReported(t *testing.T) {
	var log bytes.Buffer
	s := stalls{to: slog.New(slog.NewTextHandler(&log, nil)), dir: "db"}
	begin := time.Unix(1000, 0)
	for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 11 * time.Second} {
		s.begin(pebble.WriteStallBeginInfo{Reason: "memtable count limit reached"})
		s.began = begin.Add(at)
		took := 200 * time.Millisecond
		if at == time.Second {
			took = 300 * time.Millisecond
		}
		s.ended(s.began.Add(took))
		s.began = begin.Add(at)
		s.ended(s.began.Add(minStall - 1))
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d reports, want 2:\n%s", lines, &log)
	}
	for _, want := range []string{"times=1 longest=200ms", "times=3 longest=300ms", `reason="memtable count limit reached"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
}
