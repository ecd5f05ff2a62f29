package proposals

import (
	"testing"
	"time"
)

// The rate of a burst after a long rest is not that of the rest.
func TestDrainAfterARest(t *testing.T) {
	var d DrainRate
	now := time.Duration(0)
	for i, step := range []struct {
		passed time.Duration
		taken  int64
		want   float64
	}{
		{time.Hour, 1000, 0},                   // a rest: not known
		{time.Millisecond, 1000, 0},            // too short to say
		{99 * time.Millisecond, 9000, 100_000}, // with the one before: 10,000 in 100 ms
		{time.Second, 500, 500},
		{time.Millisecond, 500, 500},
		{time.Hour, 1 << 20, 0},
	} {
		now += step.passed
		d.Add(step.taken)
		if rate := d.PerSecond(now); rate != step.want {
			t.Errorf("step %d: %v bytes a second, want %v", i, rate, step.want)
		}
	}
}
