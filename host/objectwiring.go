package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// This file wires package objects: what it knows of a group, and who tells it what. A group with objects has
// them as its apply hook, as a section of its snapshots and as a duty.

// openObjects opens the objects of the group, and gives them to a machine that uses them.
func (g *Group) openObjects(s *apply.Commands) (err error) {
	if err := s.Options.Objects.Validate(); err != nil {
		return fmt.Errorf("%w (CommandOptions.Objects of group %d)", err, g.id)
	}
	if !g.host.env.pipeline.AsyncStorageWrites() {
		return fmt.Errorf("millrace: group %d has objects (CommandOptions.Objects), and pipeline %s applies in its turns, which must not wait for them; use pipeline.Async", g.id, g.host.env.pipeline.Name())
	}
	k, err := objects.New(g.objectSettings(*s.Options.Objects), (*objectGroup)(g), &g.host.bulk.transfers.objects)
	if err != nil {
		return err
	}
	g.machine.objects = k
	g.machine.apply.Hook, g.snapshots.Section = objectHook{k, s}, k
	g.config.NonBlocking = false // a command may have to wait for a set
	g.proposals.rejectForwarded = rejectOfLeader
	if m, ok := s.Machine.(ObjectUser); ok {
		return containment.Call("UseObjects of the state machine", func() error { m.UseObjects(&Objects{k}); return nil }, nil)
	}
	return nil
}

func (g *Group) objectSettings(o statemachine.ObjectOptions) objects.Settings {
	if o.ReserveBytes == 0 {
		o.ReserveBytes = defaultObjectReserve
	}
	return objects.Settings{
		Group: g.id, Self: g.self, Bulk: (*bulkGroup)(g),
		FS: g.host.env.fs, Dir: objectsDir(g.host.config.Dir, g.id),
		Options: o.Options, ReserveBytes: o.ReserveBytes,
		Heartbeat: ticksPerHeartbeat, Election: int64(g.host.config.electionTicks()),
		Ticks:  func(d time.Duration) int64 { return ticksIn(d, g.host.config) },
		Logger: g.host.env.logger,
	}
}

// rejectOfLeader says that a command is one that only a leader proposes, or returns nil.
func rejectOfLeader(command []byte) error {
	if object.IsOfLeader(command) {
		return errors.New("a leader says by itself which members hold an object")
	}
	return nil
}

// isAboutObjects reports whether a command must be an entry of its own: its lane may have to wait before it.
func isAboutObjects(command []byte) bool { return !object.IsPlain(command) }

// objectHook is the apply.Hook of a group with objects.
type objectHook struct {
	*objects.Keeper
	commands *apply.Commands
}

// errInBatch: no leader writes such an entry. The lane waits for objects only between two entries.
var errInBatch = errors.New("it names objects, and is in one entry with other commands")

// Before moves the log time of the objects, and stops at an entry whose sets are not here. The machine has
// applied everything before whatever changes the table of objects.
func (o objectHook) Before(e *statemachine.Entry, h session.Header, data []byte) (c object.Command, wrong, err error) {
	c, wrong = object.DecodeCommand(data)
	if wrong == nil && (e.Pos > 0 || e.More) && (c.IsOfHost() || len(c.Names) > 0) {
		wrong = errInBatch
	}
	if h.HasStamp || wrong != nil || c.IsOfHost() || len(c.Names) > 0 {
		if err := o.commands.Flush(); err != nil {
			return c, nil, err
		}
	}
	if h.HasStamp {
		o.Advance(e.Index, h.Stamp)
	}
	if wrong == nil && len(c.Names) > 0 {
		if _, lacks := o.FirstLacking(c.Names); lacks {
			return c, nil, &apply.WaitingForObject{Index: e.Index}
		}
	}
	return c, wrong, nil
}

