package bulk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/snapshot"
)

// Receiver receives one content: an object, or a snapshot from its offer until this member's log has taken
// it over. A group has at most one transfer of a snapshot, and a host at most Class.MaxReceivings. Complete
// transfers, which are being installed, are not counted.
//
// The manifest comes first, and its SHA-256 must be the hash that was offered. From then on every block is
// checked against the manifest, so it does not matter which member sends it. After a while of silence the
// receiver asks the next member. Blocks are written on a snapshot lane; those that wait for it are bounded
// by the window.
//
// What is on the disk stays there when a transfer ends early. The next offer of the same snapshot
// continues, and one of another snapshot keeps the parts that are equal (snapshot.Store.Receive).
//
// An offer of another snapshot ends a transfer that makes progress only if it must. It must if the log of
// the leader begins behind the end of the snapshot that is being received: the received snapshot would be
// of no use.
type Receiver struct {
	all           *Transfers
	group         Group
	enqueue       func() // makes a lane run a piece
	content       ReceivedContent
	hash          [32]byte // of the manifest
	manifestBytes int64

	// Guarded by Transfers.mu.
	from     uint64   // the member that is asked; 0: none is known
	isAsked  bool     // it was, and has not refused
	refused  []uint64 // the members that did not serve since something was right
	isBusy   bool     // one of them has it, and is busy
	stage    receiverStage
	window   window
	blocks   []heldBlock // that are not written
	spare    [][]byte    // memory for blocks, at most WindowBlocks
	heardAt  int64       // tick at which something arrived that was asked for, or a stage began
	saidAt   int64       // tick at which the sender was told something
	pausedAt int64       // the disk refuses blocks; it is tried again in a while. 0: it does not
	pauses   int         // since a block was written
	laterAt  int64       // not before this tick: the stage is receivingWaits
	restarts int         // since a block was written
	lies     int         // blocks and manifests that were wrong
	spoilt   int         // times that all blocks were here, and could not be published
	received int64       // bytes of blocks
	pace     pace
	running  bool // a piece of work is under way
	reopens  bool // the receiver must be closed, and opened again
	receiver *snapshot.Receiver
	manifest []byte // as far as it is here
	hasBlock []bool // blocks of it

	// Owned by the lane.
	decoded snapshot.Manifest
}

// heldBlock is a block that waits to be written. Its content is ours.
type heldBlock struct {
	Block
	from uint64
}

type receiverStage int

const (
	receivingBegins   receiverStage = iota // it looks what is on the disk
	receivingManifest                      // it asks for the manifest
	receivingOpens                         // the manifest is here
	receivingBlocks                        // it asks for blocks
	receivingFinishes                      // all are here, and are verified
	receivingInstalls                      // a snapshot is published: the group installs it
	receivingWaits                         // a fetch has no slot, until laterAt and longer
	receivingGone
)

const (
	// maxLies is how many wrong answers abort a transfer: the senders have other bytes than they offer.
	maxLies = 64
	// maxSpoilt is how often all blocks may be here and a part of them wrong: once for this member's own
	// disk, which loses something, and once more because the checksums of the offer contradict each other.
	maxSpoilt = 2
	// switchAfter is how many repeats in a row bring nothing before another member is asked.
	switchAfter = 3
	// WriteBlocks bounds one piece of a receiver's work, in blocks.
	WriteBlocks = 4
)

// ReceivingOf returns the transfer to this member of the content with this hash, or nil. It is called in
// Do.
func (t *Transfers) ReceiverOf(g Group, hash [32]byte) *Receiver {
	for _, r := range t.in {
		if r.group == g && r.hash == hash {
			return r
		}
	}
	return nil
}

