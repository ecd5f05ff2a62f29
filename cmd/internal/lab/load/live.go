package load

import "time"

// Live is what a load does while it runs.
type Live struct {
	Completed uint64 // operations that have ended in the window so far
	// Rate, P50 and P99 are those of the last whole second on the load's clock, warm-up included. They are 0
	// without a timeline, and in the first second.
	Rate     float64 // operations that ended well, a second
	P50, P99 time.Duration
}

// Live returns what the load does. It may be called at any time.
func (l *Load) Live() Live {
	live := Live{Completed: l.Completed()}
	if l.timeline != nil {
		live.Rate, live.P50, live.P99 = l.timeline.lastSecond()
	}
	return live
}

// begin sets the zero of the clock.
func (t *Timeline) begin(origin time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Origin = origin
}

// lastSecond returns what has ended in the last whole second, while clients still record. A client adds what
// it noted within maxNoteAge, so a little of it may be missing.
func (t *Timeline) lastSecond() (rate float64, p50, p99 time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Origin.IsZero() {
		return 0, 0, 0
	}
	s := int(time.Since(t.Origin)/time.Second) - 1
	if s < 0 || s >= len(t.seconds) || t.seconds[s] == nil {
		return 0, 0, 0
	}
	l := t.seconds[s]
	return float64(l.Count()), l.Quantile(0.5), l.Quantile(0.99)
}
