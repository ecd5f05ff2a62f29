package host

import "github.com/millrace/millrace/host/internal/snapshots"

// This file wires package snapshots: what it knows of a host and of a group, and who tells it what.

// snapshotGroup implements snapshots.Owner.
type snapshotGroup Group

func (g *snapshotGroup) ID() uint64      { return g.id }
func (g *snapshotGroup) IsLeaving() bool { return (*Group)(g).isLeaving() }
func (g *snapshotGroup) Released()       { (*Group)(g).partDone(theSnapshotLanes) }
func (g *snapshotGroup) Wake()           { (*Group)(g).wake() }
func (g *snapshotGroup) Look()           { g.snapshots.lookAt() }

func (g *snapshotGroup) Granted() {
	g.snapshots.granted.Store(true)
	g.host.appliers.enqueue(g.machine.apply)
}

// hostBulk is what is long: snapshots and objects, made, installed and sent.
type hostBulk struct {
	snapshotLanes snapshots.Lanes
	transfers     transfers
	uninstalled   map[uint64]error // why received snapshots of groups could not be installed; it is not changed after Open
}