// Receive begins a transfer to this member, which has a slot. from is asked first; 0: none is known. It is
// called in Do.
func (t *Transfers) Receive(g Group, from uint64, hash [32]byte, manifestBytes int64, content ReceivedContent) {
	r := &Receiver{all: t, group: g, content: content, hash: hash, manifestBytes: manifestBytes, from: from, heardAt: t.at, pace: pace{at: t.at}}
	r.window.waitTicks = t.repeatTicks()
	r.enqueue = t.wiring.Work(g, "which receives "+content.What(), r.piece)
	t.in = append(t.in, r)
	r.enqueue()
}

func (r *Receiver) class() *Class { return r.content.Class() }

// HasSlot reports whether the transfer uses the network and the disk. It is called in Do.
func (r *Receiver) HasSlot() bool {
	return r.stage != receivingInstalls && r.stage != receivingWaits && r.stage != receivingGone
}

// sayAlive tells the sender that the receiver is at work.
func (r *Receiver) sayAlive() { r.ask(false, nil) }

// SayDone tells the sender that nothing more is needed of it, if it was asked for something. It is called in
// Do.
func (r *Receiver) SayDone() {
	if r.isAsked {
		r.SayEnd(Done)
	}
}

func (r *Receiver) ask(restarts bool, ranges []Range) {
	if r.saidAt = r.all.at; r.from == raft.None {
		r.from = r.next()
	}
	if r.isAsked = r.from != raft.None; !r.isAsked {
		return
	}
	a := Ask{Group: r.group.ID(), Hash: r.hash, Number: r.all.wiring.Number(), Restarts: restarts, Ranges: ranges}
	r.all.say(r.from, a.Encode())
}

