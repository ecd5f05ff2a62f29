package host

import (
	"time"

	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/turn"
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

// never is later than every tick.
const never = turn.Never

// bounds are the times by which a host is judged.
func (c Config) bounds() examination.Bounds {
	return examination.Bounds{Tick: c.tickPeriod(), Heartbeat: ticksPerHeartbeat, Election: int64(c.electionTicks()), Stall: c.stallTicks()}
}

// lateTicks is for how long an order may wait.
func (c Config) lateTicks() int64 { return max(int64(c.electionTicks()/2), 2*ticksPerHeartbeat) }

// stallTicks is Config.StallTimeout in ticks.
func (c Config) stallTicks() int64 { return int64(c.StallTimeout / c.tickPeriod()) }
