package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/snapshot"
)

// sentContent is what a transfer to a member moves. The snapshot of the group is one kind; sending
// (sending.go) asks it for everything in which the kinds differ. The caller holds transfers.mu, except where
// noted.
type sentContent interface {
	class() *transferClass
	// what and name say for people what is sent: "a snapshot", and which one.
	what() string
	name() string
	// hash is that of the manifest. It does not change while the transfer is active.
	hash() [32]byte
	// renew chooses what is sent by the next try, and reports whether there is something to send.
	renew() bool
	// begins is called when a try begins. release, if it is not nil, is called when the try has ended.
	begins() (release func())
	// open opens the content and keeps it from being removed. The caller does not hold the lock: it may read
	// the disk.
	open() (snapshot.Manifest, *snapshot.Reader, error)
	// notOpened ends the try, or the transfer, after an error of open.
	notOpened(s *sending, err error)
	// offer returns the record that tells the receiver what there is.
	offer(manifestBytes int64) []byte
	// rejectGoingOn says why a transfer must end although its receiver lives, or returns "".
	rejectGoingOn() (cause string)
	// unreadable is called when the disk does not return the content.
	unreadable()
	// sent and failed return the events of the two ends; nil: there is none.
	sent(to uint64, bytes int64) event.Event
	failed(to uint64, bytes int64, cause string) event.Event
}

// sentSnapshot is the latest snapshot of a group, as of the moment in which a try begins.
type sentSnapshot struct {
	group     *Group
	published *publishedSnapshot // nil before the first try
}

func (c *sentSnapshot) class() *transferClass { return &c.group.host.transfers.snapshots }
func (c *sentSnapshot) what() string          { return "a snapshot" }
func (c *sentSnapshot) name() string          { return c.published.id.String() }
func (c *sentSnapshot) hash() [32]byte        { return c.published.hash }

func (c *sentSnapshot) renew() bool {
	if p := c.group.snapshots.latest(); p != nil {
		c.published = p
	}
	return c.published != nil
}

// begins keeps the log behind the snapshot: the receiver needs it next.
func (c *sentSnapshot) begins() (release func()) {
	return c.group.snapshots.pinLog(c.published.id.Index)
}

func (c *sentSnapshot) open() (snapshot.Manifest, *snapshot.Reader, error) {
	store, err := c.group.snapshots.store()
	if err != nil {
		return snapshot.Manifest{}, nil, err
	}
	r, err := store.Open(c.published.id)
	return c.published.manifest, r, err
}

func (c *sentSnapshot) notOpened(s *sending, err error) {
	if errors.Is(err, snapshot.ErrNotFound) && c.group.snapshots.latest() != c.published {
		s.wait(0) // a later one has taken its place
		return
	}
	s.fail(fmt.Sprintf("it cannot be opened: %v", err))
}

func (c *sentSnapshot) offer(manifestBytes int64) []byte {
	p := c.published
	return snapshotOffer{group: c.group.id, index: p.id.Index, term: p.id.Term, firstIndex: c.group.storage.log.FirstIndex(),
		manifestBytes: manifestBytes, hash: p.hash}.encode()
}

func (c *sentSnapshot) rejectGoingOn() (cause string) {
	pinned, most := c.group.snapshots.bytesSince(c.published.id.Index), max(minPinnedLog, 4*c.published.manifest.Bytes())
	if pinned > most {
		return fmt.Sprintf("the log that is kept for it has grown to %d bytes, want at most %d", pinned, most)
	}
	return ""
}

// unreadable asks for another snapshot.
func (c *sentSnapshot) unreadable() { c.group.snapshots.want() }

func (c *sentSnapshot) sent(to uint64, bytes int64) event.Event {
	return event.SnapshotSent{Group: c.group.id, Member: to, Index: c.published.id.Index, Bytes: bytes}
}

func (c *sentSnapshot) failed(to uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.group.id, Member: to, Index: c.published.id.Index, Bytes: bytes, Cause: cause}
}

// answerSnapshot returns a transfer of the latest snapshot, for a member that asks for it, or says why there
// is none.
func (t *transfers) answerSnapshot(g *Group, to uint64, p *publishedSnapshot) (s *sending, why transferEnd) {
	s = t.outgoingTo(g, to)
	switch {
	case s != nil && s.isActive():
		return nil, endAbsent
	case s != nil && s.running || !t.snapshots.giveSendingSlot():
		return nil, endSenderBusy
	case s == nil:
		return t.addSending(g, to, &sentSnapshot{g, p}), 0
	}
	s.content = &sentSnapshot{g, p}
	return s, 0
}
