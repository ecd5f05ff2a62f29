package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/snapshot"
)

// receivedSnapshot is a snapshot that the leader has offered.
type receivedSnapshot struct {
	group *Group
	offer bulk.Offer
}

func (c *receivedSnapshot) Class() *bulk.Class { return c.group.host.bulk.transfers.snapshots }
func (c *receivedSnapshot) What() string       { return "a snapshot" }
func (c *receivedSnapshot) Name() string       { return c.id().String() }

func (c *receivedSnapshot) Lasts() bool { return false }

func (c *receivedSnapshot) id() snapshot.ID {
	return snapshot.ID{Index: c.offer.Index, Term: c.offer.Term}
}

func (c *receivedSnapshot) Look() (m snapshot.Manifest, found bool, err error) {
	store, err := c.group.snapshots.Store()
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

func (c *receivedSnapshot) Receive(m snapshot.Manifest) (*snapshot.Receiver, error) {
	store, err := c.group.snapshots.Store()
	if err != nil {
		return nil, err
	}
	var sources []snapshot.Source
	if s := c.group.snapshots.Section; s != nil {
		sources = s.Sources(&m)
	}
	r, err := store.Receive(context.Background(), m, sources...)
	if errors.Is(err, snapshot.ErrPublished) && !store.Verified(m.ID()) {
		if damage := store.Verify(context.Background(), m.ID()); damage != nil {
			err = damage // it leaves the list, and can be received again
		}
	}
	return r, err
}

func (c *receivedSnapshot) RejectWrite() error { return nil }

func (c *receivedSnapshot) RejectManifest(m *snapshot.Manifest) error {
	switch {
	case m.Index != c.offer.Index || m.Term != c.offer.Term:
		return fmt.Errorf("the manifest is of entry %d of term %d, and entry %d of term %d was offered", m.Index, m.Term, c.offer.Index, c.offer.Term)
	case len(m.Conf.Voters) == 0:
		return errors.New("the manifest has a configuration without voters")
	}
	if err := c.group.rejectManifest(m); err != nil {
		return err
	}
	block, err := entry.DecodeBlock(m.Host)
	if err == nil && len(block.Found) == 0 {
		err = errors.New("the snapshot was restored from an archive and tells no founding: it is its host's own; restore this host from the same archive")
	}
	return err
}

// isUseless reports whether the log has had the entries meanwhile, and the machine can apply them.
func (c *receivedSnapshot) IsUseless() bool { return !c.group.needsSnapshot(c.offer.Index) }

// needsSnapshot reports whether a snapshot through an index brings this member forward.
func (g *Group) needsSnapshot(index uint64) bool {
	return index > g.life.status.Load().Committed || g.machine.apply.passes(index)
}

// whole passes the snapshot to the group, which installs it.
func (c *receivedSnapshot) Whole(r *bulk.Receiver) {
	r.Install()
	c.group.snapshots.installs.received.Store(snapshots.NewPublished(r.Manifest(), r.Now()))
	c.group.want(dutyInstall)
	c.group.wake()
}

// nowhere does nothing: the leader offers what there is.
func (c *receivedSnapshot) Nowhere(*bulk.Receiver) {}

// released does nothing: what was received is of use if the same snapshot is offered again.
func (c *receivedSnapshot) Released(*bulk.Receiver) {}

func (c *receivedSnapshot) Received(from uint64, bytes int64) event.Event {
	return event.SnapshotReceived{Group: c.group.id, From: from, Index: c.offer.Index, Bytes: bytes}
}

func (c *receivedSnapshot) Failed(from uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.group.id, Member: from, Receives: true, Index: c.offer.Index, Bytes: bytes, Cause: cause}
}

func (c *receivedSnapshot) Sources() []uint64 { return c.group.otherMembers() }

// otherMembers returns the ids of all members but this one.
func (g *Group) otherMembers() (others []uint64) {
	for _, id := range g.memberIDs() {
		if id != g.self {
			others = append(others, id)
		}
	}
	return others
}

// incoming returns the transfer of a snapshot to this member and the snapshot, or nil. It is called in Do.
func (t *transfers) incoming(g *Group) (*bulk.Receiver, *receivedSnapshot) {
	for _, r := range t.In() {
		if c, is := r.Content().(*receivedSnapshot); is && c.group == g {
			return r, c
		}
	}
	return nil, nil
}

// offered takes an offer.
func (t *transfers) offered(g *Group, from uint64, o bulk.Offer) {
	t.Do(func() {
		r, was := t.incoming(g)
		switch {
		case r != nil && r.Hash() == o.Hash:
			r.Offered(from)
			return
		case g.life.status.Load().Leader != from:
			return // only the leader knows that this member needs one (thesis §5.3); it offers again
		case !g.needsSnapshot(o.Index):
			t.SayEnd((*bulkGroup)(g), from, o.Hash, bulk.Done)
			return
		case !g.takesSnapshots():
			t.SayEnd((*bulkGroup)(g), from, o.Hash, bulk.Refused)
			return
		case r != nil && (r.IsHeld() || o.FirstIndex <= was.offer.Index+1 && r.IsAlive()):
			t.SayEnd((*bulkGroup)(g), from, o.Hash, bulk.Other)
			return
		case r != nil:
			r.Abort("another snapshot, which replaces it, is offered")
		case !t.snapshots.GiveReceivingSlot():
			t.SayEnd((*bulkGroup)(g), from, o.Hash, bulk.Busy)
			return
		}
		t.Receive((*bulkGroup)(g), from, o.Hash, o.ManifestBytes, &receivedSnapshot{g, o})
	})
}

// installed ends the transfer of a snapshot whose state the group has: it was installed, or the log has
// caught up.
func (t *transfers) installed(g *Group, p *snapshots.Published) {
	t.Do(func() {
		if r, was := t.incoming(g); r != nil && was.offer.Index <= p.ID.Index {
			r.SayEnd(bulk.Done)
			r.Stop()
		}
	})
}
