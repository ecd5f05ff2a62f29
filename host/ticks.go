package host

import (
	"time"

	"github.com/millrace/millrace/internal/planted"
)

// ticksPerHeartbeat is how finely the core's time is divided. Election timeouts are drawn in ticks, so the
// finer they are, the fewer members campaign at the same moment, and the nearer is a timeout to what was
// configured.
const ticksPerHeartbeat = 4

// tickPeriod is the length of one tick.
func (c Config) tickPeriod() time.Duration { return c.HeartbeatInterval / ticksPerHeartbeat }

// electionTicks is the election timeout in ticks, rounded up.
func (c Config) electionTicks() int {
	period := c.tickPeriod()
	return int((c.ElectionTimeout + period - 1) / period)
}

// metronome tells how many ticks have passed between two calls, by the clock: a callback that comes late
// stands for all the ticks that were due before it. It belongs to the callback of one env.Clock.Every.
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

// missedTicks says how many of the ticks that wait for a turn count as missed (raft.RawNode.TickMissed):
// those beyond one heartbeat interval. The process, or this group, stood still that long: words of the leader
// may wait where nobody could read them, so an election that begins now would be against a leader who is
// well.
func missedTicks(waiting int) int {
	if planted.CountMissed {
		return 0
	}
	return max(0, waiting-ticksPerHeartbeat)
}
