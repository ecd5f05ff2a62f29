package batches

import "time"

// Measured is what the batches of a leader took, so far. Zeros are not measured yet.
type Measured struct {
	// Round is the moving mean of the time from the beginning of a batch to its commit.
	Round time.Duration
	// Flush is that of the time until the leader's own disk has a batch.
	Flush time.Duration
	// LeastRound is the least of the last ones, and LeastFlush that of the times until the leader's own disk
	// had the batch.
	LeastRound, LeastFlush time.Duration
	// Rate is the most of the last rates, in bytes of commands that were committed per second.
	Rate float64

	rounds, flushes least
	rates           least // of the inverse: time per byte
	from            time.Duration
	bytes           int64
}

// roundWeight is the weight of a new round in the mean: about the last eight count.
const roundWeight = 8

// NoteRound takes the time and the bytes of a batch that is committed now.
func (m *Measured) NoteRound(now, took time.Duration, bytes int64) {
	if took <= 0 {
		took = 1
	}
	m.LeastRound = m.rounds.update(now, took)
	if m.Round == 0 { // its bytes are those of a stretch that has no beginning
		m.Round, m.from = took, now
		return
	}
	m.Round += (took - m.Round) / roundWeight
	m.recordRate(now, bytes)
}

// recordRate measures the rate over stretches of at least a round.
func (m *Measured) recordRate(now time.Duration, bytes int64) {
	m.bytes += bytes
	if past := now - m.from; past >= m.Round && past > 0 && m.bytes > 0 {
		perGiB := time.Duration(float64(past) / float64(m.bytes) * (1 << 30))
		m.Rate = (1 << 30) / m.rates.update(now, max(perGiB, 1)).Seconds()
		m.from, m.bytes = now, 0
	}
}

// NoteFlush takes the time until the leader's own disk had a batch.
func (m *Measured) NoteFlush(now, took time.Duration) {
	if m.Flush == 0 {
		m.Flush = took
	}
	m.Flush += (took - m.Flush) / roundWeight
	m.LeastFlush = m.flushes.update(now, max(took, 1))
}

// least is the least of the values of the last windowTime to twice that.
type least struct {
	now, before time.Duration // of the window under way, and of the one before
	began       time.Duration
}

// windowTime is for how long a least value counts at least, as for BBR's round trip.
const windowTime = 10 * time.Second

func (l *least) update(now, value time.Duration) time.Duration {
	switch past := now - l.began; {
	case l.now == 0:
		l.began, l.now, l.before = now, value, value
	case past >= 2*windowTime:
		l.began, l.now, l.before = now, value, value
	case past >= windowTime:
		l.began, l.now, l.before = now, value, l.now
	}
	l.now = min(l.now, value)
	return min(l.now, l.before)
}
