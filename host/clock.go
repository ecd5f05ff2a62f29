package host

import (
	"math"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/sched"
)

// hostClock is the clock of a host: it tells the shards how many ticks have passed, and calls everything else
// that happens by time. While nothing is due between two heartbeats it is calm: it beats at heartbeats only,
// since waking an idle process costs more than what it does then. A group that is woken ends that.
type hostClock struct {
	*metronome
	host   *Host
	ticker env.Ticker
	calm   atomic.Bool
	at     atomic.Pointer[moment] // as of the last beat
	pauses pausesSeen

	// Owned by beat.
	ticks, missed int64
	beats         int64 // heartbeat intervals
}

// init makes the clock show the time. It is called before anything can arrive from another host.
func (c *hostClock) init(h *Host) {
	c.host, c.metronome = h, newMetronome(h.env.env.Clock.Now, h.config.tickPeriod())
	c.at.Store(&moment{})
	c.pauses.init()
}

// hasten makes a calm clock beat at the end of the present tick.
func (c *hostClock) hasten() {
	if c.calm.Load() && c.calm.CompareAndSwap(true, false) {
		c.ticker.Hasten()
	}
}

// latest returns the moment of the last beat; zero before the first.
func (c *hostClock) latest() moment {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return moment{}
}

// livedAtBeat returns the ticks that had passed at the last beat and were not missed.
func (c *hostClock) livedAtBeat() int64 {
	at := c.latest()
	return at.ticks - at.missed
}

// lived returns the ticks that have passed and were not missed, as far as that is known: a pause is noticed
// by the next beat.
func (c *hostClock) lived() int64 {
	at := c.latest()
	return min(c.metronome.ticks(), at.ticks+ticksPerHeartbeat) - at.missed
}

// pausesSeen is what the clock of a host knows of pauses.
type pausesSeen struct {
	longAt atomic.Int64 // tick that was not missed, at the end of the last one that makes orders late
}

func (p *pausesSeen) init() { p.longAt.Store(math.MinInt64 / 2) }

// moment is the time as a turn sees it, in ticks since the host was opened.
type moment struct {
	ticks  int64
	missed int64 // how many of them the process has missed
}

func momentOf(at sched.Moment) moment { return moment{at.Ticks, at.Missed} }
