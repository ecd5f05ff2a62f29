package sched

import "github.com/millrace/millrace/host/internal/turn"

// wheel is a timing wheel: it holds the tick at which each group of a shard must run next, and costs nothing
// for a group between two such ticks. The slot of a tick is its remainder, so a group whose tick is more than
// a turn of the wheel away is looked at once in each turn and stays.
//
// The wheel only chooses when to run a group. What happens then, the core decides by its own clocks
// (raft.RawNode.TicksToEvent).
type wheel struct {
	now   int64 // in ticks
	slots [wheelSlots]Ring[*Seat]
}

// wheelSlots is longer than a common election timeout in ticks: ten heartbeat intervals, drawn up to twice.
const wheelSlots = 128

// set makes a group due at a tick, instead of when it was due before. A tick that has passed means the next.
func (w *wheel) set(s *Seat, due int64) {
	s.timer.Leave()
	if s.due = max(due, w.now+1); s.due < turn.Never {
		w.slots[s.due%wheelSlots].Push(&s.timer)
	}
}

// dueBefore reports whether a group may be due before a tick that is less than a turn of the wheel away.
func (w *wheel) dueBefore(tick int64) bool {
	for t := w.now + 1; t < tick; t++ {
		if w.slots[t%wheelSlots].Len() > 0 {
			return true
		}
	}
	return false
}

// advance turns the wheel to a tick, and calls run for each group that is due. The group is then in no slot.
func (w *wheel) advance(now int64, run func(*Seat)) {
	from := max(w.now+1, now-wheelSlots+1) // after a long pause each slot is looked at once
	w.now = max(w.now, now)
	for tick := from; tick <= now; tick++ {
		slot := &w.slots[tick%wheelSlots]
		for range slot.Len() {
			p := slot.Pop()
			if p.Owner.due > now {
				slot.Push(p)
				continue
			}
			run(p.Owner)
		}
	}
}
