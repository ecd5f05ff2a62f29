package host

import (
	"fmt"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/membership"
)

// This file says which part hears of what: calls between parts go down, and what must be heard beside or
// above is a line here.

// startLanes schedules the workers that the groups share.
func (h *Host) startLanes() {
	name, workers := fmt.Sprintf("host %d ", h.config.ID), h.env.env.Parallelism
	kind := env.Compute
	if !h.env.pipeline.AsyncStorageWrites() {
		kind = env.Disk | env.StateMachine // a turn saves and applies
	}
	for i := range min(max(workers/2, 1), maxShards) {
		s := h.newShard()
		s.Start(func(w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(fmt.Sprintf("%sshard %d", name, i+1), kind, w)
		})
		h.shards = append(h.shards, s)
	}
	h.lane = &appendLane{log: h.log, self: h.config.ID, fail: h.failAll, full: h.diskFull, slowTicks: int64(h.config.electionTicks()), outgoing: outbox.Batches{To: watchedSender{h.transport, h}}}
	h.lane.later = h.env.env.Clock.Timer(func() { h.lane.task.Wake() })
	h.lane.task = h.env.env.Scheduler.Go(name+"append", env.Disk, h.lane)
	h.shortages.logger, h.shortages.now = h.env.logger, h.env.env.Clock.Now
	h.appliers = &applyLanes{
		now:       h.env.env.Clock.Now,
		ticks:     h.clock.lived,
		waitTicks: max(ticksIn(applyWait, h.config), 1),
		start: func(lane string, w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(name+lane, env.StateMachine, w)
		},
		event: h.events.emit,
	}
	h.readers = storage.StartReaders(h.others(), func(reader string, w env.Worker) env.Task {
		return h.env.env.Scheduler.Go(name+reader, env.DiskReads, w)
	}, h.shortages.later)
	h.appliers.grow(min(max(workers, minApplyLanes), maxApplyLanes))
	h.snapshotLanes.now, h.snapshotLanes.ticks, h.snapshotLanes.event = h.env.env.Clock.Now, h.clock.livedAtBeat, h.events.emit
	h.snapshotLanes.start = func(lane string, w env.Worker) env.Task {
		return h.env.env.Scheduler.Go(name+lane, env.Disk|env.StateMachine, w)
	}
	h.snapshotLanes.grow()
	h.startFlightRecorder()
	h.transfers.init(h)
}

// rosterChanged tells the other parts of the group and of its host that a roster is in force, in this order.
// A group that is being opened tells only the first of them.
func (g *Group) rosterChanged(was, now *membership.Roster) {
	g.storage.Conf = now.Conf          // what a core that begins reads from the log
	g.host.keys.announcing.Store(true) // keys.go: members may not know this host's key
	if g.node == nil {
		return
	}
	g.members.dropHint(now) // rosterasked.go: a hint that is not later is of no use
	g.noteJoined(now)       // applicants.go: this host may be a member now
	g.setRefuses()          // refusing.go: members that come with another directory
	g.host.events.emit(event.MembersChanged{Group: g.id, Version: now.Version, Conf: now.Conf})
	g.host.env.logger.Info("members changed", append([]any{"group", g.id, "host", g.self, "index", now.Version}, confWords(now.Conf)...)...)
	g.executions.poll()        // execute.go: a plan may have ended
	g.members.changed.notify() // who waits for a roster
	g.stopIfRemoved(was, now)  // members.go: this member may be none
}
