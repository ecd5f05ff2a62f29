package load

import (
	"context"
	"time"
)

// Steadiness ends a warm-up when the throughput is steady: Windows of them, one after the other, differ by
// less than Tolerance of the largest. The warm-up lasts at least Min and at most Max.
type Steadiness struct {
	Window    time.Duration
	Windows   int     // at least 2
	Tolerance float64 // 0.05 is 5 %
	Min, Max  time.Duration
}

// steady reports whether the last windows of rates are within the tolerance.
func (s Steadiness) steady(rates []float64) bool {
	if len(rates) < s.Windows {
		return false
	}
	lo, hi := rates[len(rates)-1], rates[len(rates)-1]
	for _, r := range rates[len(rates)-s.Windows:] {
		lo, hi = min(lo, r), max(hi, r)
	}
	return hi > 0 && hi-lo <= s.Tolerance*hi
}

// awaitSteady waits until the load is steady, or for Max, and returns whether it is.
func (l *Load) awaitSteady(ctx context.Context, s Steadiness) (bool, error) {
	var rates []float64
	last, at := l.ended(), l.now()
	for {
		if err := l.waitUntil(ctx, min(at+s.Window, s.Max)); err != nil {
			return false, err
		}
		total, now := l.ended(), l.now()
		rates = append(rates, float64(total-last)/(now-at).Seconds())
		last, at = total, now
		if now >= s.Min && s.steady(rates) {
			return true, nil
		}
		if now >= s.Max {
			return false, nil
		}
	}
}

// ended returns how many operations have ended, at any time. It may be called while clients run.
func (l *Load) ended() (n uint64) {
	l.clientsMu.Lock()
	defer l.clientsMu.Unlock()
	for _, c := range l.clients {
		n += c.ended.Load()
	}
	return n
}
