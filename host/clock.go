package host

import (
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

// start makes the clock beat.
func (c *hostClock) start(h *Host) {
	ready := make(chan struct{}) // ticker is set; a beat makes it known to the shards, by calm
	c.ticker = h.env.env.Clock.Every(c.period, func() int {
		<-ready
		return c.beat()
	})
	close(ready)
}

// beat is called at the end of a tick, or later. It returns how many ticks may pass before the next call.
func (c *hostClock) beat() (ticks int) {
	h, passed := c.host, c.metronome.ticks()-c.ticks
	c.ticks += passed
	missed := missedTicks(passed)
	c.missed += missed
	if missed > 0 {
		h.reports.watch.RecordPause(c.ticks, missed)
	}
	if missed >= h.config.lateTicks() {
		c.pauses.longAt.Store(c.ticks - c.missed)
	}
	for _, s := range h.shards {
		s.Advance(sched.Moment{Ticks: c.ticks, Missed: c.missed})
	}
	c.at.Store(&moment{c.ticks, c.missed})
	if beat := c.ticks / ticksPerHeartbeat; beat != c.beats {
		c.beats = beat
		h.sendPulses()
		h.greetUnmet()
		h.askPlans()
		h.announceKeys()
		h.changes.placer.beat(c.ticks - c.missed)
		if beat%int64(2*h.config.electionTicks()/ticksPerHeartbeat) == 0 {
			h.askForRosters()
			h.forgetDeparted()
			h.greetRefusing()
		}
	}
	h.lookForHungTurns()
	h.storage.lane.Tick()
	h.storage.shortages.Tick()
	h.appliers.Look()
	h.bulk.snapshotLanes.Look()
	h.bulk.transfers.Beat(c.ticks - c.missed)
	h.reports.watch.StalledDisk(h.storage.lane, c.ticks-c.missed)
	return c.pause()
}

// pause returns how many ticks may pass before the next beat. It never reaches beyond a heartbeat.
func (c *hostClock) pause() int {
	left := ticksPerHeartbeat - int(c.ticks%ticksPerHeartbeat)
	c.calm.Store(true) // before the look: a group that is woken after it hastens the clock
	if c.host.restsFor(left) {
		return left
	}
	c.calm.Store(false)
	return 1
}

// restsFor reports whether nothing is due in fewer ticks.
func (h *Host) restsFor(ticks int) bool {
	if h.storage.lane.Parked() > 0 || h.bulk.transfers.Active() > 0 || h.appliers.Awaited() {
		return false
	}
	for _, s := range h.shards {
		if !s.RestsFor(int64(ticks)) {
			return false
		}
	}
	return true
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
