package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
)

// This file wires package snapshots: what it knows of a host and of a group, and who tells it what.

// snapshotGroup implements snapshots.Owner.
type snapshotGroup Group

func (g *snapshotGroup) IsLeaving() bool { return (*Group)(g).isLeaving() }
func (g *snapshotGroup) Released()       { (*Group)(g).partDone(theSnapshotLanes) }
func (g *snapshotGroup) Err() error      { return (*Group)(g).Err() }
func (g *snapshotGroup) Stopped() error {
	return outcome.WithCause(outcome.ErrStopped, (*Group)(g).Err())
}
func (g *snapshotGroup) Wake()                    { (*Group)(g).wake() }
func (g *snapshotGroup) Want()                    { (*Group)(g).want(dutySnapshots) }
func (g *snapshotGroup) Capture()                 { g.machine.apply.Wake() }
func (g *snapshotGroup) Position() raftpb.EntryID { return g.machine.apply.Position() }
func (g *snapshotGroup) IsFounded() bool          { return g.snapshots.found.Load() != nil }
func (g *snapshotGroup) Now() time.Duration       { return (*Group)(g).now() }
func (g *snapshotGroup) Ticks() int64             { return g.host.clock.awakeAtBeat() }
func (g *snapshotGroup) Emit(e event.Event)       { g.host.reports.events.Emit(e) }

func (g *snapshotGroup) Info(text string, args ...any) {
	g.host.env.logger.Info(text, append([]any{"group", g.id, "host", g.self}, args...)...)
}

func (g *snapshotGroup) Warn(text string, args ...any) {
	g.host.env.logger.Warn(text, append([]any{"group", g.id, "host", g.self}, args...)...)
}

func (g *snapshotGroup) Error(text string, args ...any) {
	g.host.env.logger.Error(text, append([]any{"group", g.id, "host", g.self}, args...)...)
}

// MayCapture implements snapshots.Owner. A member that reads in the log how it was added takes none from
// before that: its next start could not begin from it (rejectManifest). Nor is one taken between a command
// that the group skips and the entry that says so. A member that gets it and does not know the entry yet
// could not tell that its state rightly differs from that of members that have the effect (apply.Commands).
func (g *snapshotGroup) MayCapture(index uint64) bool {
	if g.machine.apply.Skips.IsOpen(index) {
		return false
	}
	r := g.members.Rosters.At(index)
	if r == nil {
		return true // it is not known
	}
	m, is := r.Member(g.self)
	return is && m.Incarnation == g.host.incarnation()
}

func (g *snapshotGroup) Manifest() snapshot.Manifest {
	m := snapshot.Manifest{Cluster: g.host.trust.directory.Identity().Cluster, Group: g.id}
	if c, ok := g.machine.apply.Machine.(*apply.Commands); ok {
		m.Machine = c.Options.Version
	}
	return m
}

func (g *snapshotGroup) CaptureState(index uint64) (c snapshots.Captured) {
	q := g.machine.apply
	c.Block = entry.Block{
		Found: *g.snapshots.found.Load(), Roster: g.members.Rosters.At(index), PerEntry: g.snapshots.Growth.PerEntry(),
		Skipped: q.Passed(),
	}
	if m, ok := q.Machine.(*apply.Commands); ok {
		c.Block.HasSums = true
		c.Sessions, c.Block.Sums, c.Block.Last = m.Capture()
		if published := m.Feed.Capture(); published != nil {
			c.Published = published.Form
		}
	}
	return c
}

// The rest implements snapshots.Recipient.

func (g *snapshotGroup) Bulk() bulk.Group   { return (*bulkGroup)(g) }
func (g *snapshotGroup) FirstIndex() uint64 { return g.writes.storage.log.FirstIndex() }
func (g *snapshotGroup) Leader() uint64     { return g.life.status.Load().Leader }
func (g *snapshotGroup) Others() []uint64   { return (*Group)(g).otherMembers() }
func (g *snapshotGroup) Refused(err error)  { (*Group)(g).countRefusal(err) }

func (g *snapshotGroup) NeedsSnapshot(index uint64) bool {
	return index > g.life.status.Load().Committed || g.machine.apply.SkipsPast(index)
}

func (g *snapshotGroup) RejectManifest(m *snapshot.Manifest) error {
	return g.host.rejectManifest(g.id, m)
}

func (g *snapshotGroup) WantInstall() {
	(*Group)(g).want(dutyInstall)
	(*Group)(g).wake()
}

// otherMembers returns the ids of all members but this one.
func (g *Group) otherMembers() (others []uint64) {
	for _, id := range g.memberIDs() {
		if id != g.self {
			others = append(others, id)
		}
	}
	return others
}

// keepSnapshots takes the messages about snapshots out of what the core sends: the host carries them out.
func (g *Group) keepSnapshots(messages []raftpb.Message) (others []raftpb.Message) {
	if !slices.ContainsFunc(messages, isSnapshotMessage) {
		return messages
	}
	for i := range messages {
		if m := &messages[i]; isSnapshotMessage(*m) {
			g.snapshots.Send(m.To)
		} else {
			others = append(others, *m)
		}
	}
	return others
}

func isSnapshotMessage(m raftpb.Message) bool { return m.Type == raftpb.MsgSnap }

// advanceSnapshots is the part of a turn that concerns snapshots, after its Ready.
func (g *Group) advanceSnapshots() (again bool) {
	awaits, through := g.snapshots.Work()
	if awaits == 0 && through == 0 {
		return false
	}
	st := g.core.node.BasicStatus()
	g.snapshots.Durable(st.Durable)
	if through > 0 {
		g.compactLog(through, st.Applied)
	}
	awaits, through = g.snapshots.Work()
	return awaits > 0 || through > 0
}
