package host

import "github.com/millrace/millrace/host/internal/sched"

// init makes the clock show the time. It is called before anything can arrive from another host.
func (c *hostClock) init(h *Host) {
	c.host, c.metronome = h, newMetronome(h.env.env.Clock.Now, h.config.tickPeriod())
	c.at.Store(&sched.Time{})
	c.pauses.init()
}

// hasten makes a calm clock beat at the end of the present tick.
func (c *hostClock) hasten() {
	if c.calm.Load() && c.calm.CompareAndSwap(true, false) {
		c.ticker.Hasten()
	}
}

// latest returns the moment of the last beat; zero before the first.
func (c *hostClock) latest() sched.Time {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return sched.Time{}
}

// awakeAtBeat returns the ticks that had passed at the last beat and were not missed.
func (c *hostClock) awakeAtBeat() int64 {
	at := c.latest()
	return at.Ticks - at.Missed
}

// awake returns the ticks that have passed and were not missed, as far as that is known: a pause is noticed
// by the next beat.
func (c *hostClock) awake() int64 {
	at := c.latest()
	return min(c.metronome.ticks(), at.Ticks+ticksPerHeartbeat) - at.Missed
}
