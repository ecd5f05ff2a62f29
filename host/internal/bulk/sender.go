package bulk

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
)

const (
	// MinPinnedLog is how much log is kept for a transfer at least, in bytes, however small the snapshot is.
	MinPinnedLog = 1 << 30
	// readBlocks bounds one piece of a sender's work, in blocks.
	readBlocks = 4
)

// Sender sends one content to a member, or waits to send it.
type Sender struct {
	all     *Transfers
	group   Group
	to      uint64
	enqueue func()      // makes a lane run a piece
	content SentContent // changes only while nothing is under way

	// Guarded by Transfers.mu.
	stage     senderStage
	core      bool   // the core of the group awaits the outcome
	release   func() // of what the receiver needs next, or nil
	queue     queue
	heardAt   int64 // tick at which the receiver was heard, or the stage began
	offeredAt int64
	laterAt   int64 // not before this tick: the stage is sendingWaits or sendingFailed
	bytes     int64 // of blocks that were sent
	pace      pace
	running   bool // a piece of work is under way: it closes the reader
	manifest  []byte
	parts     []snapshot.Part // of the manifest
	size      int64           // bytes of all of them
	reader    *snapshot.Reader

	// Owned by the lane: memory for the blocks of a piece, and for a record, which the transport copies.
	raw, record []byte
}

type senderStage int

const (
	sendingWaits  senderStage = iota // until the host may send one more, or laterAt
	sendingOpens                     // it opens the content
	sendingBlocks                    // it has offered it, and sends what it is asked for
	sendingFailed                    // and the core is told at laterAt
	sendingGone
)

// IsActive reports whether the transfer has a slot. It is called in Do.
func (s *Sender) IsActive() bool { return s.stage == sendingOpens || s.stage == sendingBlocks }

// To returns the member.
func (s *Sender) To() uint64 { return s.to }

// outgoingTo returns the transfer of a class to a member, or nil.
func (t *Transfers) outgoingTo(g Group, to uint64, class *Class) *Sender {
	for _, s := range t.out {
		if s.group == g && s.to == to && s.class() == class {
			return s
		}
	}
	return nil
}

// sendingOf returns the active transfer to a member of the content with this hash, or nil.
func (t *Transfers) senderOf(g Group, to uint64, hash [32]byte) *Sender {
	for _, s := range t.out {
		if s.group == g && s.to == to && s.IsActive() && s.content.Hash() == hash {
			return s
		}
	}
	return nil
}

func (s *Sender) class() *Class { return s.content.Class() }

func (t *Transfers) addSender(g Group, to uint64, content SentContent) *Sender {
	s := &Sender{all: t, group: g, to: to, content: content}
	s.enqueue = t.wiring.Work(g, fmt.Sprintf("which sends %s to host %d", content.What(), to), s.piece)
	t.out = append(t.out, s)
	return s
}

// Send sends a content to a member: the group's core has asked for it, and is told how it ended
// (Group.SnapshotSent). If there is a transfer of that class already, its next try is for the core, too. It
// never blocks.
func (t *Transfers) Send(g Group, to uint64, content SentContent) {
	t.lock()
	defer t.unlock()
	s := t.outgoingTo(g, to, content.Class())
	if s == nil {
		s = t.addSender(g, to, content)
	}
	s.core = true
	if s.stage == sendingFailed {
		s.stage = sendingWaits // and it still waits until laterAt
	}
	t.beginWaiting()
}

// beginWaiting begins the transfers that wait, as far as the host may send.
func (t *Transfers) beginWaiting() {
	for _, s := range slices.Clone(t.out) {
		if s.stage != sendingWaits || t.at < s.laterAt || s.running {
			continue
		}
		if s.content.Renew() && s.class().giveSendingSlot() {
			s.begin()
		}
	}
}

func (s *Sender) begin() {
	s.stage, s.heardAt, s.bytes, s.size = sendingOpens, s.all.at, 0, 0
	s.pace = pace{at: s.all.at}
	s.queue = queue{}
	s.release = s.content.Begins()
	s.enqueue()
}

// piece is one piece of work on a snapshot lane: it opens the content, or reads and sends a few blocks.
func (s *Sender) piece() (more bool) {
	t := s.all
	t.lock()
	defer t.unlock()
	s.running = true
	defer func() {
		s.running = false
		if !s.IsActive() {
			s.close()
			more = false
		}
	}()
	switch s.stage {
	case sendingOpens:
		return s.open()
	case sendingBlocks:
		return s.sendSome()
	}
	return false
}

