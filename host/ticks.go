package host

import (
	"time"

	"github.com/millrace/millrace/internal/planted"
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

// metronome counts the ticks between two calls by the clock: a late callback stands for all ticks that were
// due before it. It belongs to the callback of one env.Clock.Every.
type metronome struct {
	now    func() time.Duration
	period time.Duration
	told   int64 // ticks since the clock's origin
}

func newMetronome(now func() time.Duration, period time.Duration) *metronome {
	return &metronome{now, period, int64(now() / period)}
}

func (m *metronome) passed() int {
	was := m.told
	m.told = int64(m.now() / m.period)
	return int(m.told - was)
}

// missedTicks returns how many of the waiting ticks count as missed (raft.RawNode.TickMissed): those beyond
// one heartbeat interval. The process, or this group, was paused for that time. Messages of the leader may be
// waiting unread, so an election now would depose a healthy leader.
func missedTicks(waiting int) int {
	if planted.CountMissed {
		return 0
	}
	return max(0, waiting-ticksPerHeartbeat)
}
