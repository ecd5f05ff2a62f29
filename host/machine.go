package host

import (
	"sync"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// This file wires package apply: what a round asks of its group, and who waits for its commands.

const defaultResultBytes = 8 << 20

// Commands makes a StateMachine for OpenGroup of a CommandMachine. In such a group each entry begins with a
// header (package session), and Group.Call is the way for its commands. The returned value serves one call of
// OpenGroup.
func Commands(m statemachine.CommandMachine, o statemachine.CommandOptions) statemachine.Machine {
	if o.KeepResults && o.Sessions.MaxResultBytes == 0 {
		o.Sessions.MaxResultBytes = defaultResultBytes
	}
	if !o.KeepResults {
		o.Sessions.MaxResultBytes = 0
	}
	return &apply.Commands{Machine: m, Options: o}
}

// openMachine makes the queue of a group, whose log is there and not yet applied.
func (g *Group) openMachine(machine statemachine.Machine) error {
	s := apply.Settings{
		Group: g.id, Self: g.self, Machine: machine, Lanes: g.host.appliers, Log: g.writes.storage.log, FS: g.host.env.fs,
		Ticks: g.host.clock.awakeAtBeat, Logger: g.host.env.logger, Retry: g.host.storage.shortages.Later,
		Dir: identity.GroupDir(g.host.config.Dir, g.id), InMemory: g.host.config.Durability.Kind == wal.KindMemory,
		Blocks: g.host.memory.blocks,
	}
	g.machine.apply = apply.New((*machineGroup)(g), s)
	m, ok := machine.(*apply.Commands)
	if !ok {
		g.proposals.Queue = proposals.NewQueue(g.proposalSettings())
		return nil
	}
	if err := m.Open(g.machine.apply, g.opening(m)); err != nil {
		return err
	}
	g.proposals.hasCommands = true
	g.proposals.Queue = proposals.NewQueue(g.callSettings(m.Table().Options()))
	m.Callers = g.proposals.Queue
	return nil
}

func (g *Group) opening(m *apply.Commands) apply.Opening {
	return apply.Opening{
		Feed: g.openFeed(),
		Dir:  g.host.config.Dir, Volatile: g.config.Volatile, Now: g.now,
		OpenObjects: func() error { return g.openObjects(m) },
		Compared:    func(c divergence.Machine) { g.machine.divergence.Init(g.id, g.self, c, (*comparison)(g)) },
		Checkpoint:  g.machine.divergence.Record,
	}
}

// machineGroup implements apply.Member.
type machineGroup Group

func (g *machineGroup) Leads() bool                   { return g.life.status.leads.Load() }
func (g *machineGroup) Err() error                    { return (*Group)(g).Err() }
func (g *machineGroup) Released()                     { (*Group)(g).partDone(theApplyLanes) }
func (g *machineGroup) Fail(err error)                { (*Group)(g).fail(err) }
func (g *machineGroup) Counted(es []raftpb.Entry)     { g.snapshots.countApplied(es) }
func (g *machineGroup) Report(h *outcome.HaltedError) { (*Group)(g).reportFailure(h) }

func (g *machineGroup) Between(calling sync.Locker) {
	if why := (*Group)(g).Halted(); why != nil {
		g.snapshots.Refuse(why) // the state is suspect
		return
	}
	g.reads.queue.RunBetween(calling)
	g.snapshots.Capture(calling)
}

func (g *machineGroup) Done(through uint64, answers []raftpb.Message) {
	if through > 0 {
		g.reads.queue.Applied(through)
	}
	if (*Group)(g).give(answers, &g.writes.awaitsApply) || through == 0 {
		(*Group)(g).wake()
	}
}

func (g *machineGroup) Suspend(h *outcome.HaltedError) {
	g.reads.queue.Suspend(h)
	g.Want()
	(*Group)(g).wake()
}

func (g *machineGroup) Want()   { (*Group)(g).want(dutyHalted) }
func (g *machineGroup) Wake()   { (*Group)(g).wake() }
func (g *machineGroup) Resume() { g.reads.queue.Resume() }

func (g *machineGroup) SkipNoted() {
	g.members.plan.Executions.Poll()
	g.members.changed.notify()
}

func (g *machineGroup) Snapshot() (restore func() error, name string) {
	p := g.snapshots.Latest()
	if p == nil || g.snapshots.Installing.Load() {
		return nil, ""
	}
	return func() error { return (*Group)(g).restoreStored(p) }, p.ID.String()
}

// SkipsPast hands a snapshot that was received to the apply lane, if the machine needs it. It is part of a
// turn.
func (g *snapshotGroup) SkipsPast(p *snapshots.Published) bool {
	if !g.machine.apply.SkipsPast(p.ID.Index) {
		return false
	}
	g.machine.apply.Pass(g.passage(p))
	return true
}

func (g *snapshotGroup) passage(p *snapshots.Published) *apply.Passage {
	return &apply.Passage{
		Index: p.ID.Index,
		Restore: func() error {
			err := (*Group)(g).restoreReceived(p)
			if err != nil && !vfs.IsShort(err) {
				err = errRestore(err)
			}
			return err
		},
		Passed: func() {
			(*Group)(g).overtake(p)
			g.snapshots.Publish(p)
			g.host.reports.events.Emit(event.SnapshotPassed{Group: g.id, Index: p.ID.Index, Bytes: p.Bytes})
			g.snapshots.EndTransfer(p)
		},
		Drop: func() { g.snapshots.EndTransfer(p) },
	}
}
