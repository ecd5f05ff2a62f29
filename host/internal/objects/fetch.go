package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/snapshot"
)

// A member that lacks a large object fetches it. There is no offer: the log says which bytes the object has
// (its hash is that of the manifest), so any member may be asked. From there on it is the protocol of
// snapshots.
//
// Invariant: a fetch ends when the object is on the disk, when End is called, or with its group. The log
// says that the object is needed, and no number of silent members or wrong blocks changes that. What ends the
// transfer of a snapshot makes a fetch give its slot up and begin again later (bulk.Receiver.Abort).

// Fetches are those of a host, and what it sends to the fetches of others.
type Fetches struct {
	*bulk.Transfers
	Class *bulk.Class
}

// Object is an object that a member lacks, as the log describes it. ManifestBytes is 1 to bulk.MaxManifest.
type Object struct {
	ID                   object.ID
	Bytes, ManifestBytes int64
	Hash                 [32]byte
	Sources              []uint64 // to be asked first, in this order; then all members are
}

// receivedObject is an object that is fetched.
type receivedObject struct {
	keeper   *Keeper
	object   Object
	promised int64 // bytes that its receiver was to write when it began; guarded by the lock of the transfers
}

// Begin begins to fetch an object. It never blocks, and may be called in a turn. If the object is being
// fetched already it does nothing. It returns false if all slots are taken, or if the group ends. It
// returns false, too, if an object with the same content and another id is being fetched. The caller may
// call it again at a later beat. The Keeper learns how it goes (arrived, absent).
func (t *Fetches) Begin(k *Keeper, o Object) (begins bool) {
	t.Do(func() {
		if r := t.ReceiverOf(k.Bulk, o.Hash); r != nil {
			c, is := r.Content().(*receivedObject)
			begins = is && c.object.ID == o.ID
			return
		}
		switch {
		case k.wiring.IsLeaving() || k.wiring.Err() != nil:
			return
		case o.ManifestBytes < 1 || o.ManifestBytes > bulk.MaxManifest || !t.Class.GiveReceivingSlot():
			return
		}
		o.Sources = slices.Clone(o.Sources)
		c := &receivedObject{keeper: k, object: o}
		from := uint64(raft.None)
		if sources := c.Sources(); len(sources) > 0 {
			from = sources[0]
		}
		t.Receive(k.Bulk, from, o.Hash, o.ManifestBytes, c)
		begins = true
	})
	return begins
}

// End ends a fetch: the object is needed no more. A fetch of the same content under another id goes on.
// It never blocks. A piece of work that is under way on a lane still ends; until then the files of the object
// are busy (files.ErrBusy).
func (t *Fetches) End(k *Keeper, id object.ID) {
	if t.Active() == 0 {
		return
	}
	t.Do(func() {
		for _, r := range t.In() {
			if c, is := r.Content().(*receivedObject); is && c.keeper == k && c.object.ID == id {
				r.SayDone()
				r.Stop()
			}
		}
	})
}

func (c *receivedObject) Class() *bulk.Class { return c.keeper.fetches.Class }
func (c *receivedObject) What() string       { return "an object" }
func (c *receivedObject) Name() string       { return c.object.ID.String() }
func (c *receivedObject) Lasts() bool        { return true }

func (c *receivedObject) Inspect() (m snapshot.Manifest, found bool, err error) {
	store := c.keeper.files
	if r, err := store.Blocks(c.object.ID); err == nil {
		defer r.Close()
		m, found = r.Manifest(), true
	} else {
		m, found = store.Unfinished(c.object.ID)
	}
	return m, found && m.Hash() == c.object.Hash, nil
}

func (c *receivedObject) RejectManifest(m *snapshot.Manifest) error {
	return files.RejectManifest(m, c.object.Bytes, c.object.Hash)
}

func (c *receivedObject) Receive(m snapshot.Manifest) (*snapshot.Receiver, error) {
	store := c.keeper.files
	r, err := store.Receive(context.Background(), c.object.ID, m)
	if err == nil {
		if err = c.promise(r); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if info, here := store.Info(c.object.ID); errors.Is(err, snapshot.ErrPublished) && here && info.Hash != c.object.Hash {
		err = fmt.Errorf("the disk has another object under the id %v", c.object.ID)
	}
	return r, err
}

// promise says that the disk has no space for what the receiver lacks, beside what was promised to the other
// fetches of this host, or returns nil. Otherwise two of them could fill the disk with a half of each, and
// neither could end.
func (c *receivedObject) promise(r *snapshot.Receiver) error {
	have, want := r.Progress()
	t := c.keeper.fetches
	others := int64(0)
	t.Do(func() {
		c.promised = want - have
		others = t.promisedBut(c)
	})
	err := c.keeper.rejectSpace(want - have + others)
	if err != nil {
		t.Do(func() { c.promised = 0 })
	}
	return err
}

// promisedBut returns the bytes that all fetches but one have still to write. It is called in Do.
func (t *Fetches) promisedBut(one *receivedObject) (bytes int64) {
	for _, r := range t.In() {
		c, is := r.Content().(*receivedObject)
		if !is || c == one || !r.HasSlot() {
			continue
		}
		if lacks, known := r.Lacks(); known {
			bytes += lacks
		} else {
			bytes += c.promised
		}
	}
	return bytes
}

// RejectWrite says that a few blocks would take of what objects leave for the log: uploads and the log have
// grown since the receiver began.
func (c *receivedObject) RejectWrite() error {
	return c.keeper.rejectSpace(bulk.WriteBlocks * bulk.BlockBytes)
}

// IsUseless reports whether the group has ended.
func (c *receivedObject) IsUseless() bool { return c.keeper.wiring.Err() != nil }

// Released lets the group remove what came of an object that is needed no more.
func (c *receivedObject) Released(r *bulk.Receiver) {
	r.Tell(func() { c.keeper.drop(c.object.ID) })
}

func (c *receivedObject) Whole(r *bulk.Receiver) {
	r.SayDone()
	r.Tell(func() { c.keeper.arrived(c.object.ID) })
	r.Stop()
}

// Nowhere lets another fetch have the slot: an object that no member has may be asked for until it expires.
func (c *receivedObject) Nowhere(r *bulk.Receiver) {
	r.Yield()
	r.Tell(func() { c.keeper.absent(c.object.ID) })
}

func (c *receivedObject) Received(from uint64, bytes int64) event.Event {
	return event.ObjectReceived{Group: c.keeper.Group, ID: c.object.ID, From: from, Bytes: bytes}
}

func (c *receivedObject) Failed(from uint64, bytes int64, cause string) event.Event {
	return event.ObjectTransferFailed{Group: c.keeper.Group, ID: c.object.ID, Member: from, Receives: true, Bytes: bytes, Cause: cause}
}

// Sources returns those of the fetch, and then the other members.
func (c *receivedObject) Sources() (all []uint64) {
	for _, id := range slices.Concat(c.object.Sources, c.keeper.wiring.Members()) {
		if id != c.keeper.Self && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}
