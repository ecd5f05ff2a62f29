package sched

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
)

// turningClock is one at which a turn runs while the timer of an alarm reads it.
type turningClock struct {
	handClock
	turn func()
}

func (c *turningClock) Now() time.Duration {
	if turn := c.turn; turn != nil {
		c.turn = nil
		turn()
	}
	return c.now
}

// Timer implements env.Clock.
func (c *turningClock) Timer(f func()) env.Timer { return c.handClock.Timer(f) }

// A turn that sets an alarm while the timer rings leaves its timer to that one, which must not forget it, or
// set the time of before.
func TestAnAlarmIsSetWhileItRings(t *testing.T) {
	for _, first := range []time.Duration{100 * minAlarm, 200 * minAlarm} { // it has come, or was postponed
		for _, next := range []time.Duration{100*minAlarm + 1, 150 * minAlarm, 300 * minAlarm} {
			c, rang := &turningClock{handClock: handClock{now: 1}}, time.Duration(0)
			a := Alarm{Clock: c}
			a.Wake = func() { rang = c.now }
			a.Set(100*minAlarm, c.now)
			a.Set(first, c.now)
			c.turn = func() {
				a.Clear()
				a.Set(next, c.now)
			}
			if c.pass(next + minAlarm); rang < next {
				t.Errorf("an alarm of %v, in place of one of %v, rang at %v at last", next, first, rang)
			}
			a.Stop()
		}
	}
}

// handClock has one timer, which fires when the test lets its time come.
type handClock struct {
	env.Clock
	now  time.Duration
	ring func()
	at   time.Duration // 0: not set
	sets int
}

func (c *handClock) Now() time.Duration       { return c.now }
func (c *handClock) Timer(f func()) env.Timer { c.ring = f; return c }
func (c *handClock) Set(after time.Duration)  { c.at = c.now + after; c.sets++ }
func (c *handClock) Stop()                    { c.at = 0 }

// pass lets time pass, and fires the timer when its time comes.
func (c *handClock) pass(until time.Duration) {
	for c.at != 0 && c.at <= until {
		c.now, c.at = c.at, 0
		c.ring()
	}
	c.now = until
}

// Whatever is set and cleared: an alarm rings at its time, once, and not when it was cleared.
func TestAlarmRingsAtItsTime(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		c, rang, want := &handClock{now: 1}, time.Duration(0), time.Duration(0)
		a := Alarm{Clock: c}
		a.Wake = func() {
			if rang = c.now; want == 0 || rang < want || rang > want+minAlarm {
				t.Fatalf("seed %d: it rings at %v, want %v", seed, rang, want)
			}
			a.Clear()
			want = 0
		}
		for range 200 {
			switch random.IntN(4) {
			case 0:
				a.Clear()
				want = 0
			case 1, 2:
				want = c.now + 1 + time.Duration(random.Int64N(int64(5*minAlarm)))
				a.Set(want, c.now)
			case 3:
				c.pass(c.now + time.Duration(random.Int64N(int64(4*minAlarm))))
				if want != 0 && want+minAlarm <= c.now {
					t.Fatalf("seed %d: it is %v, and the alarm of %v has not rung", seed, c.now, want)
				}
			}
			if a.At() != want {
				t.Fatalf("seed %d: it is set to %v, want %v", seed, a.At(), want)
			}
		}
		a.Stop()
	}
}

// An alarm that is postponed again and again sets its timer rarely.
func TestAPostponedAlarmIsCheap(t *testing.T) {
	c := &handClock{now: 1}
	a := Alarm{Clock: c, Wake: func() { t.Fatal("it rings") }}
	for range 1000 {
		a.Set(c.now+100*minAlarm, c.now)
		c.pass(c.now + 10*minAlarm)
	}
	if c.sets > 120 {
		t.Errorf("%d settings of the timer for 1,000 alarms", c.sets)
	}
}

// A timer that fires too early by less than the clock shows does not fire again and again.
func TestAnAlarmOfADriftingClock(t *testing.T) {
	c, rings := &handClock{now: 1}, 0
	a := Alarm{Clock: c, Wake: func() { rings++ }}
	a.Set(1000*minAlarm, c.now)
	for range 3 {
		c.now, c.at = 1000*minAlarm-1, 0 // the timer fires, and the clock is late
		before := c.sets
		if a.ring(); c.sets == before || c.at < c.now+minAlarm {
			t.Fatalf("the timer is set for %v", c.at-c.now)
		}
	}
	if c.pass(c.at); rings != 1 {
		t.Errorf("it rings %d times", rings)
	}
}
