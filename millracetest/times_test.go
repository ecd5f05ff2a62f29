package millracetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/millracetest"
)

// Each stage of a command is timed on the host to which it was given, and each read. Nothing is timed without
// Config.StageTimes.
func TestStageTimes(t *testing.T) {
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { testStageTimes(t, on) })
	}
}

func testStageTimes(t *testing.T, on bool) {
	c := newCounters(t, millracetest.WithHost(func(h *host.Config) { h.StageTimes = on }))
	leader := c.Leader(deadline(t))
	const n = 7
	for range n {
		for id := range uint64(3) {
			c.propose(id+1, 1)
			c.read(id+1, millrace.Linearizable)
		}
	}
	for id := range uint64(3) {
		m := c.Node(id + 1).Metrics().Times
		have := [5]uint64{m.Commands.Appended.Count(), m.Commands.Replicated.Count(), m.Commands.Committed.Count(), m.Commands.Applied.Count(), m.Reads.Count()}
		want := [5]uint64{0, 0, n, n, n} // forwarded: its leader appends it
		if id+1 == leader {
			want = [5]uint64{n, n, n, n, n}
		}
		if !on {
			want = [5]uint64{}
		}
		if have != want {
			t.Errorf("node %d, with leader %d, has timed %v, want %v", id+1, leader, have, want)
		}
		if m.Commands.Applied.Sum < m.Commands.Committed.Sum || m.Commands.Applied.Sum > time.Hour {
			t.Errorf("node %d: commands were applied after %v, and committed after %v", id+1, m.Commands.Applied.Sum, m.Commands.Committed.Sum)
		}
	}
}

// A time is in the bucket of the next power of two microseconds.
func TestHistogram(t *testing.T) {
	var h outcome.Histogram
	for _, c := range []struct {
		d      time.Duration
		bucket int
	}{{-time.Second, 0}, {0, 0}, {999, 0}, {time.Microsecond, 1}, {time.Microsecond*2 - 1, 1}, {2 * time.Microsecond, 2}, {time.Millisecond, 10}, {16 * time.Second, 24}, {17 * time.Second, 25}, {time.Hour, 25}} {
		before := h
		h.Add(c.d)
		if h.Counts[c.bucket] != before.Counts[c.bucket]+1 || h.Count() != before.Count()+1 || h.Sum != before.Sum+max(c.d, 0) {
			t.Errorf("%v: %+v became %+v, want one more in bucket %d", c.d, before, h, c.bucket)
		}
	}
}
