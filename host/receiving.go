package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/snapshot"
)

// receiving is a snapshot that is received, from the offer until this member's log has taken it over. There
// is one for a group at most, and maxReceivings for a host; those that are complete, and are being installed,
// are not counted.
//
// The manifest comes first, and its SHA-256 must be the hash that was offered. From then on every block is
// checked against the manifest, so it does not matter who sends it: after a while of silence the receiver
// asks the next member. Blocks are written on a snapshot lane; those that wait for it are bounded by the
// window.
//
// What is on the disk stays there when a transfer ends early. The next offer of the same snapshot
// continues, and one of another snapshot keeps the parts that are equal (snapshot.Store.Receive).
//
// An offer of another snapshot does not end a transfer that makes progress, except if it must: when the log
// of the leader begins behind the end of the snapshot that is being received, that one would be of no use.
type receiving struct {
	all   *transfers
	group *Group
	work  laneWork

	// Guarded by transfers.mu.
	offer    snapshotOffer
	from     uint64 // the member that is asked
	stage    receivingStage
	window   receivingWindow
	blocks   []snapshotBlock // that are not written; their content is ours
	heardAt  int64           // tick at which something arrived that was asked for, or a stage began
	saidAt   int64           // tick at which the sender was told something
	pausedAt int64           // the disk refuses blocks; it is tried again in a while. 0: it does not
	lies     int             // blocks and manifests that were wrong
	spoilt   int             // times that all blocks were here, and could not be made a snapshot
	received int64           // bytes of blocks
	pace     pace
	running  bool // a piece of work is under way
	reopens  bool // the receiver must be closed, and opened again
	receiver *snapshot.Receiver
	manifest []byte // as far as it is here
	hasBlock []bool // blocks of it

	// Owned by the lane.
	decoded snapshot.Manifest
}

type receivingStage int

const (
	receivingBegins   receivingStage = iota // it looks what is on the disk
	receivingManifest                       // it asks for the manifest
	receivingOpens                          // the manifest is here
	receivingBlocks                         // it asks for blocks
	receivingFinishes                       // all are here, and are verified
	receivingInstalls                       // published: the group installs it
	receivingGone
)

const (
	// maxLies is how many wrong answers end a transfer: the senders have other bytes than they offer.
	maxLies = 64
	// maxSpoilt is how often all blocks may be here and a part of them wrong: once for this member's own
	// disk, which loses something, and once more because the checksums of the offer contradict each other.
	maxSpoilt = 2
	// switchAfter is how many repeats in a row bring nothing before another member is asked.
	switchAfter = 3
	// writeBlocks bounds one piece of a receiver's work, in blocks.
	writeBlocks = 4
)

// incoming returns the transfer to this member, or nil.
func (t *transfers) incoming(g *Group) *receiving {
	for _, r := range t.in {
		if r.group == g {
			return r
		}
	}
	return nil
}

// offered takes an offer.
func (t *transfers) offered(g *Group, from uint64, o snapshotOffer) {
	t.lock()
	defer t.unlock()
	r := t.incoming(g)
	switch {
	case r != nil && r.offer.hash == o.hash:
		r.from = from
		r.sayAlive()
		return
	case g.status.Load().Leader != from:
		return // only the leader knows that this member needs one (thesis §5.3); it offers again
	case o.index <= g.status.Load().Committed:
		t.sayEnd(g, from, o.hash, endDone)
		return
	case !g.takesSnapshots():
		t.sayEnd(g, from, o.hash, endRefused)
		return
	case r != nil && (r.running || r.stage == receivingInstalls || o.firstIndex <= r.offer.index+1 && t.at-r.heardAt < t.idleTicks()/2):
		t.sayEnd(g, from, o.hash, endOther)
		return
	case r != nil:
		r.abort("another snapshot, which replaces it, is offered")
	case t.receives() >= maxReceivings && !t.endSlowReceiving():
		t.sayEnd(g, from, o.hash, endBusy)
		return
	}
	r = &receiving{all: t, group: g, offer: o, from: from, heardAt: t.at, pace: pace{at: t.at}}
	r.window.waitTicks = t.repeatTicks()
	r.work = laneWork{group: g, doing: "which receives a snapshot", piece: r.piece}
	t.in = append(t.in, r)
	r.enqueue()
}

func (r *receiving) enqueue() { r.group.host.snapshotLanes.enqueue(&r.work) }

// sayAlive tells the sender that the receiver is at work.
func (r *receiving) sayAlive() { r.ask(false, nil) }

func (r *receiving) ask(restarts bool, ranges []blockRange) {
	r.saidAt = r.all.at
	a := snapshotAsk{group: r.group.id, hash: r.offer.hash, number: r.group.host.nextFrame(), restarts: restarts, ranges: ranges}
	r.all.say(r.from, a.encode())
}

