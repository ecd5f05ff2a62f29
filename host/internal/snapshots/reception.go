package snapshots

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/snapshot"
)

// Recipient is the group as it receives snapshots. The lock of the transfers is held, except in Passes and
// Refused, which a turn calls.
type Recipient interface {
	// Bulk returns the group as transfers see it, and FirstIndex that of its log.
	Bulk() bulk.Group
	FirstIndex() uint64
	// Leader returns the leader that this member knows, and Others all members but this one.
	Leader() uint64
	Others() []uint64
	// NeedsSnapshot reports whether a snapshot through an index brings this member forward.
	NeedsSnapshot(index uint64) bool
	RejectManifest(*snapshot.Manifest) error
	// WantInstall makes a turn call StepReceived.
	WantInstall()
	// SkipsPast hands a snapshot to the apply lane if only the machine needs it, and reports whether it does.
	SkipsPast(*Published) bool
	// Refused counts a message that the core has refused.
	Refused(error)
}

// received is a snapshot that the leader has offered: bulk.ReceivedContent.
type received struct {
	*Group
	offer bulk.Offer
}

// Offered returns what an offer names, to be received.
func (s *Group) Offered(o bulk.Offer) bulk.ReceivedContent { return &received{s, o} }

func (c *received) Class() *bulk.Class { return c.Settings.Class }
func (c *received) What() string       { return "a snapshot" }
func (c *received) Name() string       { return c.id().String() }

func (c *received) Lasts() bool { return false }

func (c *received) id() snapshot.ID {
	return snapshot.ID{Index: c.offer.Index, Term: c.offer.Term}
}

func (c *received) Inspect() (m snapshot.Manifest, found bool, err error) {
	store, err := c.Store()
	if err != nil {
		return m, false, err
	}
	if m, err = store.Manifest(c.id()); err == nil {
		found = true
	} else {
		m, found = store.Unfinished()
	}
	return m, found && m.Hash() == c.offer.Hash, nil
}

func (c *received) Receive(m snapshot.Manifest) (*snapshot.Receiver, error) {
	store, err := c.Store()
	if err != nil {
		return nil, err
	}
	var sources []snapshot.Source
	if c.Section != nil {
		sources = c.Section.Sources(&m)
	}
	r, err := store.Receive(context.Background(), m, sources...)
	if errors.Is(err, snapshot.ErrPublished) && !store.Verified(m.ID()) {
		if damage := store.Verify(context.Background(), m.ID()); damage != nil {
			err = damage // it leaves the list, and can be received again
		}
	}
	return r, err
}

func (c *received) RejectWrite() error { return nil }

func (c *received) RejectManifest(m *snapshot.Manifest) error {
	switch {
	case m.Index != c.offer.Index || m.Term != c.offer.Term:
		return fmt.Errorf("the manifest is of entry %d of term %d, and entry %d of term %d was offered", m.Index, m.Term, c.offer.Index, c.offer.Term)
	case len(m.Conf.Voters) == 0:
		return errors.New("the manifest has a configuration without voters")
	}
	if err := c.owner.RejectManifest(m); err != nil {
		return err
	}
	block, err := entry.DecodeBlock(m.Host)
	if err == nil && len(block.Found) == 0 {
		err = errors.New("the snapshot was restored from an archive and tells no founding: it is its host's own; restore this host from the same archive")
	}
	return err
}

// IsUseless reports whether the log has had the entries meanwhile, and the machine can apply them.
func (c *received) IsUseless() bool { return !c.owner.NeedsSnapshot(c.offer.Index) }

// Whole passes the snapshot to the group, which installs it.
func (c *received) Whole(r *bulk.Receiver) {
	r.Install()
	c.Group.Received.Store(NewPublished(r.Manifest(), r.Now()))
	c.owner.WantInstall()
}

// Nowhere does nothing: the leader offers what there is.
func (c *received) Nowhere(*bulk.Receiver) {}

// Released does nothing: what was received is of use if the same snapshot is offered again.
func (c *received) Released(*bulk.Receiver) {}

func (c *received) Received(from uint64, bytes int64) event.Event {
	return event.SnapshotReceived{Group: c.ID, From: from, Index: c.offer.Index, Bytes: bytes}
}

func (c *received) Failed(from uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.ID, Member: from, Receives: true, Index: c.offer.Index, Bytes: bytes, Cause: cause}
}

func (c *received) Sources() []uint64 { return c.owner.Others() }

// Incoming returns the transfer of a snapshot to this member, and the offer; r is nil if there is none. It is
// called in Do of the transfers.
func (s *Group) Incoming() (r *bulk.Receiver, o bulk.Offer) {
	for _, r := range s.Transfers.In() {
		if c, is := r.Content().(*received); is && c.Group == s {
			return r, c.offer
		}
	}
	return nil, bulk.Offer{}
}

// Offer takes an offer of another member.
func (s *Group) Offer(from uint64, o bulk.Offer) {
	t, g, now := s.Transfers, s.owner.Bulk(), s.owner.Now()
	var repeats uint64
	said := false
	t.Do(func() {
		r, was := s.Incoming()
		switch {
		case r != nil && r.Hash() == o.Hash:
			r.Offered(from)
			return
		case s.owner.Leader() != from:
			return // only the leader knows that this member needs one (thesis §5.3); it offers again
		case !s.owner.NeedsSnapshot(o.Index):
			t.SayEnd(g, from, o.Hash, bulk.Done)
			return
		case s.rejectEach() != "":
			t.SayEnd(g, from, o.Hash, bulk.Refused)
			repeats, said = s.rejects.Admit(now)
			r := &RefusedOffer{Index: o.Index, Since: s.owner.Ticks(), Why: s.rejectEach()}
			if was := s.Refused(); was != nil {
				r.Since = was.Since
			}
			s.refused.Store(r)
			return
		case r != nil && (r.IsHeld() || o.FirstIndex <= was.Index+1 && r.IsAlive()):
			t.SayEnd(g, from, o.Hash, bulk.Other)
			return
		case r != nil:
			r.Abort("another snapshot, which replaces it, is offered")
		case !s.Settings.Class.GiveReceivingSlot():
			t.SayEnd(g, from, o.Hash, bulk.Busy)
			return
		}
		t.Receive(g, from, o.Hash, o.ManifestBytes, s.Offered(o))
	})
	if said {
		s.owner.Warn("a snapshot is offered, and refused: this member stays behind", "from", from, "index", o.Index, "cause", s.rejectEach(), "repeats", repeats)
	}
}

// RefusedOffer is the latest offer that this member refused because it can use no snapshot.
type RefusedOffer struct {
	Index uint64
	Since int64 // tick of the first
	Why   string
}

// Refused returns the offer that was refused, while this member needs it; nil: none.
func (s *Group) Refused() *RefusedOffer {
	if r := s.refused.Load(); r != nil && s.owner.NeedsSnapshot(r.Index) {
		return r
	}
	return nil
}

// rejectEach says why this member can use no snapshot at all; "" means that it can.
func (s *Group) rejectEach() string {
	switch {
	case s.Machine == nil:
		return "the state machine of this host restores no snapshots, and those of other members take them; all members need the same"
	case !s.Settings.Installs:
		return "the pipeline of this host installs no snapshots; pipeline.Async does"
	}
	return ""
}

// EndTransfer ends the transfer of a snapshot whose state the group has: it was installed, or the log has
// caught up.
func (s *Group) EndTransfer(p *Published) {
	s.Transfers.Do(func() {
		if r, was := s.Incoming(); r != nil && was.Index <= p.ID.Index {
			r.SayEnd(bulk.Done)
			r.Stop()
		}
	})
}
