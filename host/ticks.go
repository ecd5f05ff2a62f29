package host

import (
	"time"

	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
)

// ticksPerHeartbeat divides a heartbeat interval into the core's ticks. Election timeouts are drawn in ticks.
// The finer they are, the fewer members campaign at the same moment, and the closer a timeout is to its
// configured value.
const ticksPerHeartbeat = 4

// tickPeriod is the length of one tick.
func (c Config) tickPeriod() time.Duration { return c.HeartbeatInterval / ticksPerHeartbeat }

// electionTicks is the election timeout in ticks, rounded up.
func (c Config) electionTicks() int {
	period := c.tickPeriod()
	return int((c.ElectionTimeout + period - 1) / period)
}

// metronome counts ticks by the clock: a late callback stands for all ticks that were due before it.
type metronome struct {
	now    func() time.Duration
	period time.Duration
	origin time.Duration
}

func newMetronome(now func() time.Duration, period time.Duration) *metronome {
	return &metronome{now, period, now()}
}

// ticks returns the ticks since the metronome was made.
func (m *metronome) ticks() int64 { return int64((m.now() - m.origin) / m.period) }

// missedTicks returns how many of the ticks between two calls of the clock the process has missed
// (raft.RawNode.TickMissed): those beyond one heartbeat interval. The process was paused for that time.
// Messages of a leader may be waiting unread, so an election now would depose a healthy leader.
func missedTicks(passed int64) int64 {
	return max(0, passed-ticksPerHeartbeat)
}

// passed returns the ticks that have passed for a group since its last turn, and how many of them count as
// missed: those that the process has missed, and those by which this turn is late, because the shard was
// busy. A group that is not due sleeps, and its ticks are not missed.
func (g *Group) passed(at moment) (ticks, missed int) {
	passed := at.ticks - g.core.at.ticks
	late := int64(0)
	if g.core.nextDue < never {
		late = missedTicks(at.ticks - g.core.nextDue)
	}
	lost := min(max(at.missed-g.core.at.missed, late), passed)
	g.core.at = at
	return int(passed), int(lost)
}

// dueIn returns the tick that is a number of ticks after another, as raft.RawNode.TicksToEvent counts them.
func dueIn(from int64, ticks int) int64 {
	if ticks == raft.NoEvent {
		return never
	}
	return from + int64(ticks)
}

// never is later than every tick.
const never = turn.Never
