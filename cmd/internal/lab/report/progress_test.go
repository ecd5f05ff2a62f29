package report

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Lines for a log file: one for the limits, if the run has any, and one for each point.
func TestLines(t *testing.T) {
	for _, limits := range []bool{true, false} {
		var out strings.Builder
		p := &lines{out: &out}
		p.Begin(2)
		if limits {
			p.Phase("one file")
			p.Phase("three files")
		}
		for i, name := range []string{"bare, 1 client", "async, 1 client"} {
			p.Point(i, name, time.Second)
			p.Phase("warm-up")
			p.PointDone(Result{OpsPerSec: 1234, MeanUs: 500, P99Us: 900})
		}
		p.End()
		want := "1/2 bare, 1 client: 1,234 ops/s, mean 500 µs, p99 900 µs\n2/2 async, 1 client: 1,234 ops/s, mean 500 µs, p99 900 µs\n"
		if limits {
			want = "measuring the limits of this machine\n" + want
		}
		if out.String() != want {
			t.Errorf("limits %v:\n%s", limits, out.String())
		}
	}
}

// The bar fits into the width of its terminal.
func TestBarLine(t *testing.T) {
	now := time.Now()
	b := &bar{width: 200, points: 16, i: 6, name: "async, 100 clients", phase: "measure", began: now.Add(-time.Minute), point: now, window: time.Second,
		live: func() load.Live { return load.Live{Completed: 42100} }}
	if have, want := b.line(now), "[#########...............] 7/16 async, 100 clients  measure  42,100 writes  1m40s left"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
	b.live = func() load.Live {
		return load.Live{Completed: 42100, Rate: 9800, P50: 1200 * time.Microsecond, P99: 3410 * time.Microsecond}
	}
	if have, want := b.line(now), "  measure  42,100 writes  9,800/s p50 1.20 ms p99 3.41 ms  1m40s left"; !strings.HasSuffix(have, want) {
		t.Errorf("%q, want %q at its end", have, want)
	}
	b.width = 20
	if have := b.line(now); len(have) != 19 {
		t.Errorf("%d columns: %q", len(have), have)
	}
	if have, want := (&bar{width: 80, phase: "one file"}).line(now), "limits: one file"; have != want {
		t.Errorf("%q, want %q", have, want)
	}
}

// A run of several parts begins and ends each of them, and its bar clears its line each time.
func TestBarOfSeveralParts(t *testing.T) {
	var out strings.Builder
	b := newBar(&out, 80)
	for range 2 {
		b.Begin(1)
		b.Point(0, "take", time.Second)
		b.End()
	}
	if have := strings.Count(out.String(), clearLine); have < 2 {
		t.Errorf("%d lines were cleared: %q", have, out.String())
	}
}
