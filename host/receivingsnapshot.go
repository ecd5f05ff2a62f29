package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/snapshot"
)

// receivedContent is what a transfer to this member moves. A snapshot of the group is one kind; receiving
// (receiving.go) asks it for everything in which the kinds differ. The caller holds transfers.mu, except
// where noted.
type receivedContent interface {
	class() *transferClass
	// what and name say for people what is received: "a snapshot", and which one.
	what() string
	name() string
	// look looks whether the disk has the content, as a whole or in part. Then it has the manifest, too. The
	// caller does not hold the lock.
	look() (m snapshot.Manifest, found bool, err error)
	// rejectManifest says why this member cannot use the content, or returns nil.
	rejectManifest(m *snapshot.Manifest) error
	// receive begins to receive, or continues. snapshot.ErrPublished means that the disk has the content. The
	// caller does not hold the lock.
	receive(m snapshot.Manifest) (*snapshot.Receiver, error)
	// rejectWrite says why the disk must not take a few more blocks now, or returns nil. The caller does not
	// hold the lock.
	rejectWrite() error
	// lasts reports whether the content is needed whatever happens: then only endFetch, or the end of the
	// group, ends the transfer.
	lasts() bool
	// isUseless reports whether this member needs the content no more.
	isUseless() bool
	// whole is called when the disk has the content, and ends the transfer or passes it on.
	whole(r *receiving)
	// nowhere is called when no source serves it: each was asked in turn, and none has said that it is busy.
	nowhere(r *receiving)
	// released is called when a transfer that has ended early does nothing on the disk any more.
	released(r *receiving)
	// received and failed return the events of the two ends.
	received(from uint64, bytes int64) event.Event
	failed(from uint64, bytes int64, cause string) event.Event
	// sources are the members that can be asked, in turn.
	sources() []uint64
}

// receivedSnapshot is a snapshot that the leader has offered.
type receivedSnapshot struct {
	group *Group
	offer snapshotOffer
}

func (c *receivedSnapshot) class() *transferClass { return &c.group.host.transfers.snapshots }
func (c *receivedSnapshot) what() string          { return "a snapshot" }
func (c *receivedSnapshot) name() string          { return c.id().String() }

func (c *receivedSnapshot) lasts() bool { return false }

func (c *receivedSnapshot) id() snapshot.ID {
	return snapshot.ID{Index: c.offer.index, Term: c.offer.term}
}

func (c *receivedSnapshot) look() (m snapshot.Manifest, found bool, err error) {
	store, err := c.group.snapshots.store()
	if err != nil {
		return m, false, err
	}
	if m, err = store.Manifest(c.id()); err == nil {
		found = true
	} else {
		m, found = store.Unfinished()
	}
	return m, found && m.Hash() == c.offer.hash, nil
}

func (c *receivedSnapshot) receive(m snapshot.Manifest) (*snapshot.Receiver, error) {
	store, err := c.group.snapshots.store()
	if err != nil {
		return nil, err
	}
	r, err := store.Receive(context.Background(), m, c.group.objects.sources(&m)...)
	if errors.Is(err, snapshot.ErrPublished) && !store.Verified(m.ID()) {
		if damage := store.Verify(context.Background(), m.ID()); damage != nil {
			err = damage // it leaves the list, and can be received again
		}
	}
	return r, err
}

func (c *receivedSnapshot) rejectWrite() error { return nil }

func (c *receivedSnapshot) rejectManifest(m *snapshot.Manifest) error {
	switch {
	case m.Index != c.offer.index || m.Term != c.offer.term:
		return fmt.Errorf("the manifest is of entry %d of term %d, and entry %d of term %d was offered", m.Index, m.Term, c.offer.index, c.offer.term)
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
func (c *receivedSnapshot) isUseless() bool { return !c.group.needsSnapshot(c.offer.index) }

// needsSnapshot reports whether a snapshot through an index brings this member forward.
func (g *Group) needsSnapshot(index uint64) bool {
	return index > g.status.Load().Committed || g.objects.passes(index)
}

// whole passes the snapshot to the group, which installs it.
func (c *receivedSnapshot) whole(r *receiving) {
	r.enter(receivingInstalls)
	c.group.installs.received.Store(newPublished(r.decoded, r.all.at))
	c.group.want(dutyInstall)
	c.group.wake()
}

// nowhere does nothing: the leader offers what there is.
func (c *receivedSnapshot) nowhere(*receiving) {}

// released does nothing: what was received is of use if the same snapshot is offered again.
func (c *receivedSnapshot) released(*receiving) {}

func (c *receivedSnapshot) received(from uint64, bytes int64) event.Event {
	return event.SnapshotReceived{Group: c.group.id, From: from, Index: c.offer.index, Bytes: bytes}
}

func (c *receivedSnapshot) failed(from uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: c.group.id, Member: from, Receives: true, Index: c.offer.index, Bytes: bytes, Cause: cause}
}

func (c *receivedSnapshot) sources() []uint64 { return c.group.otherMembers() }

// otherMembers returns the ids of all members but this one.
func (g *Group) otherMembers() (others []uint64) {
	for _, id := range g.memberIDs() {
		if id != g.self {
			others = append(others, id)
		}
	}
	return others
}

// incoming returns the transfer of a snapshot to this member and the snapshot, or nil.
func (t *transfers) incoming(g *Group) (*receiving, *receivedSnapshot) {
	for _, r := range t.in {
		if c, is := r.content.(*receivedSnapshot); is && r.group == g {
			return r, c
		}
	}
	return nil, nil
}

// offered takes an offer.
func (t *transfers) offered(g *Group, from uint64, o snapshotOffer) {
	t.lock()
	defer t.unlock()
	r, was := t.incoming(g)
	switch {
	case r != nil && r.hash == o.hash:
		r.from = from
		r.sayAlive()
		return
	case g.status.Load().Leader != from:
		return // only the leader knows that this member needs one (thesis §5.3); it offers again
	case !g.needsSnapshot(o.index):
		t.sayEnd(g, from, o.hash, endDone)
		return
	case !g.takesSnapshots():
		t.sayEnd(g, from, o.hash, endRefused)
		return
	case r != nil && (r.running || r.stage == receivingInstalls || o.firstIndex <= was.offer.index+1 && t.at-r.heardAt < t.idleTicks()/2):
		t.sayEnd(g, from, o.hash, endOther)
		return
	case r != nil:
		r.abort("another snapshot, which replaces it, is offered")
	case !t.snapshots.giveReceivingSlot():
		t.sayEnd(g, from, o.hash, endBusy)
		return
	}
	t.addReceiving(g, from, o.hash, o.manifestBytes, &receivedSnapshot{g, o})
}

// installed ends the transfer of a snapshot whose state the group has: it was installed, or the log has
// caught up.
func (t *transfers) installed(g *Group, p *publishedSnapshot) {
	t.lock()
	defer t.unlock()
	if r, was := t.incoming(g); r != nil && was.offer.index <= p.id.Index {
		t.sayEnd(g, r.from, r.hash, endDone)
		r.stop()
	}
}
