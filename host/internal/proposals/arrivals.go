package proposals

import (
	"math/bits"
	"time"
)

// Arrivals is when the commands came that wait for a turn, in sum. The clock is read for the first, the
// second, the fourth command and so on, since a reading costs as much as the rest of taking a command.
// Those between two readings count as if they had come evenly.
type Arrivals struct {
	first   time.Duration // when the first came
	sampled int           // commands through the latest reading,
	at      time.Duration // which was then,
	late    time.Duration // and the sum of the times by which they came after the first
}

// Reads reports whether the clock must be read when n commands wait where before less did.
func (a *Arrivals) Reads(before, n int) bool { return bits.Len(uint(before)) != bits.Len(uint(n)) }

// Came notes that commands have come at once, so that n wait where before less did.
func (a *Arrivals) Came(before, n int, now time.Duration) {
	if before == 0 {
		*a = Arrivals{first: now, sampled: 1, at: now}
	}
	a.late += a.between(n, now)
	a.sampled, a.at = n, now
}

// between returns by how much later than the first the commands came, in sum, that came after the latest
// reading.
func (a *Arrivals) between(n int, now time.Duration) time.Duration {
	return time.Duration(n-a.sampled) * ((a.at+now)/2 - a.first)
}

// First returns when the first command came.
func (a *Arrivals) First() time.Duration { return a.first }

// Waited returns how long n commands have waited until now, in sum.
func (a *Arrivals) Waited(n int, now time.Duration) time.Duration {
	if n == 0 {
		return 0
	}
	return max(time.Duration(n)*(now-a.first)-a.late-a.between(n, now), 0)
}

// Withdrawn notes that of n commands some are left, which have waited as long on average as all.
func (a *Arrivals) Withdrawn(n, left int, now time.Duration) {
	waited := a.Waited(n, now) / time.Duration(n) * time.Duration(left)
	*a = Arrivals{first: a.first, sampled: left, at: now, late: time.Duration(left)*(now-a.first) - waited}
}

// Left notes that n commands still wait, as if they came now.
func (a *Arrivals) Left(n int, now time.Duration) {
	*a = Arrivals{first: a.first, sampled: n, at: now, late: time.Duration(n) * (now - a.first)}
}
