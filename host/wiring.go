package host

import (
	"fmt"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/snapshots"
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
	lane := appendlane.New(appendlane.Settings{Log: laneLog{h.storage.log}, Self: h.config.ID, To: watchedSender{h.network.transport, h}, Ticks: h.clock.livedAtBeat, Fail: h.failAll})
	later := h.env.env.Clock.Timer(func() { lane.Task().Wake() })
	lane.Start(h.env.env.Scheduler.Go(name+"append", env.Disk, lane), later)
	h.storage.lane = lane
	h.reports.watch.SlowTicks = int64(h.config.electionTicks())
	h.storage.shortages.Open(h.env.logger, h.env.env.Clock.Now)
	h.storage.readers = storage.StartReaders(h.others(), func(reader string, w env.Worker) env.Task {
		return h.env.env.Scheduler.Go(name+reader, env.DiskReads, w)
	}, h.storage.shortages.Later)
	h.appliers = new(apply.Lanes)
	h.appliers.Open(apply.Wiring{
		Now: h.env.env.Clock.Now, Ticks: h.clock.lived, WaitTicks: max(ticksIn(apply.Wait, h.config), 1), Event: h.reports.events.Emit,
		Start: func(lane string, w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(name+lane, env.StateMachine, w)
		},
	}, min(max(workers, minApplyLanes), maxApplyLanes))
	h.bulk.snapshotLanes.Open(snapshots.Wiring{
		Now: h.env.env.Clock.Now, Ticks: h.clock.livedAtBeat, Event: h.reports.events.Emit,
		Start: func(lane string, w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(name+lane, env.Disk|env.StateMachine, w)
		},
	})
	h.reports.flight = h.newFlightRecorder()
	h.bulk.transfers.init(h)
}

// memberReplaced tells the other parts of the group that a member comes with another directory. It is part of
// a turn.
func (g *Group) memberReplaced(id uint64) {
	g.proposals.frames.Forget(id)
	g.machine.objects.Forget(id)
}

// rosterChanged tells the other parts of the group and of its host that a roster is in force, in this order.
// A group that is being opened tells only the first of them.
func (g *Group) rosterChanged(was, now *membership.Roster) {
	g.writes.storage.Conf = now.Conf         // what a core that begins reads from the log
	g.host.trust.keys.Announcing.Store(true) // keys.go: members may not know this host's key
	if g.core.node == nil {
		return
	}
	g.members.rosters.DropHint(now) // rosterquery.go: a hint that is not later is of no use
	g.noteJoined(now)               // applicants.go: this host may be a member now
	g.setRefuses()                  // refusals.go: members that come with another directory
	g.host.reports.events.Emit(event.MembersChanged{Group: g.id, Version: now.Version, Conf: now.Conf})
	g.host.env.logger.Info("members changed", append([]any{"group", g.id, "host", g.self, "index", now.Version}, confWords(now.Conf)...)...)
	g.members.executions.Poll() // execute.go: a plan may have ended
	g.members.changed.notify()  // who waits for a roster
	g.stopIfRemoved(was, now)   // members.go: this member may be none
}

// failAll stops every group: the log has failed.
func (h *Host) failAll(err error) {
	for _, g := range h.groups.all() {
		g.fail(err)
	}
}