// open opens the content and offers it. The lock is not held while the disk works.
func (s *Sender) open() (more bool) {
	t := s.all
	t.mu.Unlock()
	m, reader, err := s.content.Open()
	var manifest []byte
	if err == nil {
		manifest, err = m.Append(nil)
	}
	t.lock()
	s.reader, s.manifest, s.parts = reader, manifest, m.Parts
	switch {
	case s.stage != sendingOpens:
		return false
	case err != nil:
		s.content.NotOpened(s, err)
		return false
	}
	s.stage, s.heardAt, s.size = sendingBlocks, t.at, m.Bytes()
	s.offer()
	return !s.queue.empty()
}

// offer tells the receiver what there is, unless it has asked for it by itself.
func (s *Sender) offer() {
	s.offeredAt = s.all.at
	if s.core {
		s.all.say(s.to, s.content.Offer(int64(len(s.manifest))))
	}
}

// sendSome sends a few of the blocks that were asked for, if the rate allows it.
func (s *Sender) sendSome() (more bool) {
	t := s.all
	class := s.class()
	r, ok := s.queue.next(min(class.rate.blocks(), readBlocks))
	if !ok {
		return false // a beat enqueues it again
	}
	asks, bytes := s.queue.last, r.Blocks*BlockBytes
	class.rate.spend(bytes)
	t.mu.Unlock()
	content, err := s.read(r)
	sent, whole := s.sendBlocks(r, content)
	t.lock()
	s.bytes += sent
	class.counts.BytesSent += uint64(sent)
	class.rate.spend(sent - bytes)
	switch {
	case s.stage != sendingBlocks:
		return false
	case err != nil:
		t.SayEnd(s.group, s.to, s.content.Hash(), Unreadable)
		s.content.Unreadable()
		s.Fail(fmt.Sprintf("it cannot be read: %v", err))
		return false
	case sent < int64(len(content)):
		s.queue.requeue(Range{r.Part, r.Block + whole, r.Blocks - whole}, asks)
		return false // the transport is full: a beat enqueues it again
	}
	return !s.queue.empty()
}

// read reads blocks. What does not exist is left out: only a peer that breaks the rules asks for it.
func (s *Sender) read(r Range) (content []byte, err error) {
	if r.Part == ManifestPart {
		lo := min(r.Block*BlockBytes, int64(len(s.manifest)))
		return s.manifest[lo:min(lo+r.Blocks*BlockBytes, int64(len(s.manifest)))], nil
	}
	if r.Part >= len(s.parts) || r.Block*BlockBytes >= s.parts[r.Part].Bytes {
		return nil, nil
	}
	s.raw, err = s.reader.AppendBlocks(s.raw[:0], r.Part, r.Block, int(r.Blocks*BlockBytes))
	return s.raw, err
}

// sendBlocks sends content as blocks, until the transport is full. It returns how many bytes it took, and how
// many blocks.
func (s *Sender) sendBlocks(r Range, content []byte) (bytes, blocks int64) {
	for len(content) > 0 {
		n := min(len(content), BlockBytes)
		b := Block{Group: s.group.ID(), Hash: s.content.Hash(), At: Place{r.Part, r.Block + blocks}, Content: content[:n]}
		s.record = b.appendTo(s.record[:0])
		if !s.all.wiring.Send(s.to, transport.Bulk, s.record) {
			return bytes, blocks
		}
		content, bytes, blocks = content[n:], bytes+int64(n), blocks+1
	}
	return bytes, blocks
}

// close releases what the transfer holds. The caller holds mu, and no piece is under way.
func (s *Sender) close() {
	if s.release != nil {
		s.release()
	}
	if s.reader != nil {
		_ = s.reader.Close() // it was only read
	}
	s.release, s.reader, s.manifest, s.parts, s.raw, s.record = nil, nil, nil, nil, nil, nil
}

// stop ends the present try, and releases what it holds.
func (s *Sender) stop(next senderStage) {
	s.stage = next
	if !s.running {
		s.close()
	}
	if next == sendingGone {
		s.all.out = slices.DeleteFunc(s.all.out, func(other *Sender) bool { return other == s })
	}
}

// Wait ends the present try and begins again in some ticks, with what there is then. If no core waits for it,
// the receiver asks again. It is called in Do.
func (s *Sender) Wait(ticks int64) {
	s.laterAt = s.all.at + ticks
	if s.core {
		s.stop(sendingWaits)
	} else {
		s.stop(sendingGone)
	}
}

