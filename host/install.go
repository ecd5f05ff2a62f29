package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// A snapshot that was received is installed in steps, and each step has its place:
//
//	snapshot lane   published: on this host's disk, every byte checked
//	turn            MsgSnap is stepped, as if the present leader had sent it. The core takes the snapshot
//	                for its log, and hands it out to be written
//	append lane     the message that carries it is parked, with everything behind it
//	apply lane      what was handed out before is applied; then the machine, the sessions and the sums are
//	                restored
//	append lane     the mark in the log is written and synced; the answers leave
//	turn            the core goes on behind the snapshot
//
// A crash before the mark leaves the old log and, at the next start, the published snapshot. If it is newer
// than the log, the start writes the mark (Host.finishInstalls). So a member comes back with the old state
// or the new one.
//
// The machine is restored before the mark is written. Otherwise a crash between the two would leave a log
// that begins behind the state of a machine that keeps its state on disk.
//
// While a member installs, it still votes: term and vote overtake, as they do on a full disk
// (appendlane/hardstate.go), for the same reason.

// stepReceived gives a snapshot that was received to the core. It is part of a turn.
func (g *Group) stepReceived() (again bool) {
	if g.writes.discarding.waitsForLane {
		return g.snapshots.Received.Load() != nil
	}
	return g.snapshots.StepReceived(g.core.node)
}

// observeInstalled takes the answer of the append lane, which the core has taken already: the snapshot is
// installed.
func (g *Group) observeInstalled(answer *raftpb.Message) {
	p := g.snapshots.Installed.Load()
	if answer.Snapshot == nil || p == nil || answer.Snapshot.Metadata.Index != p.ID.Index {
		return
	}
	g.writes.storage.Conf = answer.Snapshot.Metadata.ConfState
	g.writes.discarding.handed = max(g.writes.discarding.handed, p.ID.Index)
	g.members.Noted.DropThrough(p.ID.Index)
	block, err := entry.DecodeBlock(p.Manifest.Host)
	if err == nil && g.members.founding.IsFounded() {
		g.adoptRoster(block.Roster)
	} else if err == nil {
		if err = g.adoptFounding(&block); err == nil {
			g.countFounded()
			g.members.founding.Publish()
			g.members.SetExcluded()
		}
	}
	if err != nil {
		g.fail(fmt.Errorf("millrace: snapshot %v of group %d was installed, and this member cannot go on: %w", p.ID, g.id, err))
		return
	}
	g.work.wanted.Want(turn.All)
	g.snapshots.Publish(p)
	g.snapshots.Installing.Store(false) // a take looks at it first (snapshots.Group.Capture)
	g.host.reports.events.Emit(event.SnapshotInstalled{Group: g.id, Index: p.ID.Index, Bytes: p.Bytes})
	g.host.env.logger.Info("a snapshot is installed", "group", g.id, "host", g.self, "snapshot", p.ID.String(), "bytes", p.Bytes)
	g.snapshots.EndTransfer(p)
}

// startRestore makes an apply lane restore the group from the snapshot of an install, when everything that
// was handed out before is applied.
func (g *Group) startRestore(s *raftpb.Snapshot, restored func()) {
	g.machine.apply.StartDrained(func() { g.restoreInstalled(s, restored) })
}

// restoreInstalled restores the group. It runs on an apply lane.
func (g *Group) restoreInstalled(s *raftpb.Snapshot, restored func()) {
	if g.Err() != nil {
		return
	}
	p := g.snapshots.Installed.Load()
	if p == nil || p.ID.Index != s.Metadata.Index || p.ID.Term != s.Metadata.Term {
		g.fail(fmt.Errorf("millrace: the core of group %d wants a snapshot of entry %d of term %d, which was not received; this is a bug", g.id, s.Metadata.Index, s.Metadata.Term))
		return
	}
	if err := g.restoreReceived(p); vfs.IsShort(err) {
		g.host.storage.shortages.Later(func() { g.startRestore(s, restored) }, err)
		return
	} else if err != nil {
		g.fail(errRestore(err))
		return
	}
	g.overtake(p)
	restored()
}

func errRestore(err error) error {
	return fmt.Errorf("millrace: a snapshot that was received cannot be installed: %w; the log is as it was: repair the machine's Restore, or the disk, and open the group again", err)
}

// restoreReceived restores from a snapshot that is on the disk. After an error that is short (vfs.IsShort)
// all is as it was, and it may be called again.
func (g *Group) restoreReceived(p *snapshots.Published) (err error) {
	err = fmt.Errorf("the state machine of group %d ended its goroutine (runtime.Goexit, as t.Fatal does) in Restore", g.id)
	defer func() {
		if err != nil && !vfs.IsShort(err) {
			g.fail(errRestore(err)) // also when this goroutine ends
		}
	}()
	return g.restoreStored(p)
}

// restoreStored restores the group from a snapshot in its store.
func (g *Group) restoreStored(p *snapshots.Published) error {
	store, err := g.snapshots.Store()
	if err != nil {
		return err
	}
	r, err := store.Open(p.ID)
	if err != nil {
		return err
	}
	err = g.restoreFrom(context.Background(), p, r)
	return errors.Join(err, r.Close())
}

// overtake ends the calls whose commands are in a snapshot that the machine was restored from.
func (g *Group) overtake(p *snapshots.Published) {
	g.proposals.Overtaken(p.ID.Index)
	if m, ok := g.machine.apply.Machine.(*apply.Commands); ok {
		g.proposals.OvertakeRouted(m.Table(), g.machine.apply.RefusedBefore)
	}
}