// askMore asks for what is missing, as far as the window allows, or goes on to the next stage if nothing is.
func (r *receiving) askMore() {
	var missing []blockRange
	switch r.stage {
	case receivingManifest:
		for b, has := range r.hasBlock {
			if !has {
				missing = append(missing, blockRange{manifestPart, int64(b), 1})
			}
		}
		if len(missing) == 0 {
			r.enter(receivingOpens)
			r.enqueue()
			return
		}
	case receivingBlocks:
		if r.pausedAt > 0 {
			return
		}
		for _, m := range r.receiver.Missing(r.window.needs()) {
			missing = append(missing, blockRange{m.Part, m.Block, m.Blocks})
		}
		if len(missing) == 0 && len(r.blocks) == 0 && !r.running {
			r.enter(receivingFinishes)
			r.enqueue()
			return
		}
	default:
		return
	}
	if ranges := r.window.more(missing); len(ranges) > 0 {
		r.ask(false, ranges)
	}
}

// enter begins a stage.
func (r *receiving) enter(stage receivingStage) {
	r.stage, r.heardAt = stage, r.all.at
	r.window.reset()
	r.blocks = nil
}

// arrived takes a block.
func (t *transfers) arrived(g *Group, from uint64, b *snapshotBlock) {
	t.lock()
	defer t.unlock()
	r := t.incoming(g)
	if r == nil || b.hash != r.offer.hash || r.stage != receivingManifest && r.stage != receivingBlocks ||
		(b.at.part == manifestPart) != (r.stage == receivingManifest) || !r.window.arrived(b.at) {
		t.counts.Unwanted++
		return
	}
	r.heardAt, r.from = t.at, from
	r.received += int64(len(b.content))
	t.counts.BytesReceived += uint64(len(b.content))
	if r.stage == receivingManifest {
		r.takeManifestBlock(b)
		r.askMore()
		return
	}
	own := *b
	own.content = bytes.Clone(b.content)
	r.blocks = append(r.blocks, own)
	r.enqueue()
	r.askMore()
}

// takeManifestBlock takes a block of the manifest. The whole is checked when it is complete.
func (r *receiving) takeManifestBlock(b *snapshotBlock) {
	r.window.wrote(b.at)
	lo := b.at.block * snapshotBlockBytes
	if want := min(snapshotBlockBytes, int64(len(r.manifest))-lo); int64(len(b.content)) != want {
		r.lied(fmt.Sprintf("block %d of the manifest has %d bytes, want %d", b.at.block, len(b.content), want))
		return
	}
	copy(r.manifest[lo:], b.content)
	r.hasBlock[b.at.block] = true
	if !slices.Contains(r.hasBlock, false) && sha256.Sum256(r.manifest) != r.offer.hash {
		clear(r.hasBlock)
		r.lied("the manifest has another hash than was offered")
	}
}

// lied notes that a sender has sent what is not in the snapshot, and asks another member.
func (r *receiving) lied(what string) {
	if r.lies++; r.lies&(r.lies-1) == 0 {
		r.group.host.env.logger.Warn("a part of a snapshot that was sent is wrong, and is refused", "group", r.group.id, "host", r.group.self, "from", r.from, "cause", what, "wrong", r.lies)
	}
	if r.lies >= maxLies {
		r.abort(fmt.Sprintf("%d parts of it were wrong, the last one because %s", r.lies, what))
		return
	}
	r.from = r.next()
}

// next returns the member after the one that is asked.
func (r *receiving) next() uint64 {
	others := slices.DeleteFunc(slices.Clone(r.group.memberIDs()), func(id uint64) bool { return id == r.group.self })
	if len(others) == 0 {
		return r.from // a new member that knows no other one yet
	}
	i := slices.Index(others, r.from)
	return others[(i+1)%len(others)]
}

// sourceFails is called when the member that is asked cannot serve: the next one is asked at the next repeat.
func (r *receiving) sourceFails(why string) {
	r.window.silent = max(r.window.silent, switchAfter-1)
}

// piece is one piece of work on a snapshot lane.
func (r *receiving) piece() (more bool) {
	t := r.all
	t.lock()
	defer t.unlock()
	r.running = true
	defer func() {
		if r.running = false; r.stage == receivingGone {
			r.close()
			more = false
			return
		}
		r.askMore()
		more = len(r.blocks) > 0
	}()
	if r.pausedAt > 0 || r.stage == receivingGone {
		return false
	}
	if r.reopens {
		receiver := r.receiver
		r.receiver, r.reopens = nil, false
		if !r.outside(func() { _ = receiver.Close() }) { // why it cannot be used is in the log
			return false
		}
	}
	switch r.stage {
	case receivingBegins:
		r.look()
	case receivingOpens:
		r.open()
	case receivingBlocks:
		r.write()
	case receivingFinishes:
		r.finish()
	}
	return false
}

