package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
)

const (
	// minPinnedLog is how much log is kept for a transfer at least, in bytes, however small the snapshot is.
	minPinnedLog = 1 << 30
	// readBlocks bounds one piece of a sender's work, in blocks.
	readBlocks = 4
)

// sending is one content that is sent to one member, or waits for it.
type sending struct {
	all     *transfers
	group   *Group
	to      uint64
	work    laneWork
	content sentContent // changes only while nothing is under way

	// Guarded by transfers.mu.
	stage     sendingStage
	core      bool   // the core of the group awaits the outcome
	release   func() // of what the receiver needs next, or nil
	queue     sendingQueue
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

type sendingStage int

const (
	sendingWaits  sendingStage = iota // until the host may send one more, or laterAt
	sendingOpens                      // it opens the content
	sendingBlocks                     // it has offered it, and sends what it is asked for
	sendingFailed                     // and the core is told at laterAt
	sendingGone
)

func (s *sending) isActive() bool { return s.stage == sendingOpens || s.stage == sendingBlocks }

// outgoingTo returns the transfer of a snapshot to a member, or nil.
func (t *transfers) outgoingTo(g *Group, to uint64) *sending {
	for _, s := range t.out {
		if s.group == g && s.to == to && s.class() == &t.snapshots {
			return s
		}
	}
	return nil
}

// sendingOf returns the active transfer to a member of the content with this hash, or nil.
func (t *transfers) sendingOf(g *Group, to uint64, hash [32]byte) *sending {
	for _, s := range t.out {
		if s.group == g && s.to == to && s.isActive() && s.content.hash() == hash {
			return s
		}
	}
	return nil
}

func (s *sending) class() *transferClass { return s.content.class() }

func (t *transfers) addSending(g *Group, to uint64, content sentContent) *sending {
	s := &sending{all: t, group: g, to: to, content: content}
	s.work = laneWork{group: g, doing: fmt.Sprintf("which sends %s to host %d", content.what(), to), piece: s.piece}
	t.out = append(t.out, s)
	return s
}

// send sends the latest snapshot of a group to a member: its core has asked for it. It never blocks. The
// core is told how it ended (inbox.putSnapshotStatus).
func (t *transfers) send(g *Group, to uint64) {
	t.lock()
	defer t.unlock()
	s := t.outgoingTo(g, to)
	if s == nil {
		s = t.addSending(g, to, &sentSnapshot{group: g})
	}
	s.core = true
	if s.stage == sendingFailed {
		s.stage = sendingWaits // and it still waits until laterAt
	}
	t.beginWaiting()
}

// beginWaiting begins the transfers that wait, as far as the host may send.
func (t *transfers) beginWaiting() {
	for _, s := range slices.Clone(t.out) {
		if s.stage != sendingWaits || t.at < s.laterAt || s.running {
			continue
		}
		if s.content.renew() && s.class().giveSendingSlot() {
			s.begin()
		}
	}
}

func (s *sending) begin() {
	s.stage, s.heardAt, s.bytes, s.size = sendingOpens, s.all.at, 0, 0
	s.pace = pace{at: s.all.at}
	s.queue = sendingQueue{}
	s.release = s.content.begins()
	s.enqueue()
}

func (s *sending) enqueue() { s.group.host.snapshotLanes.enqueue(&s.work) }

// piece is one piece of work on a snapshot lane: it opens the content, or reads and sends a few blocks.
func (s *sending) piece() (more bool) {
	t := s.all
	t.lock()
	defer t.unlock()
	s.running = true
	defer func() {
		s.running = false
		if !s.isActive() {
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
func (s *sending) open() (more bool) {
	t := s.all
	t.mu.Unlock()
	m, reader, err := s.content.open()
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
		s.content.notOpened(s, err)
		return false
	}
	s.stage, s.heardAt, s.size = sendingBlocks, t.at, m.Bytes()
	s.offer()
	return !s.queue.empty()
}

// offer tells the receiver what there is, unless it has asked for it by itself.
func (s *sending) offer() {
	s.offeredAt = s.all.at
	if s.core {
		s.all.say(s.to, s.content.offer(int64(len(s.manifest))))
	}
}

// sendSome sends a few of the blocks that were asked for, if the rate allows it.
func (s *sending) sendSome() (more bool) {
	t := s.all
	class := s.class()
	r, ok := s.queue.next(min(class.rate.blocks(), readBlocks))
	if !ok {
		return false // a beat enqueues it again
	}
	asks, bytes := s.queue.last, r.blocks*snapshotBlockBytes
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
		t.sayEnd(s.group, s.to, s.content.hash(), endUnreadable)
		s.content.unreadable()
		s.fail(fmt.Sprintf("it cannot be read: %v", err))
		return false
	case sent < int64(len(content)):
		s.queue.putBack(blockRange{r.part, r.block + whole, r.blocks - whole}, asks)
		return false // the transport is full: a beat enqueues it again
	}
	return !s.queue.empty()
}

// read reads blocks. What does not exist is left out: only a peer that breaks the rules asks for it.
func (s *sending) read(r blockRange) (content []byte, err error) {
	if r.part == manifestPart {
		lo := min(r.block*snapshotBlockBytes, int64(len(s.manifest)))
		return s.manifest[lo:min(lo+r.blocks*snapshotBlockBytes, int64(len(s.manifest)))], nil
	}
	if r.part >= len(s.parts) || r.block*snapshotBlockBytes >= s.parts[r.part].Bytes {
		return nil, nil
	}
	s.raw, err = s.reader.AppendBlocks(s.raw[:0], r.part, r.block, int(r.blocks*snapshotBlockBytes))
	return s.raw, err
}

// sendBlocks sends content as blocks, until the transport is full. It returns how many bytes it took, and how
// many blocks.
func (s *sending) sendBlocks(r blockRange, content []byte) (bytes, blocks int64) {
	for len(content) > 0 {
		n := min(len(content), snapshotBlockBytes)
		b := snapshotBlock{group: s.group.id, hash: s.content.hash(), at: blockAt{r.part, r.block + blocks}, content: content[:n]}
		s.record = b.appendTo(s.record[:0])
		if !s.group.host.transport.SendBytes(s.to, transport.Bulk, s.record) {
			return bytes, blocks
		}
		content, bytes, blocks = content[n:], bytes+int64(n), blocks+1
	}
	return bytes, blocks
}

// close releases what the transfer holds. The caller holds mu, and no piece is under way.
func (s *sending) close() {
	if s.release != nil {
		s.release()
	}
	if s.reader != nil {
		_ = s.reader.Close() // it was only read
	}
	s.release, s.reader, s.manifest, s.parts, s.raw, s.record = nil, nil, nil, nil, nil, nil
}

// stop ends the present try, and releases what it holds.
func (s *sending) stop(next sendingStage) {
	s.stage = next
	if !s.running {
		s.close()
	}
	if next == sendingGone {
		s.all.out = slices.DeleteFunc(s.all.out, func(other *sending) bool { return other == s })
	}
}

// wait ends the present try and begins again in some ticks, with what there is then. If no core waits for it,
// the receiver asks again.
func (s *sending) wait(ticks int64) {
	s.laterAt = s.all.at + ticks
	if s.core {
		s.stop(sendingWaits)
	} else {
		s.stop(sendingGone)
	}
}

// finish ends the transfer: the receiver has what it needs.
func (s *sending) finish() {
	if s.bytes > 0 {
		s.class().counts.Sent++
		s.all.emit(s.content.sent(s.to, s.bytes))
	}
	s.tellCore(raft.SnapshotFinish)
	s.stop(sendingGone)
}

// fail ends the transfer, and tells the core in a while: it then begins another one, if the member needs it.
func (s *sending) fail(cause string) {
	s.class().counts.Aborted++
	s.all.emit(s.content.failed(s.to, s.bytes, cause))
	s.group.host.env.logger.Warn(s.content.what()+" was not sent", "group", s.group.id, "host", s.group.self, "to", s.to, "content", s.content.name(), "cause", cause)
	if !s.core {
		s.stop(sendingGone)
		return
	}
	s.laterAt = s.all.at + int64(s.all.host.config.electionTicks())
	s.stop(sendingFailed)
}

func (s *sending) tellCore(status raft.SnapshotStatus) {
	if s.core {
		s.core = false
		s.group.inbox.putSnapshotStatus(snapshotStatus{s.to, status})
		s.group.wake()
	}
}

func (s *sending) beat() {
	t := s.all
	s.pace.pass(t.at, s.bytes, t.slotTicks())
	leads := s.group.status.Load().Role == RoleLeader
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
		cause := s.content.rejectGoingOn()
		switch {
		case t.at-s.heardAt >= t.idleTicks():
			s.fail(fmt.Sprintf("the receiver has been silent for %d ticks", t.at-s.heardAt))
		case cause != "":
			s.fail(cause)
		case t.at-s.heardAt >= t.repeatTicks() && t.at-s.offeredAt >= t.repeatTicks():
			s.offer()
		}
		if s.stage == sendingBlocks && !s.queue.empty() {
			s.enqueue()
		}
	}
}

// asked takes an ask. Any member that has the content answers, whether it has offered it or not.
func (t *transfers) asked(g *Group, from uint64, a *snapshotAsk) {
	t.lock()
	defer t.unlock()
	s := t.sendingOf(g, from, a.hash)
	if s == nil {
		var why transferEnd
		if s, why = t.answer(g, from, a.hash); s == nil {
			t.sayEnd(g, from, a.hash, why)
			return
		}
		s.begin()
	}
	if !s.queue.take(a) {
		return // a copy, which is no sign of life; after a number that was too large all others look like one
	}
	s.heardAt = t.at
	if s.stage == sendingBlocks && !s.queue.empty() {
		s.enqueue()
	}
}

// answer returns a transfer that has not begun, for a content that a member asks for, or says why there is
// none.
func (t *transfers) answer(g *Group, to uint64, hash [32]byte) (s *sending, why transferEnd) {
	if p := g.snapshots.latest(); p != nil && p.hash == hash {
		return t.answerSnapshot(g, to, p)
	}
	switch {
	case g.objects.files == nil:
		return nil, endAbsent
	case !t.objects.giveSendingSlot():
		return nil, endSenderBusy
	}
	return t.addSending(g, to, &sentObject{group: g, of: hash}), 0
}

// ended takes an end, of either side.
func (t *transfers) ended(g *Group, from uint64, e snapshotEnd) {
	t.lock()
	defer t.unlock()
	if e.why >= endAbsent {
		if r := t.receivingOf(g, e.hash); r != nil && r.from == from {
			r.sourceFails(e.why)
		}
		return
	}
	s := t.sendingOf(g, from, e.hash)
	if s == nil {
		return
	}
	switch e.why {
	case endDone:
		s.finish()
	case endBusy, endOther:
		s.wait(int64(t.host.config.electionTicks()))
	default:
		s.fail(e.why.String())
	}
}

// snapshotStatus is how a transfer to a member has ended, for the core.
type snapshotStatus struct {
	member uint64
	status raft.SnapshotStatus
}

// keepSnapshots takes the messages about snapshots out of what the core sends: the host carries them out.
func (g *Group) keepSnapshots(messages []raftpb.Message) (others []raftpb.Message) {
	if !slices.ContainsFunc(messages, isSnapshotMessage) {
		return messages
	}
	for i := range messages {
		if m := &messages[i]; isSnapshotMessage(*m) {
			g.host.transfers.send(g, m.To)
		} else {
			others = append(others, *m)
		}
	}
	return others
}

func isSnapshotMessage(m raftpb.Message) bool { return m.Type == raftpb.MsgSnap }
