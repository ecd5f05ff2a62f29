package host

import (
	"sync"
	"time"
)

// logTime measures the log time of a group: how long it has existed. A leader stamps its entries with it, and
// each member takes the highest stamp that it has applied (session.Table.Advance). A stamp is the last one
// that this host knows and the monotonic time since then, so a wall clock that jumps changes nothing, and the
// time in which no member runs does not count.
//
// It counts from the last stamp that this host applied and from the last one that it gave, whichever leads
// further: a stamp is applied a round later than it was given, so without the second each stamp would lose
// the time of that round. Neither runs ahead: a stamp is at most the age of the group when it is given, also
// if its entry is lost.
type logTime struct {
	mu      sync.Mutex
	applied time.Duration // the log time of what was applied last,
	at      time.Duration // and the host's clock then
	stamp   time.Duration // the last stamp that this host gave,
	given   time.Duration // and the host's clock then
	gave    bool
}

// stampInterval is the least time between two stamps of a leader. It is how exact log time is.
const stampInterval = 10 * time.Millisecond

// note takes the log time of an entry that is applied.
func (l *logTime) note(applied, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if applied > l.applied {
		l.applied, l.at = applied, now
	}
}

// next returns the stamp for the next entry, if one is due.
func (l *logTime) next(now time.Duration) (stamp time.Duration, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gave && now-l.given < stampInterval {
		return 0, false
	}
	l.stamp = l.reached(now)
	l.given, l.gave = now, true
	return l.stamp, true
}

// reached returns the log time now. The caller holds mu.
func (l *logTime) reached(now time.Duration) time.Duration {
	at := l.applied + max(now-l.at, 0)
	if l.gave {
		at = max(at, l.stamp+max(now-l.given, 0))
	}
	return at
}

// estimate returns the log time now, for an entry that is no command.
func (l *logTime) estimate(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached(now)
}

// last returns the log time of what was applied last.
func (l *logTime) last() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied
}
