package host

import (
	"fmt"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/storage"
)

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
	lane := appendlane.New(appendlane.Settings{Log: laneLog{h.storage.log}, Self: h.config.ID, To: watchedSender{h.network.transport, h}, Ticks: h.clock.awakeAtBeat, Fail: h.failAll})
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
		Now: h.env.env.Clock.Now, Ticks: h.clock.awake, WaitTicks: max(ticksIn(apply.Wait, h.config), 1), Event: h.reports.events.Emit,
		Start: func(lane string, w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(name+lane, env.StateMachine, w)
		},
	}, min(max(workers, minApplyLanes), maxApplyLanes))
	h.bulk.snapshotLanes.Open(snapshots.Wiring{
		Now: h.env.env.Clock.Now, Ticks: h.clock.awakeAtBeat, Event: h.reports.events.Emit,
		Start: func(lane string, w env.Worker) env.Task {
			return h.env.env.Scheduler.Go(name+lane, env.Disk|env.StateMachine, w)
		},
	})
	h.reports.subscribers.Open(func(w env.Worker) env.Task {
		return h.env.env.Scheduler.Go(name+"subscribers", env.Compute, w)
	})
	h.reports.flight = h.newFlightRecorder()
	h.bulk.transfers.init(h)
}

// failAll stops every group: the log has failed.
func (h *Host) failAll(err error) {
	for _, g := range h.groups.all() {
		g.fail(err)
	}
}
