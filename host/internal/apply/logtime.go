package apply

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/lock"
)

// LogTime measures the log time of a group: how long it has existed. A leader stamps its entries with it, and
// each member takes the highest stamp that it has applied (session.Table.Advance). A stamp is the last known
// one and the monotonic time since then. So a wall clock that jumps changes nothing, and the time in which no
// member runs does not count.
//
// It counts from two stamps, and takes what leads further: the last that this host applied, and the last that
// it gave. A stamp is applied a round later than it was given. Without the second, each stamp would lose the
// time of that round. Neither runs ahead: a stamp is at most the age of the group when it is given, also if
// its entry is lost.
type LogTime struct {
	mu      lock.Mutex
	applied time.Duration // the log time of what was applied last,
	at      time.Duration // and the host's clock then
	stamp   time.Duration // the last stamp that this host gave,
	given   time.Duration // and the host's clock then
	gave    bool
	due     atomic.Int64 // the clock at which Next gives another stamp
}

// stampInterval is the least time between two stamps of a leader. It is how exact log time is.
const stampInterval = 10 * time.Millisecond

// Begin says that nothing was applied before this moment of the host's clock.
func (l *LogTime) Begin(now time.Duration) { l.at = now }

// Observe observes the log time of an entry that is applied.
func (l *LogTime) Observe(applied, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if applied > l.applied {
		l.applied, l.at = applied, now
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
	l.given, l.gave = now, true
	l.due.Store(int64(now + stampInterval))
	return l.stamp, true
}

// reached returns the log time now. The caller holds mu.
func (l *LogTime) reached(now time.Duration) time.Duration {
	at := l.applied + max(now-l.at, 0)
	if l.gave {
		at = max(at, l.stamp+max(now-l.given, 0))
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