// outside runs f without the lock, and reports whether the transfer goes on.
func (r *receiving) outside(f func()) bool {
	r.all.mu.Unlock()
	f()
	r.all.lock()
	return r.stage != receivingGone
}

// look looks whether the snapshot is on the disk already, as a whole or in part. Then the manifest is, too.
func (r *receiving) look() {
	var m snapshot.Manifest
	var err error
	found := false
	goesOn := r.outside(func() {
		var store *snapshot.Store
		if store, err = r.group.snapshots.store(); err != nil {
			return
		}
		if m, err = store.Manifest(snapshot.ID{Index: r.offer.index, Term: r.offer.term}); err != nil {
			m, found = store.Unfinished()
			err = nil
		} else {
			found = true
		}
		found = found && m.Hash() == r.offer.hash
	})
	switch {
	case !goesOn:
	case err != nil:
		r.pause(err)
	case found:
		r.decoded = m
		r.enter(receivingOpens)
		r.manifest = nil
		r.enqueue()
	default:
		r.manifest = make([]byte, r.offer.manifestBytes)
		r.hasBlock = make([]bool, (r.offer.manifestBytes+snapshotBlockBytes-1)/snapshotBlockBytes)
		r.enter(receivingManifest)
	}
}

// open decodes the manifest, if it came just now, and begins to receive.
func (r *receiving) open() {
	if r.manifest != nil {
		m, err := snapshot.DecodeManifest(r.manifest)
		if err != nil {
			r.refuse(err)
			return
		}
		r.decoded, r.manifest, r.hasBlock = m, nil, nil
	}
	if err := r.rejectManifest(); err != nil {
		r.refuse(err)
		return
	}
	var receiver *snapshot.Receiver
	var err error
	goesOn := r.outside(func() {
		var store *snapshot.Store
		if store, err = r.group.snapshots.store(); err != nil {
			return
		}
		if receiver, err = store.Receive(context.Background(), r.decoded); errors.Is(err, snapshot.ErrPublished) && !store.Verified(r.decoded.ID()) {
			if damage := store.Verify(context.Background(), r.decoded.ID()); damage != nil {
				err = damage // it leaves the list, and can be received again
			}
		}
	})
	r.receiver = receiver
	space := (*snapshot.SpaceError)(nil)
	switch {
	case !goesOn:
	case errors.Is(err, snapshot.ErrPublished):
		r.install()
	case errors.As(err, &space):
		r.all.sayEnd(r.group, r.from, r.offer.hash, endFull)
		r.abort(err.Error())
	case err != nil:
		r.pause(err)
	default:
		r.enter(receivingBlocks)
	}
}

// rejectManifest says why this member cannot use what is offered, or returns nil.
func (r *receiving) rejectManifest() error {
	m := &r.decoded
	switch {
	case m.Index != r.offer.index || m.Term != r.offer.term:
		return fmt.Errorf("the manifest is of entry %d of term %d, and entry %d of term %d was offered", m.Index, m.Term, r.offer.index, r.offer.term)
	case len(m.Conf.Voters) == 0:
		return errors.New("the manifest has a configuration without voters")
	}
	if err := r.group.rejectManifest(m); err != nil {
		return err
	}
	block, err := decodeHostBlock(m.Host)
	if err == nil && len(block.found) == 0 {
		err = errors.New("the snapshot was restored from an archive and tells no founding: it is its host's own; restore this host from the same archive")
	}
	return err
}

// refuse ends the transfer: this member has no use for what is offered.
func (r *receiving) refuse(err error) {
	r.all.sayEnd(r.group, r.from, r.offer.hash, endRefused)
	r.abort(err.Error())
}

// write writes a few blocks.
func (r *receiving) write() {
	some := slices.Clone(r.blocks[:min(len(r.blocks), writeBlocks)])
	r.blocks = slices.Delete(r.blocks, 0, len(some))
	errs := make([]error, len(some))
	if !r.outside(func() {
		for i := range some {
			errs[i] = r.receiver.Put(some[i].at.part, some[i].at.block, some[i].content)
		}
	}) {
		return
	}
	for i := range some {
		r.window.wrote(some[i].at)
		wrong := (*snapshot.BlockError)(nil)
		switch {
		case errs[i] == nil || r.stage == receivingGone:
		case errors.As(errs[i], &wrong):
			r.lied(wrong.What)
		default:
			r.pause(errs[i])
		}
	}
}

