package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// OpenGroup opens a group of this host, new or not, and returns without waiting for a leader. The state
// machine gets the entries of the log again, as the group learns that they are committed. ctx bounds the
// opening only.
//
// A host may have many groups: they share its log, its connections and its goroutines. What a group costs is
// in docs/operate/running-a-host.md. If a group fails, by its state machine, its part of the log or a broken
// rule of ours, it stops (Group.Err) and the others go on.
func (h *Host) OpenGroup(ctx context.Context, c GroupConfig, machine statemachine.Machine) (*Group, error) {
	if machine == nil {
		return nil, fmt.Errorf("millrace: OpenGroup needs a StateMachine for group %d", c.ID)
	}
	c = c.withDefaults(h.config)
	if _, byToken := h.trust.tokens.Of(c.ID); byToken {
		c.Joins = true
	}
	if err := c.validate(h.config); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("millrace: OpenGroup of group %d: %w", c.ID, context.Cause(ctx))
	}
	if err := h.storage.lane.Err(); err != nil {
		return nil, fmt.Errorf("millrace: OpenGroup of group %d: the log of this host has failed: %w", c.ID, err)
	}
	if err := h.rejectSecondGroup(); err != nil {
		return nil, err
	}
	if err := h.groups.reserve(c.ID, h.config.MaxGroups); err != nil {
		return nil, err
	}
	made := false
	defer func() {
		if !made { // also if a function of the machine ends this goroutine
			h.groups.drop(c.ID)
		}
	}()
	g, err := h.newGroup(ctx, c, machine)
	if err != nil {
		return nil, err
	}
	made = true
	g.sit(h.shardOf(c.ID))
	g.machine.apply.Open()
	h.groups.set(c.ID, g)
	g.members.SetExcluded() // a host may have been admitted meanwhile
	g.stopIfRefused()
	if err := h.storage.lane.Err(); err != nil {
		g.fail(err) // it failed before the group was in the table
	}
	if h.shutdown.closing.Load() {
		g.end(outcome.ErrStopped)
		g.abandon()
		return nil, outcome.ErrStopped
	}
	g.wake() // what is committed already can be applied
	return g, nil
}

// rejectSecondGroup rejects a second group for the pipelines that save and apply in a turn: one group's disk
// and state machine would stop the turns of others. They are for the lab.
func (h *Host) rejectSecondGroup() error {
	p := h.env.pipeline
	if p.AsyncStorageWrites() || len(h.groups.all()) == 0 {
		return nil
	}
	return fmt.Errorf("millrace: pipeline %s serves one group only, because its turns wait for the disk and the state machine; use pipeline.Async for more", p.Name())
}

func (h *Host) newGroup(ctx context.Context, c GroupConfig, machine statemachine.Machine) (_ *Group, err error) {
	stored := h.storage.log.Group(c.ID)
	store := newStorage(stored)
	g := &Group{
		member:    member{c.ID, h.config.ID, h, c},
		core:      groupCore{hard: stored.HardState(), nextDue: never},
		work:      groupWork{outgoing: outbox.Batches{HoldEmpty: true}}, // to its shard
		proposals: groupProposals{gathering: sched.Gathering{Now: h.env.env.Clock.Now}},
		writes:    groupWrites{storage: store, durable: appendlane.NewDurableState(stored.HardState())},
		life:      newLife(),
	}
	g.inbox.init(h, h.shardOf(c.ID).Guard())
	g.work.held.Alarm = sched.Alarm{Clock: h.env.env.Clock, Wake: g.wake}
	g.machine.backlog.Max = c.MaxLagBytes
	g.proposals.alarm = sched.Alarm{Clock: h.env.env.Clock, Wake: g.wake}
	g.proposals.batching.Kind = h.env.batches
	g.writes.append = h.storage.lane.NewQueue(c.ID, (*writer)(g), stored, g.core.hard, &h.memory.writing)
	if err := g.openMachine(machine); err != nil {
		return nil, err
	}
	g.reads.init(g)
	g.openLeader()
	g.leadership.placing.Open(&h.changes.placer, (*placedGroup)(g), placement.Preference(c.Placement).Clone())
	g.snapshots.init(g, machine)
	g.life.roleTimes.Begin(h.clock.awakeAtBeat())
	g.members.init(g)
	core := c.core(h.config, store, h.env.env.Rand.Uint64(), h.env.pipeline)
	if err := g.openJoined(); err != nil {
		return nil, err
	}
	if core.Applied, err = g.openSnapshot(ctx); err != nil {
		return nil, err
	}
	if err := g.openFounding(); err != nil {
		return nil, err
	}
	if err := g.readMembers(core.Applied); err != nil {
		return nil, err
	}
	committed, err := g.machine.apply.OpenNote(core.Applied, g.core.hard.Commit)
	if err != nil {
		return nil, err
	}
	g.openSkips(committed)
	if err := g.loseAuthority(&core); err != nil {
		return nil, err
	}
	h.learnHosts(store.Members()) // before the core
	if g.core.node, err = h.reports.flight.newNode(c.ID, core, store); err != nil {
		return nil, fmt.Errorf("millrace: start group %d from %s: %w", c.ID, h.config.Dir, err)
	}
	g.writes.discarding.handed = core.Applied
	g.core.openTerm = g.core.hard.Term
	g.writes.discarding.forgetAfterTicks = 2 * core.ElectionTick
	g.writes.discarding.restart = func(applied uint64) error {
		core.Applied = applied
		g.setAuthority(&core, g.members.withoutAuthority.Load())
		core.Seed++
		node, err := g.core.node.Again(core, store)
		if err == nil {
			g.core.node = node
		}
		return err
	}
	if h.env.pipeline.AsyncStorageWrites() {
		store.Begin((*storageGroup)(g), h.storage.readers)
	} else {
		store.Begin((*storageGroup)(g), nil)
	}
	if !g.members.founding.IsFounded() {
		if g.members.founding.SetBound(); g.members.founding.Bound() == nil && !g.members.Joins {
			g.countUnfounded()
		}
	}
	g.leadership.resume.Voted = g.members.founding.Bound() != nil && (g.core.hard.Vote == g.self || g.isAlone())
	g.snapshots.Schedule(g.snapshots.Growth.Applied())
	g.members.founding.Publish()
	g.publish(g.core.node.BasicStatus())
	g.tellAuthorityLost()
	return g, nil
}

