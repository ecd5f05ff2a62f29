package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
)

// sentSnapshot is the latest snapshot of a group, as of the moment in which a try begins.
type sentSnapshot struct {
	group     *Group
	published *snapshots.Published // nil before the first try
}

func (c *sentSnapshot) Class() *bulk.Class { return c.group.host.bulk.transfers.snapshots }
func (c *sentSnapshot) What() string       { return "a snapshot" }
func (c *sentSnapshot) Name() string       { return c.published.ID.String() }
func (c *sentSnapshot) Hash() [32]byte     { return c.published.Hash }

func (c *sentSnapshot) Renew() bool {
	if p := c.group.snapshots.Latest(); p != nil {
		c.published = p
	}
	return c.published != nil
}

// begins keeps the log behind the snapshot: the receiver needs it next.
func (c *sentSnapshot) Begins() (release func()) {
	return c.group.snapshots.Growth.Pin(c.published.ID.Index)
}

func (c *sentSnapshot) Open() (snapshot.Manifest, *snapshot.Reader, error) {
	store, err := c.group.snapshots.Store()
	if err != nil {
		return snapshot.Manifest{}, nil, err
	}
	r, err := store.Open(c.published.ID)
	return c.published.Manifest, r, err
}

func (c *sentSnapshot) NotOpened(s *bulk.Sender, err error) {
	if errors.Is(err, snapshot.ErrNotFound) && c.group.snapshots.Latest() != c.published {
		s.Wait(0) // a later one has taken its place
		return
	}
	s.Fail(fmt.Sprintf("it cannot be opened: %v", err))
}

func (c *sentSnapshot) Offer(manifestBytes int64) []byte {
	p := c.published
	return bulk.Offer{Group: c.group.id, Index: p.ID.Index, Term: p.ID.Term, FirstIndex: c.group.writes.storage.log.FirstIndex(),
		ManifestBytes: manifestBytes, Hash: p.Hash}.Encode()
}

func (c *sentSnapshot) RejectGoingOn() (cause string) {
	pinned, most := c.group.snapshots.Growth.Since(c.published.ID.Index), max(bulk.MinPinnedLog, 4*c.published.Manifest.Bytes())
	if pinned > most {
		return fmt.Sprintf("the log that is kept for it has grown to %d bytes, want at most %d", pinned, most)
	}
	return ""
}

// unreadable asks for another snapshot.
func (c *sentSnapshot) Unreadable() { c.group.snapshots.Want() }

func (c *sentSnapshot) Sent(to uint64, bytes int64) event.Event {
	return event.SnapshotSent{Group: c.group.id, Member: to, Index: c.published.ID.Index, Bytes: bytes}
}

func (c *sentSnapshot) Failed(to uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.group.id, Member: to, Index: c.published.ID.Index, Bytes: bytes, Cause: cause}
}

// snapshotStatus is how a transfer to a member has ended, for the core.
type snapshotStatus struct {
	member uint64
	status raft.SnapshotStatus
}

// keepSnapshots takes the messages about snapshots out of what the core sends: the host carries them out.
func (g *Group) keepSnapshots(messages []raftpb.Message) (others []raftpb.Message) {
	if !slices.ContainsFunc(messages, isSnapshotMessage) {
		return messages
	}
	for i := range messages {
		if m := &messages[i]; isSnapshotMessage(*m) {
			g.host.bulk.transfers.Send((*bulkGroup)(g), m.To, &sentSnapshot{group: g})
		} else {
			others = append(others, *m)
		}
	}
	return others
}

func isSnapshotMessage(m raftpb.Message) bool { return m.Type == raftpb.MsgSnap }