// pause makes the transfer wait: the disk has refused something, and may have space again in a while. The
// sender learns that the receiver lives.
func (r *receiving) pause(err error) {
	if r.stage == receivingGone {
		return
	}
	if r.pausedAt == 0 {
		r.group.host.env.logger.Warn("a snapshot is received, and the disk refuses it; it is tried again", "group", r.group.id, "host", r.group.self, "err", err)
	}
	r.pausedAt = max(r.all.at, 1)
	if r.receiver != nil { // it may not be used after an error: what is on the disk is looked at again
		r.reopens = true
		r.enter(receivingOpens)
	}
}

// finish verifies all that is on the disk, and publishes it.
func (r *receiving) finish() {
	var err error
	if !r.outside(func() {
		if err = r.receiver.Finish(context.Background()); err == nil {
			err = r.receiver.Publish()
		}
	}) {
		return
	}
	switch {
	case isDamage(err) && r.spoilt+1 >= maxSpoilt:
		r.all.sayEnd(r.group, r.from, r.offer.hash, endRefused)
		r.abort(fmt.Sprintf("its blocks were right, and a part of it was wrong, %d times: %v", maxSpoilt, err))
	case errors.Is(err, snapshot.ErrIncomplete):
		r.spoilt++
		r.enter(receivingBlocks)
	case err != nil:
		r.spoilt++
		r.pause(err)
	default:
		r.all.counts.Received++
		r.all.events = append(r.all.events, SnapshotReceived{Group: r.group.id, From: r.from, Index: r.offer.index, Bytes: r.received})
		r.receiver = nil
		r.install()
	}
}

// install passes what was published to the group.
func (r *receiving) install() {
	r.enter(receivingInstalls)
	r.group.installs.received.Store(newPublished(r.decoded, r.all.at))
	r.group.wake()
}

// installed ends the transfer of a snapshot whose state the group has: it was installed, or the log has
// caught up.
func (t *transfers) installed(g *Group, p *publishedSnapshot) {
	t.lock()
	defer t.unlock()
	if r := t.incoming(g); r != nil && r.offer.index <= p.id.Index {
		t.sayEnd(g, r.from, r.offer.hash, endDone)
		r.stop()
	}
}

// abort ends the transfer with an event. What is on the disk stays.
func (r *receiving) abort(cause string) {
	if r.stage == receivingGone {
		return
	}
	r.all.counts.Aborted++
	r.all.events = append(r.all.events, SnapshotTransferAborted{Group: r.group.id, Member: r.from, Receives: true, Index: r.offer.index, Bytes: r.received, Cause: cause})
	r.group.host.env.logger.Warn("a snapshot was not received", "group", r.group.id, "host", r.group.self, "from", r.from, "index", r.offer.index, "cause", cause)
	r.stop()
}

// stop ends the transfer. A lane closes its receiver; if the group is leaving, none does, and what is on the
// disk stays as it would in a crash.
func (r *receiving) stop() {
	r.stage, r.blocks = receivingGone, nil
	r.enqueue()
	r.all.in = slices.DeleteFunc(r.all.in, func(other *receiving) bool { return other == r })
}

// close ends the receiver of a transfer that is gone, on the lane.
func (r *receiving) close() {
	receiver := r.receiver
	r.receiver, r.manifest, r.hasBlock = nil, nil, nil
	if receiver == nil {
		return
	}
	r.outside(func() {
		if err := receiver.Close(); err != nil {
			r.group.host.env.logger.Warn("what was received of a snapshot may not be on the disk", "group", r.group.id, "host", r.group.self, "err", err)
		}
	})
}

// beat is called at each beat, with the ticks that have passed.
func (r *receiving) beat(passed int64) {
	t := r.all
	if r.pausedAt > 0 && t.at-r.pausedAt >= t.repeatTicks() {
		r.pausedAt = 0
		r.enqueue()
	}
	r.pace.pass(t.at, r.received, t.slotTicks())
	waits := r.stage == receivingManifest || r.stage == receivingBlocks && r.pausedAt == 0
	switch {
	case waits && r.group.status.Load().Committed >= r.offer.index: // it has had the entries meanwhile
		t.sayEnd(r.group, r.from, r.offer.hash, endDone)
		r.stop()
	case waits && t.at-r.heardAt >= 2*t.idleTicks():
		r.abort(fmt.Sprintf("no member has sent anything for %d ticks", t.at-r.heardAt))
	case r.window.tick(passed):
		if r.window.silent >= switchAfter {
			r.from = r.next()
		}
		r.ask(true, r.window.repeat())
	case t.at-r.saidAt >= t.repeatTicks() && (!waits || len(r.window.asked) == 0):
		r.askMore()
		r.sayAlive()
	}
}
