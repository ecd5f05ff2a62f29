package host

import (
	"errors"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
)

// fail stops the group for good, and no other group. The first cause wins. The event and the log line come
// last, with no lock held; the log line comes after the event, because a log may hang.
func (g *Group) fail(err error) {
	first := false
	g.life.endOnce.Do(func() {
		g.life.cause = err
		g.life.roleTimes.Stopped.Store(g.host.clock.awakeAtBeat()) // Explain may look as soon as Err is set
		g.life.hasEnded.Store(true)
		close(g.life.ended)
		close(g.life.failed)
		first = true
	})
	if first {
		g.leavePulses()
		g.snapshots.Stop()
		g.wake() // its next turn answers the clients that still wait
		g.host.reports.events.Emit(event.GroupStopped{Group: g.id, Err: err})
		g.reportFailure(err)
		about := []any{"group", g.id, "host", g.self, "cause", err}
		if p := (*containment.Panic)(nil); errors.As(err, &p) {
			about = append(about, "stack", string(p.Stack))
		}
		g.host.env.logger.Error("group stopped", about...)
	}
}

// end stops the group because it is closed or removed.
func (g *Group) end(cause error) {
	g.life.endOnce.Do(func() {
		g.life.cause = cause
		g.life.roleTimes.Stopped.Store(g.host.clock.awakeAtBeat())
		g.life.hasEnded.Store(true)
		close(g.life.ended)
	})
	g.snapshots.Stop()
	g.leavePulses()
}

// leavePulses makes no pulse vouch for a group that has stopped, and drops it from those that lead here.
func (g *Group) leavePulses() {
	g.host.network.pulses.Drop((*pulseLeader)(g))
	g.host.changes.placer.Drop(&g.leadership.placing)
	g.pulse.subscription.End(g.id)
}

// abandon answers all waiting clients, those in the inbox and those behind it. It may be called while a turn
// runs.
func (g *Group) abandon() {
	cause := g.Err()
	left := g.inbox.close()
	g.proposals.AnswerAll(left, outcome.WithCause(outcome.ErrStopped, cause))
	g.proposals.Abandon(cause)
	g.reads.queue.Close(outcome.WithCause(outcome.ErrStopped, cause))
	g.proposals.spaceWaiters.Close(cause)
}

// partDone records that a part of the host does nothing for the group any more.
func (g *Group) partDone(part leavingPart) {
	for {
		was := g.life.leaving.done.Load()
		now := was | uint32(part)
		if !g.life.leaving.done.CompareAndSwap(was, now) {
			continue
		}
		if was != now && leavingPart(now) == allParts {
			g.work.held.Alarm.Stop()
			g.proposals.alarm.Stop()
			g.writes.append.Hold(-g.writes.append.Held()) // the last turn may have queued something
			g.snapshots.Close()
			if deleted, _ := g.writes.append.Deleted(); deleted {
				g.host.groups.bury(g.id)
				g.host.removedGroup(g.id)
				g.host.forgetSnapshots(g.id)
			}
			g.countFounded()
			g.core.node.Close()
			g.host.groups.drop(g.id)
			close(g.life.leaving.gone)
		}
		return
	}
}

// forgetSnapshots removes the snapshots of a group that was removed. If that fails, the next start of the
// host does it.
func (h *Host) forgetSnapshots(group uint64) {
	w := &snapshots.Work{Seat: snapshots.SeatOfFormer(group), Doing: "whose snapshots are removed"}
	w.Piece = func() bool {
		if err := snapshots.RemoveAll(h.env.fs, h.config.Dir, group); err != nil {
			h.env.logger.Warn("the snapshots of a removed group are still there", "group", group, "host", h.config.ID, "err", err)
		}
		return false
	}
	h.bulk.snapshotLanes.Enqueue(w)
}