// Change does what a command says about objects. The machine does not get a command that names a set which it
// must not name, and is refused, nor those of the host, which end here.
func (o objectHook) Change(e *statemachine.Entry, h session.Header, c object.Command, wrong error) (toMachine bool) {
	if wrong == nil {
		wrong = o.Keeper.Change(e.Index, &c)
	}
	switch {
	case wrong != nil:
		o.commands.Refuse(e, h, wrong)
		return false
	case c.IsOfHost():
		o.commands.End(e, h)
		return false
	}
	return true
}

func (o objectHook) Calls(is bool) { o.SetApplying(is) }

// advanceObjects is the duty.
func (g *Group) advanceObjects() (again bool) {
	if g.machine.objects == nil {
		return false
	}
	return g.machine.objects.Step(g.core.node.BasicStatus())
}

// objectsDue returns the tick at which the turn must look at the objects again.
func (g *Group) objectsDue() int64 { return g.machine.objects.Due() }

// receiveObjectRecord receives a question or an answer of another host.
func (h *Host) receiveObjectRecord(from uint64, body []byte) error {
	r, err := objects.Decode(body)
	if err != nil {
		return err
	}
	r.From = from
	isQuestion := body[0] == control.ObjectQuestion
	h.forPeer(from, r.Group, func(g *Group) {
		if g.machine.objects != nil && (isQuestion || g.members.Has(from)) {
			g.machine.objects.Heard(r, isQuestion)
		}
	})
	return nil
}

// objectGroup implements objects.Wiring.
type objectGroup Group

func (g *objectGroup) Want()                  { (*Group)(g).want(dutyObjects) }
func (g *objectGroup) Wake()                  { (*Group)(g).wake() }
func (g *objectGroup) Apply()                 { g.machine.apply.Wake() }
func (g *objectGroup) Applied() uint64        { return g.machine.apply.Position().Index }
func (g *objectGroup) WaitsAt() uint64        { return g.machine.apply.WaitsAt() }
func (g *objectGroup) Lose(index uint64)      { g.machine.apply.Lose(index) }
func (g *objectGroup) UnavailableAt() uint64  { return g.machine.apply.UnavailableAt() }
func (g *objectGroup) Stay(bytes int64)       { g.snapshots.Growth.Add(bytes) }
func (g *objectGroup) FirstIndex() uint64     { return g.writes.storage.log.FirstIndex() }
func (g *objectGroup) LastIndex() uint64      { return g.writes.storage.log.LastIndex() }
func (g *objectGroup) Members() []uint64      { return (*Group)(g).memberIDs() }
func (g *objectGroup) WithoutAuthority() bool { return g.members.withoutAuthority.Load() }
func (g *objectGroup) IsLeaving() bool        { return (*Group)(g).isLeaving() }
func (g *objectGroup) Err() error             { return (*Group)(g).Err() }
func (g *objectGroup) Now() int64             { return g.core.at.Ticks }
func (g *objectGroup) LogTime() time.Duration {
	return g.machine.apply.Time.Estimate((*Group)(g).now())
}
func (g *objectGroup) Stamp() (_ time.Duration, due bool) { return (*Group)(g).stamp(true) }

func (g *objectGroup) Roster() *membership.Roster { return (*Group)(g).roster() }

func (g *objectGroup) RosterAt(index uint64) *membership.Roster { return g.members.Rosters.At(index) }

func (g *objectGroup) Work(doing string, piece func() (more bool)) (enqueue func()) {
	return (*bulkHost)(g.host).Work((*bulkGroup)(g), doing, piece)
}

func (g *objectGroup) Propose(data []byte) error {
	_, err := (*Group)(g).proposeEntries([]raftpb.Entry{{Data: data}}, 1, 0)
	return err
}

func (g *objectGroup) Send(to uint64, record []byte) (sent bool) {
	return g.host.network.transport.SendBytes(to, transport.Control, record)
}

func (g *objectGroup) SendPast(to, index uint64) {
	if p := g.snapshots.Latest(); p != nil && p.ID.Index >= index {
		g.snapshots.Send(to)
		return
	}
	g.snapshots.Want()
}
