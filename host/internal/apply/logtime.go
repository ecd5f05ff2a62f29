package apply

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/lock"
)

// LogTime measures the log time of a group: how long it has existed. A leader stamps its entries with it, and
// each member takes the highest stamp that it has applied (session.Table.Advance). A stamp is the last known
// one and the monotonic time since then. So a wall clock that jumps changes nothing.
//
// Only time with a leader counts, as this host has seen it (SetLed). While no member leads, no client can
// renew what expires by log time, and nothing may expire for that. A host that was cut off has seen no
// leader, though another majority had one: it is behind until it applies a stamp. So log time may be late,
// and is never early.
//
// It counts from two stamps, and takes what leads further: the last that this host applied, and the last that
// it gave. A stamp is applied a round later than it was given. Without the second, each stamp would lose the
// time of that round. Neither runs ahead: a stamp is at most the age of the group when it is given, also if
// its entry is lost.
type LogTime struct {
	mu      lock.Mutex
	applied time.Duration // the log time of what was applied last,
	at      time.Duration // and the time with a leader then (passed)
	stamp   time.Duration // the last stamp that this host gave,
	given   time.Duration // and the time with a leader then
	gave    bool
	due     atomic.Int64 // the clock at which Next gives another stamp

	led   bool          // there is a leader,
	since time.Duration // since this moment of the host's clock
	until time.Duration // the time with a leader before that
}

// SetLed says whether the group has a leader now, as far as this host knows.
func (l *LogTime) SetLed(led bool, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if led != l.led {
		l.until = l.passed(now)
		l.led, l.since = led, now
	}
}

// passed returns the time with a leader until now. The caller holds mu.
func (l *LogTime) passed(now time.Duration) time.Duration {
	if !l.led {
		return l.until
	}
	return l.until + max(now-l.since, 0)
}

// stampInterval is the least time between two stamps of a leader. It is how exact log time is.
const stampInterval = 10 * time.Millisecond

// Observe observes the log time of an entry that is applied.
func (l *LogTime) Observe(applied, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if applied > l.applied {
		l.applied, l.at = applied, l.passed(now)
	}
}

// Next returns the stamp for the next entry, if one is due. Only a turn calls it. Most calls take no lock.
func (l *LogTime) Next(now time.Duration) (stamp time.Duration, due bool) {
	if int64(now) < l.due.Load() {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stamp = l.reached(now)
	l.given, l.gave = l.passed(now), true
	l.due.Store(int64(now + stampInterval))
	return l.stamp, true
}

// reached returns the log time now. The caller holds mu.
func (l *LogTime) reached(now time.Duration) time.Duration {
	passed := l.passed(now)
	at := l.applied + passed - l.at
	if l.gave {
		at = max(at, l.stamp+passed-l.given)
	}
	return at
}

// Estimate returns the log time now, for an entry that is no command.
func (l *LogTime) Estimate(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached(now)
}

// Last returns the log time of what was applied last.
func (l *LogTime) Last() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied
}