// Close closes the group on this host and leaves its log as it is, so that it can be opened again. First
// every waiting client is answered; then the host releases the group. What waits for the disk is not written,
// as in a crash. If ctx ends earlier, Close returns an error that names what hangs, and the group cannot be
// opened again before that has come back. Close may be called from anywhere except the state machine, and
// repeatedly.
func (g *Group) Close(ctx context.Context) error { return g.leave(ctx, outcome.ErrStopped, false) }

func (g *Group) leave(ctx context.Context, cause error, deletes bool) error {
	if g.life.leaving.began.CompareAndSwap(false, true) {
		g.end(cause)
		g.abandon()
		h := g.host
		g.life.leaving.removes.Store(deletes)
		h.storage.lane.Leave(g.writes.append, deletes)
		g.machine.apply.Leave()
		h.bulk.snapshotLanes.Leave(&g.snapshots.Seat)
		h.bulk.transfers.Leave((*bulkGroup)(g))
		if g.seat.Leave() {
			g.partDone(theTurn)
		}
	}
	return g.waitGone(ctx)
}

// waitGone waits until all parts of the host have done with the group.
func (g *Group) waitGone(ctx context.Context) error {
	select {
	case <-g.life.leaving.gone:
		_, err := g.writes.append.Deleted()
		return err
	default:
	}
	select {
	case <-g.life.leaving.gone:
		_, err := g.writes.append.Deleted()
		return err
	case <-g.host.shutdown.done:
		if g.life.leaving.removes.Load() {
			return outcome.ErrStopped
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("millrace: Close of group %d: still waiting for %s; every client was answered: %w", g.id, g.waitsFor(), context.Cause(ctx))
	}
}

// RemoveGroup removes a group from this host for good: it is closed, its entries are deleted from the log,
// and its id is never reused. Messages for it that are late are dropped. The other members must remove it,
// too. When RemoveGroup returns nil, the removal is durable. If it returns an error, because ctx has ended
// or the disk is full, the group is closed or being closed. It may be there again after a restart: call
// RemoveGroup again. A group that is not open, or was never opened here, can be removed as well.
func (h *Host) RemoveGroup(ctx context.Context, id uint64) error {
	if id == 0 {
		return errors.New("millrace: RemoveGroup needs the id of a group, which is not 0")
	}
	if h.shutdown.closing.Load() {
		return outcome.ErrStopped
	}
	if err := h.storage.lane.Err(); err != nil {
		return fmt.Errorf("millrace: RemoveGroup of group %d: the log of this host has failed: %w", id, err)
	}
	g, err := h.groups.toRemove(h, id)
	if g == nil || err != nil {
		return err
	}
	return g.leave(ctx, fmt.Errorf("%w: %d", outcome.ErrRemoved, id), true)
}

// toRemove returns the open group of an id, or one that stands for a group that is not open. It returns nil
// if the group was removed before.
func (t *groupTable) toRemove(h *Host, id uint64) (*Group, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, taken := t.open[id]
	switch {
	case taken && g == nil:
		return nil, fmt.Errorf("millrace: group %d is being opened; remove it when OpenGroup has returned", id)
	case taken && g.isLeaving() && !g.life.leaving.removes.Load():
		return nil, fmt.Errorf("millrace: group %d is being closed and is still waiting for %s; remove it when Close has returned nil", id, g.waitsFor())
	case taken:
		return g, nil
	case t.removed[id]:
		return nil, nil
	}
	g = &Group{member: member{id: id, self: h.config.ID, host: h}, life: newLife()}
	g.life.status.Store(diagnosis.Status{})
	g.members.init(g)
	g.proposals.Queue = proposals.NewQueue(proposals.Settings{Budget: &h.memory.proposed})
	g.inbox.init(h, h.shardOf(id).Guard())
	g.reads.init(g)
	g.writes.append = h.storage.lane.NewQueue(id, (*writer)(g), nil, raftpb.HardState{}, nil)
	g.machine.apply = apply.New((*machineGroup)(g), apply.Settings{Group: id, Self: h.config.ID, Lanes: h.appliers})
	g.snapshots.Init((*snapshotGroup)(g), snapshots.Settings{ID: id, Lanes: &h.bulk.snapshotLanes})
	g.seat.Close(h.shards[0]) // it has no core, so it must never get a turn
	t.open[id] = g
	return g, nil
}

func (m *groupMembers) init(g *Group) {
	m.Group.Init((*memberWiring)(g), g.memberSettings())
	m.commits.Init((*commitWiring)(g), &m.Group)
	m.founding.Init((*foundingWiring)(g), g.foundingSettings())
	m.plan.Init((*planWiring)(g), g.planSettings())
}
