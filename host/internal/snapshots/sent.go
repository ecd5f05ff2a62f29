package snapshots

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/snapshot"
)

// sent is the latest snapshot of a group, as of the moment in which a try begins: bulk.SentContent.
type sent struct {
	*Group
	published *Published // nil before the first try
}

// Send sends the latest snapshot to a member.
func (s *Group) Send(to uint64) { s.Transfers.Send(s.owner.Bulk(), to, &sent{Group: s}) }

// Content returns the latest snapshot if its manifest has this hash, or nil.
func (s *Group) Content(hash [32]byte) bulk.SentContent {
	if p := s.Latest(); p != nil && p.Hash == hash {
		return &sent{s, p}
	}
	return nil
}

func (c *sent) Class() *bulk.Class { return c.Settings.Class }
func (c *sent) What() string       { return "a snapshot" }
func (c *sent) Name() string       { return c.published.ID.String() }
func (c *sent) Hash() [32]byte     { return c.published.Hash }

func (c *sent) Renew() bool {
	if p := c.Latest(); p != nil {
		c.published = p
	}
	return c.published != nil
}

// Begins keeps the log behind the snapshot: the receiver needs it next.
func (c *sent) Begins() (release func()) {
	return c.Growth.Pin(c.published.ID.Index)
}

func (c *sent) Open() (snapshot.Manifest, *snapshot.Reader, error) {
	store, err := c.Store()
	if err != nil {
		return snapshot.Manifest{}, nil, err
	}
	r, err := store.Open(c.published.ID)
	return c.published.Manifest, r, err
}

func (c *sent) NotOpened(s *bulk.Sender, err error) {
	if errors.Is(err, snapshot.ErrNotFound) && c.Latest() != c.published {
		s.Wait(0) // a later one has taken its place
		return
	}
	s.Fail(fmt.Sprintf("it cannot be opened: %v", err))
}

func (c *sent) Offer(manifestBytes int64) []byte {
	p := c.published
	return bulk.Offer{Group: c.ID, Index: p.ID.Index, Term: p.ID.Term, FirstIndex: c.owner.FirstIndex(),
		ManifestBytes: manifestBytes, Hash: p.Hash}.Encode()
}

func (c *sent) RejectGoingOn() (cause string) {
	pinned, most := c.Growth.Since(c.published.ID.Index), max(bulk.MinPinnedLog, 4*c.published.Manifest.Bytes())
	if pinned > most {
		return fmt.Sprintf("the log that is kept for it has grown to %d bytes, want at most %d", pinned, most)
	}
	return ""
}

// Unreadable asks for another snapshot.
func (c *sent) Unreadable() { c.Want() }

func (c *sent) Sent(to uint64, bytes int64) event.Event {
	return event.SnapshotSent{Group: c.ID, Member: to, Index: c.published.ID.Index, Bytes: bytes}
}

func (c *sent) Failed(to uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.ID, Member: to, Index: c.published.ID.Index, Bytes: bytes, Cause: cause}
}
