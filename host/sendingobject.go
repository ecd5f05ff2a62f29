package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
)

// sentObject is a large object that a member has asked for by its hash. While it is sent it is not removed.
type sentObject struct {
	group *Group
	of    [32]byte
	id    object.ID // zero until it was found; guarded by transfers.mu
}

func (c *sentObject) class() *transferClass { return &c.group.host.transfers.objects }
func (c *sentObject) what() string          { return "an object" }
func (c *sentObject) name() string          { return c.id.String() }
func (c *sentObject) hash() [32]byte        { return c.of }
func (c *sentObject) renew() bool           { return true }

// begins keeps nothing: the reader keeps the object, and nothing else is needed of this host.
func (c *sentObject) begins() (release func()) { return nil }

func (c *sentObject) open() (m snapshot.Manifest, r *snapshot.Reader, err error) {
	store := c.group.objects.files
	id, here := store.FindHash(c.of)
	if !here {
		return m, nil, files.ErrNotHere
	}
	if r, err = store.Blocks(id); err != nil {
		return m, nil, err
	}
	t := &c.group.host.transfers
	t.mu.Lock()
	defer t.mu.Unlock()
	c.id = id
	return r.Manifest(), r, nil
}

func (c *sentObject) notOpened(s *sending, err error) {
	if errors.Is(err, files.ErrNotHere) {
		s.all.sayEnd(c.group, s.to, c.of, endAbsent)
		s.stop(sendingGone)
		return
	}
	s.all.sayEnd(c.group, s.to, c.of, endUnreadable)
	s.fail(fmt.Sprintf("it cannot be opened: %v", err))
}

// offer is not called: a member that needs an object knows of it from the log, and no core waits.
func (c *sentObject) offer(int64) []byte { return nil }

func (c *sentObject) rejectGoingOn() (cause string) { return "" }

// unreadable makes this member fetch the object again: the store has noted the damage.
func (c *sentObject) unreadable() { c.group.objects.damaged(c.id) }

// sent returns no event: which members hold an object the group counts by itself.
func (c *sentObject) sent(uint64, int64) event.Event { return nil }

func (c *sentObject) failed(to uint64, bytes int64, cause string) event.Event {
	return event.ObjectTransferFailed{Group: c.group.id, ID: c.id, Member: to, Bytes: bytes, Cause: cause}
}
