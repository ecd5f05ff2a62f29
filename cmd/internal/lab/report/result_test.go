package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

func TestMedianKeepsTheExtremes(t *testing.T) {
	m := Median([]Result{{OpsPerSec: 9}, {OpsPerSec: 1}, {OpsPerSec: 4}, {OpsPerSec: 3}})
	if m.OpsPerSec != 3 || m.MinOpsPerSec != 1 || m.MaxOpsPerSec != 9 || m.Runs != 4 {
		t.Errorf("%+v", m)
	}
}

// outcome is an open loop of ten seconds in which a write took latency, lag of it before it was sent.
func outcome(offered, completed uint64, latency, lag time.Duration) load.Outcome {
	o := load.Outcome{
		Length: 10 * time.Second, Offered: offered, Completed: completed, Dropped: offered - completed,
		Latency: load.NewLatencies(), Lag: load.NewLatencies(), Service: load.NewLatencies(),
	}
	o.Latency.Record(latency)
	o.Lag.Record(lag)
	o.Service.Record(latency - lag)
	return o
}

func TestRowsWarnTheirReader(t *testing.T) {
	failed := outcome(10_000, 10_000, time.Millisecond, 0)
	failed.Failed = 3
	for _, tc := range []struct {
		name string
		o    load.Outcome
		rate float64
		want string
	}{
		{"nothing to say", outcome(10_000, 10_000, time.Millisecond, 10*time.Microsecond), 1000, "[]"},
		{"the generator is late by half the latency", outcome(10_000, 10_000, 100*time.Millisecond, 50*time.Millisecond), 1000, "[generator-bound (lag p99 50.0 ms)]"},
		{"of ten writes one was done", outcome(10_000, 1000, time.Second, 0), 1000, "[saturated (9,000 of 10,000 dropped)]"},
		{"writes failed", failed, 0, "[3 writes failed]"},
		{"no write finished", outcome(0, 0, 0, 0), 0, "[no write finished]"},
	} {
		r := Result{Rate: tc.rate}
		r.SetOutcome(tc.o)
		if have := fmt.Sprint(r.Notes()); have != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, have, tc.want)
		}
	}
}
