package host

import (
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/raft/raftpb"
)

// This file wires package storage.

// storageGroup implements storage.Group.
type storageGroup Group

func (g *storageGroup) ID() uint64 { return g.id }

func (g *storageGroup) Unknown(member uint64, err error) {
	g.host.env.logger.Warn("a member gets no entries", "group", g.id, "host", g.self, "member", member, "cause", err)
}

func (g *storageGroup) Arrived(r storage.Result) {
	g.inbox.enqueueFetched(r)
	(*Group)(g).wake()
}

// Snapshot implements storage.Group. A new member cannot begin from a snapshot that does not know it.
func (g *storageGroup) Snapshot() (raftpb.Snapshot, bool) {
	p := g.snapshots.Latest()
	if p == nil || !(*Group)(g).hasAllMembers(p) {
		g.snapshots.Want()
		return raftpb.Snapshot{}, false
	}
	return raftpb.Snapshot{
		Data:     p.Hash[:],
		Metadata: raftpb.SnapshotMetadata{Index: p.ID.Index, Term: p.ID.Term, ConfState: p.Manifest.Conf},
	}, true
}

// hasAllMembers reports whether a snapshot knows all members that the group has now.
func (g *Group) hasAllMembers(p *snapshots.Published) bool {
	r := g.roster()
	if r == nil {
		return true
	}
	for _, m := range entry.ManifestMembers(r) {
		if !slices.Contains(p.Manifest.Members, m) {
			return false
		}
	}
	return true
}
