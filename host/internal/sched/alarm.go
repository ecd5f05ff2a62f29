package sched

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
)

// Alarm wakes a group at a time. Its timer is made when it is first needed. To postpone an alarm costs an
// atomic store: the timer fires too early then, and is set again. Set and Clear belong to the group's turn.
type Alarm struct {
	Clock env.Clock
	Wake  func() // makes the group run a turn; the timer calls it

	timer env.Timer    // nil until it is needed
	set   atomic.Bool  // the timer is set,
	due   atomic.Int64 // for this time
	at    atomic.Int64 // by the clock; 0: no alarm
}

// minAlarm is the least time for which the timer is set. Clock and timer may drift: a timer that fires a
// moment too early, and is set for that moment, could fire again and again while the clock stands still.
const minAlarm = 10 * time.Microsecond

// Set makes Wake be called at a time, or at most minAlarm later, in place of the one that was set before. The
// clock shows now.
func (a *Alarm) Set(at, now time.Duration) {
	a.at.Store(int64(max(at, 1)))
	if !a.set.Swap(true) || int64(at) < a.due.Load() {
		a.start(at-now, now)
	}
}

func (a *Alarm) start(after, now time.Duration) {
	after = max(after, minAlarm)
	a.due.Store(int64(now + after))
	if a.timer == nil {
		a.timer = a.Clock.Timer(a.ring)
	}
	a.timer.Set(after)
}

// At returns the time that is set; 0: none.
func (a *Alarm) At() time.Duration { return time.Duration(a.at.Load()) }

// Clear makes Wake not be called.
func (a *Alarm) Clear() { a.at.Store(0) }

// ring is called by the timer.
func (a *Alarm) ring() {
	for {
		at, now := time.Duration(a.at.Load()), a.Clock.Now()
		if at > now {
			a.start(at-now, now)
			if later := a.At(); later == 0 || later >= at {
				return
			}
			continue // a turn has set an earlier time
		}
		a.set.Store(false)
		if at != 0 {
			a.Wake()
		}
		// If a turn has set another time meanwhile, it has left the timer to this one.
		if later := a.At(); later == 0 || later == at || a.set.Swap(true) {
			return
		}
	}
}

// Stop ends the timer.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
