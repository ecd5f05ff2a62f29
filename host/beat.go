package host

import "github.com/millrace/millrace/host/internal/sched"

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
	at := sched.Time{Ticks: c.ticks, Missed: c.missed}
	for _, s := range h.shards {
		s.Advance(at)
	}
	c.at.Store(&at)
	if beat := c.ticks / ticksPerHeartbeat; beat != c.beats {
		c.beats = beat
		h.sendPulses()
		h.greetUnmet()
		h.askPlans()
		h.announceKeys()
		h.changes.placer.Beat()
		rarely := beat%int64(2*h.config.electionTicks()/ticksPerHeartbeat) == 0
		if h.askSettings(rarely); rarely {
			h.askForRosters()
			h.forgetDeparted()
			h.greetRefusing()
		}
	}
	h.findHungTurns()
	h.storage.lane.Tick()
	h.storage.shortages.Tick()
	h.appliers.Tick()
	h.bulk.snapshotLanes.Tick()
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