// askMore asks for what is missing, as far as the window allows, or goes on to the next stage if nothing is.
func (r *Receiver) askMore() {
	var missing []Range
	switch r.stage {
	case receivingManifest:
		for b, has := range r.hasBlock {
			if !has {
				missing = append(missing, Range{ManifestPart, int64(b), 1})
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
			missing = append(missing, Range{m.Part, m.Block, m.Blocks})
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
func (r *Receiver) enter(stage receiverStage) {
	r.stage, r.heardAt = stage, r.all.at
	r.window.reset()
	r.blocks = nil
}

// Arrived takes a block.
func (t *Transfers) Arrived(g Group, from uint64, b *Block) {
	t.lock()
	defer t.unlock()
	r := t.ReceiverOf(g, b.Hash)
	if r == nil || r.stage != receivingManifest && r.stage != receivingBlocks ||
		(b.At.Part == ManifestPart) != (r.stage == receivingManifest) || !r.window.arrived(b.At) {
		t.countUnwanted(r)
		return
	}
	r.heardAt, r.from, r.isAsked = t.at, from, true
	r.received += int64(len(b.Content))
	r.class().counts.BytesReceived += uint64(len(b.Content))
	if r.stage == receivingManifest {
		r.receiveManifestBlock(b)
		r.askMore()
		return
	}
	own := heldBlock{*b, from}
	own.Content = append(r.spareBlock(), b.Content...)
	r.blocks = append(r.blocks, own)
	r.enqueue()
	r.askMore()
}

// spareBlock returns memory for a block: that of one that was written, if there is any.
func (r *Receiver) spareBlock() (b []byte) {
	n := len(r.spare)
	if n == 0 {
		return make([]byte, 0, BlockBytes)
	}
	b, r.spare = r.spare[n-1][:0], r.spare[:n-1]
	return b
}

// receiveManifestBlock receives a block of the manifest. The whole is checked when it is complete.
func (r *Receiver) receiveManifestBlock(b *Block) {
	r.window.wrote(b.At)
	lo := b.At.Block * BlockBytes
	if want := min(BlockBytes, int64(len(r.manifest))-lo); int64(len(b.Content)) != want {
		r.lied(r.from, fmt.Sprintf("block %d of the manifest has %d bytes, want %d", b.At.Block, len(b.Content), want))
		return
	}
	copy(r.manifest[lo:], b.Content)
	r.hasBlock[b.At.Block] = true
	switch {
	case slices.Contains(r.hasBlock, false):
	case sha256.Sum256(r.manifest) != r.hash:
		clear(r.hasBlock)
		r.lied(r.from, "the manifest has another hash than was offered")
	default:
		r.refused, r.isBusy = nil, false
	}
}

// piece is one piece of work on a snapshot lane.
func (r *Receiver) piece() (more bool) {
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
		r.inspect()
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
func (r *Receiver) outside(f func()) bool {
	r.all.mu.Unlock()
	f()
	r.all.lock()
	return r.stage != receivingGone
}

// inspect finds what the disk has of the content.
func (r *Receiver) inspect() {
	var m snapshot.Manifest
	var err error
	found := false
	goesOn := r.outside(func() { m, found, err = r.content.Inspect() })
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
		r.manifest = make([]byte, r.manifestBytes)
		r.hasBlock = make([]bool, (r.manifestBytes+BlockBytes-1)/BlockBytes)
		r.enter(receivingManifest)
	}
}

// open decodes the manifest, if it came just now, and begins to receive.
func (r *Receiver) open() {
	if r.manifest != nil {
		m, err := snapshot.DecodeManifest(r.manifest)
		if err != nil {
			r.refuse(err)
			return
		}
		r.decoded, r.manifest, r.hasBlock = m, nil, nil
	}
	if err := r.content.RejectManifest(&r.decoded); err != nil {
		r.refuse(err)
		return
	}
	var receiver *snapshot.Receiver
	var err error
	goesOn := r.outside(func() { receiver, err = r.content.Receive(r.decoded) })
	r.receiver = receiver
	space := (*snapshot.SpaceError)(nil)
	switch {
	case !goesOn:
	case errors.Is(err, snapshot.ErrPublished):
		r.content.Whole(r)
	case errors.As(err, &space) && !r.content.Lasts():
		r.SayEnd(Full)
		r.Abort(err.Error())
	case err != nil:
		r.pause(err)
	default:
		r.enter(receivingBlocks)
	}
}

// refuse ends the transfer: this member has no use for the content, from any sender.
func (r *Receiver) refuse(err error) {
	r.content.Nowhere(r)
	r.SayEnd(Refused)
	r.Abort(err.Error())
}

// write writes a few blocks.
func (r *Receiver) write() {
	some := slices.Clone(r.blocks[:min(len(r.blocks), WriteBlocks)])
	r.blocks = slices.Delete(r.blocks, 0, len(some))
	errs := make([]error, len(some))
	if !r.outside(func() {
		full := r.content.RejectWrite()
		for i := range some {
			if errs[i] = full; full == nil {
				errs[i] = r.receiver.Put(some[i].At.Part, some[i].At.Block, some[i].Content)
			}
		}
	}) {
		return
	}
	for i := range some {
		if len(r.spare) < WindowBlocks {
			r.spare = append(r.spare, some[i].Content)
		}
		r.window.wrote(some[i].At)
		wrong := (*snapshot.BlockError)(nil)
		switch {
		case r.stage != receivingBlocks:
		case errs[i] == nil:
			r.refused, r.isBusy, r.pauses, r.restarts = nil, false, 0, 0
		case errors.As(errs[i], &wrong):
			r.lied(some[i].from, wrong.What)
		default:
			r.pause(errs[i])
		}
	}
}

// pause makes the transfer wait: the disk has refused something, and may have space again in a while. The
// sender learns that the receiver lives.
func (r *Receiver) pause(err error) {
	if r.stage == receivingGone {
		return
	}
	if r.pauses++; r.pauses&(r.pauses-1) == 0 {
		r.all.wiring.Warn(r.content.What()+" is received, and the disk refuses it; it is tried again", "group", r.group.ID(), "host", r.all.settings.Self, "content", r.content.Name(), "err", err, "times", r.pauses)
	}
	r.pausedAt = max(r.all.at, 1)
	if r.receiver != nil { // it may not be used after an error: what is on the disk is looked at again
		r.reopens = true
		r.enter(receivingOpens)
	}
}

// finish verifies all that is on the disk, and publishes it.
func (r *Receiver) finish() {
	var err error
	var damage *snapshot.DamageError
	if !r.outside(func() {
		if err = r.receiver.Finish(context.Background()); err == nil {
			err = r.receiver.Publish()
		}
	}) {
		return
	}
	switch {
	case errors.As(err, &damage) && r.spoilt+1 >= maxSpoilt:
		r.SayEnd(Refused)
		r.Abort(fmt.Sprintf("its blocks were right, and a part of it was wrong, %d times: %v", maxSpoilt, err))
	case errors.Is(err, snapshot.ErrIncomplete):
		r.spoilt++
		r.enter(receivingBlocks)
	case err != nil:
		r.spoilt++
		r.pause(err)
	default:
		r.class().counts.Received++
		r.all.emit(r.content.Received(r.from, r.received))
		r.receiver = nil
		r.content.Whole(r)
	}
}

// Abort ends the transfer with an event, or makes it start over if it lasts. What is on the disk stays. It
// is called in Do.
func (r *Receiver) Abort(cause string) {
	if r.stage == receivingGone {
		return
	}
	r.class().counts.Aborted++
	r.all.emit(r.content.Failed(r.from, r.received, cause))
	r.all.warn(topic{r.group.ID(), r.from, "abort"}, r.content.What()+" was not received", "from", r.from, "content", r.content.Name(), "cause", cause)
	if r.content.Lasts() {
		r.startOver()
		return
	}
	r.Stop()
}

// Stop ends the transfer. A lane closes its receiver; if the group is leaving, none does, and what is on the
// disk stays as it would in a crash. It is called in Do.
func (r *Receiver) Stop() {
	r.stage, r.blocks = receivingGone, nil
	r.enqueue()
	r.all.in = slices.DeleteFunc(r.all.in, func(other *Receiver) bool { return other == r })
}

// close ends the receiver of a transfer that is gone, on the lane.
func (r *Receiver) close() {
	receiver := r.receiver
	r.receiver, r.manifest, r.hasBlock, r.spare = nil, nil, nil, nil
	if receiver == nil {
		return
	}
	r.outside(func() {
		if err := receiver.Close(); err != nil {
			r.all.wiring.Warn("what was received of "+r.content.What()+" may not be on the disk", "group", r.group.ID(), "host", r.all.settings.Self, "content", r.content.Name(), "err", err)
		}
	})
	r.content.Released(r)
}

// beat is called at each beat, with the ticks that have passed.
func (r *Receiver) beat(passed int64) {
	t := r.all
	if r.pausedAt > 0 && t.at-r.pausedAt >= t.repeatTicks()<<min(r.pauses-1, maxSilentBackoff) {
		r.pausedAt = 0
		r.enqueue()
	}
	r.pace.pass(t.at, r.received, t.SlotTicks())
	waits := r.stage == receivingManifest || r.stage == receivingBlocks && r.pausedAt == 0
	switch {
	case (waits || r.stage == receivingWaits) && r.content.IsUseless():
		r.SayDone()
		r.Stop()
	case r.stage == receivingWaits:
		r.beginAgain()
	case waits && !r.content.Lasts() && t.at-r.heardAt >= 2*t.idleTicks():
		r.Abort(fmt.Sprintf("no member has sent anything for %d ticks", t.at-r.heardAt))
	case r.window.tick(passed):
		if r.window.silent >= switchAfter && r.isAsked {
			r.passOver(r.from)
		}
		r.ask(true, r.window.repeat())
	case t.at-r.saidAt >= t.repeatTicks() && (!waits || len(r.window.asked) == 0):
		r.askMore()
		r.sayAlive()
	}
}
