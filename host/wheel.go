package host

import "github.com/millrace/millrace/host/internal/turn"

import "github.com/millrace/millrace/raft"

// wheel is a timing wheel: it holds the tick at which each group of a shard must run next, and costs nothing
// for a group between two such ticks. The slot of a tick is its remainder, so a group whose tick is more than
// a turn of the wheel away is looked at once in each turn and stays.
//
// The wheel only chooses when to run a group. What happens then, the core decides by its own clocks
// (raft.RawNode.TicksToEvent).
type wheel struct {
	now   int64 // in ticks
	slots [wheelSlots]ring[*Group]
}

// wheelSlots is longer than a common election timeout in ticks: ten heartbeat intervals, drawn up to twice.
const wheelSlots = 128

// set makes a group due at a tick, instead of when it was due before. A tick that has passed means the next.
func (w *wheel) set(g *Group, due int64) {
	g.timer.leave()
	if g.due = max(due, w.now+1); g.due < never {
		w.slots[g.due%wheelSlots].push(&g.timer)
	}
}

// dueBefore reports whether a group may be due before a tick that is less than a turn of the wheel away.
func (w *wheel) dueBefore(tick int64) bool {
	for t := w.now + 1; t < tick; t++ {
		if w.slots[t%wheelSlots].n > 0 {
			return true
		}
	}
	return false
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

// advance turns the wheel to a tick, and calls run for each group that is due. The group is then in no slot.
func (w *wheel) advance(now int64, run func(*Group)) {
	from := max(w.now+1, now-wheelSlots+1) // after a long pause each slot is looked at once
	w.now = max(w.now, now)
	for tick := from; tick <= now; tick++ {
		slot := &w.slots[tick%wheelSlots]
		for range slot.n {
			p := slot.pop()
			if p.owner.due > now {
				slot.push(p)
				continue
			}
			run(p.owner)
		}
	}
}
