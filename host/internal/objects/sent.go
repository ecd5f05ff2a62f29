package objects

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
)

// Sent returns what is sent to a member that asks for an object by its hash. k may be nil: there is none.
func (k *Keeper) Sent(hash [32]byte) bulk.SentContent {
	if k == nil {
		return nil
	}
	return &sentObject{keeper: k, of: hash}
}

// sentObject is a large object that a member has asked for by its hash. While it is sent it is not removed.
type sentObject struct {
	keeper *Keeper
	of     [32]byte
	id     object.ID // zero until it was found; guarded by the lock of the transfers
}

func (c *sentObject) Class() *bulk.Class { return c.keeper.fetches.Class }
func (c *sentObject) What() string       { return "an object" }
func (c *sentObject) Name() string       { return c.id.String() }
func (c *sentObject) Hash() [32]byte     { return c.of }
func (c *sentObject) Renew() bool        { return true }

// Begins keeps nothing: the reader keeps the object, and nothing else is needed of this host.
func (c *sentObject) Begins() (release func()) { return nil }

func (c *sentObject) Open() (m snapshot.Manifest, r *snapshot.Reader, err error) {
	store := c.keeper.files
	id, here := store.FindHash(c.of)
	if !here {
		return m, nil, files.ErrNotHere
	}
	if r, err = store.Blocks(id); err != nil {
		return m, nil, err
	}
	c.keeper.fetches.Do(func() { c.id = id })
	return r.Manifest(), r, nil
}

func (c *sentObject) NotOpened(s *bulk.Sender, err error) {
	if errors.Is(err, files.ErrNotHere) {
		s.Refuse(bulk.Absent)
		return
	}
	s.SayEnd(bulk.Unreadable)
	s.Fail(fmt.Sprintf("it cannot be opened: %v", err))
}

// Offer is not called: a member that needs an object knows of it from the log, and no core waits.
func (c *sentObject) Offer(int64) []byte { return nil }

func (c *sentObject) RejectGoingOn() (cause string) { return "" }

// Unreadable makes this member fetch the object again: the store has noted the damage.
func (c *sentObject) Unreadable() { c.keeper.Damaged(c.id) }

// Sent returns no event: which members hold an object the group counts by itself.
func (c *sentObject) Sent(uint64, int64) event.Event { return nil }

func (c *sentObject) Failed(to uint64, bytes int64, cause string) event.Event {
	return event.ObjectTransferFailed{Group: c.keeper.Group, ID: c.id, Member: to, Bytes: bytes, Cause: cause}
}