// finish ends the transfer: the receiver has what it needs.
func (s *Sender) finish() {
	if s.bytes > 0 {
		s.class().counts.Sent++
		s.all.emit(s.content.Sent(s.to, s.bytes))
	}
	s.tellCore(raft.SnapshotFinish)
	s.stop(sendingGone)
}

// Fail ends the transfer, and tells the core in a while: it then begins another one, if the member needs it.
// It is called in Do.
func (s *Sender) Fail(cause string) {
	s.class().counts.Aborted++
	s.all.emit(s.content.Failed(s.to, s.bytes, cause))
	s.all.warn(topic{s.group.ID(), s.to, "fail"}, s.content.What()+" was not sent", "to", s.to, "content", s.content.Name(), "cause", cause)
	if !s.core {
		s.stop(sendingGone)
		return
	}
	s.laterAt = s.all.at + s.all.settings.Election
	s.stop(sendingFailed)
}

func (s *Sender) tellCore(status raft.SnapshotStatus) {
	if s.core {
		s.core = false
		s.group.SnapshotSent(s.to, status)
	}
}

func (s *Sender) beat() {
	t := s.all
	s.pace.pass(t.at, s.bytes, t.SlotTicks())
	leads := s.group.Leads()
	switch s.stage {
	case sendingWaits:
		if !leads {
			s.stop(sendingGone) // its core does not wait any more
		}
	case sendingFailed:
		if t.at >= s.laterAt {
			s.tellCore(raft.SnapshotFailure)
			s.stop(sendingGone)
		}
	case sendingBlocks:
		cause := s.content.RejectGoingOn()
		switch {
		case t.at-s.heardAt >= t.idleTicks():
			s.Fail(fmt.Sprintf("the receiver has been silent for %d ticks", t.at-s.heardAt))
		case cause != "":
			s.Fail(cause)
		case t.at-s.heardAt >= t.repeatTicks() && t.at-s.offeredAt >= t.repeatTicks():
			s.offer()
		}
		if s.stage == sendingBlocks && !s.queue.empty() {
			s.enqueue()
		}
	}
}

// Asked takes an ask. Any member that has the content answers, whether it has offered it or not.
func (t *Transfers) Asked(g Group, from uint64, a *Ask) {
	t.lock()
	defer t.unlock()
	s := t.senderOf(g, from, a.Hash)
	if s == nil {
		var why Why
		if s, why = t.answer(g, from, a.Hash); s == nil {
			t.SayEnd(g, from, a.Hash, why)
			return
		}
		s.begin()
	}
	if !s.queue.accept(a) {
		return // a copy, which is no sign of life; after a number that was too large all others look like one
	}
	s.heardAt = t.at
	if s.stage == sendingBlocks && !s.queue.empty() {
		s.enqueue()
	}
}

// answer returns a transfer that has not begun, for a content that a member asks for, or says why there is
// none.
func (t *Transfers) answer(g Group, to uint64, hash [32]byte) (s *Sender, why Why) {
	content := g.Content(hash)
	if content == nil {
		return nil, Absent
	}
	class := content.Class()
	if class.single {
		s = t.outgoingTo(g, to, class)
	}
	switch {
	case s != nil && s.IsActive():
		return nil, Absent
	case s != nil && s.running || !class.giveSendingSlot():
		return nil, SenderBusy
	case s == nil:
		return t.addSender(g, to, content), 0
	}
	s.content = content
	return s, 0
}

// Ended takes an end, of either side.
func (t *Transfers) Ended(g Group, from uint64, e End) {
	t.lock()
	defer t.unlock()
	if e.Why >= Absent {
		if r := t.ReceiverOf(g, e.Hash); r != nil && r.from == from {
			r.sourceFails(e.Why)
		}
		return
	}
	s := t.senderOf(g, from, e.Hash)
	if s == nil {
		return
	}
	switch e.Why {
	case Done:
		s.finish()
	case Busy, Other:
		s.Wait(t.settings.Election)
	default:
		s.Fail(e.Why.String())
	}
}

// Refuse ends the transfer: there is nothing to send. It is called in Do.
func (s *Sender) Refuse(why Why) {
	s.SayEnd(why)
	s.stop(sendingGone)
}

// SayEnd tells the receiver why the transfer ends. It is called in Do.
func (s *Sender) SayEnd(why Why) { s.all.SayEnd(s.group, s.to, s.content.Hash(), why) }

// String says for people how far the transfer is. It is called in Do.
func (s *Sender) String() string { return fmt.Sprintf("sends to %d in stage %d", s.to, s.stage) }
