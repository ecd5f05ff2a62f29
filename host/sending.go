package host

import (
	"errors"
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

// sending is one snapshot that is sent to one member, or waits for it.
type sending struct {
	all   *transfers
	group *Group
	to    uint64
	work  laneWork

	// Guarded by transfers.mu.
	stage     sendingStage
	core      bool // the core of the group awaits the outcome
	published *publishedSnapshot
	release   func() // of the log behind it
	queue     sendingQueue
	heardAt   int64 // tick at which the receiver was heard, or the stage began
	offeredAt int64
	laterAt   int64 // not before this tick: the stage is sendingWaits or sendingFailed
	bytes     int64 // of blocks that were sent
	pace      pace
	running   bool // a piece of work is under way: it closes the reader
	manifest  []byte
	reader    *snapshot.Reader
}

type sendingStage int

const (
	sendingWaits  sendingStage = iota // until the host may send one more, or laterAt
	sendingOpens                      // it opens the snapshot
	sendingBlocks                     // it has offered it, and sends what it is asked for
	sendingFailed                     // and the core is told at laterAt
	sendingGone
)

func (s *sending) isActive() bool { return s.stage == sendingOpens || s.stage == sendingBlocks }

// outgoingTo returns the transfer to a member, or nil.
func (t *transfers) outgoingTo(g *Group, to uint64) *sending {
	for _, s := range t.out {
		if s.group == g && s.to == to {
			return s
		}
	}
	return nil
}

func (t *transfers) add(g *Group, to uint64) *sending {
	s := &sending{all: t, group: g, to: to}
	s.work = laneWork{group: g, doing: fmt.Sprintf("which sends a snapshot to host %d", to), piece: s.piece}
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
		s = t.add(g, to)
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
		if p := s.group.snapshots.latest(); p != nil && (t.maySend() || t.endSlowSending()) {
			s.begin(p)
		}
	}
}

func (t *transfers) maySend() bool {
	n := 0
	for _, s := range t.out {
		if s.isActive() {
			n++
		}
	}
	return n < maxSendings
}

func (s *sending) begin(p *publishedSnapshot) {
	s.stage, s.published, s.heardAt, s.bytes = sendingOpens, p, s.all.at, 0
	s.pace = pace{at: s.all.at}
	s.queue = sendingQueue{}
	s.release = s.group.snapshots.pinLog(p.id.Index)
	s.enqueue()
}

func (s *sending) enqueue() { s.group.host.snapshotLanes.enqueue(&s.work) }

// piece is one piece of work on a snapshot lane: it opens the snapshot, or reads and sends a few blocks.
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

// open opens the snapshot and offers it. The lock is not held while the disk works.
func (s *sending) open() (more bool) {
	t, p := s.all, s.published
	t.mu.Unlock()
	var reader *snapshot.Reader
	manifest, err := p.manifest.Append(nil)
	if err == nil {
		var store *snapshot.Store
		if store, err = s.group.snapshots.store(); err == nil {
			reader, err = store.Open(p.id)
		}
	}
	t.lock()
	s.reader, s.manifest = reader, manifest
	switch {
	case s.stage != sendingOpens:
		return false
	case errors.Is(err, snapshot.ErrNotFound) && s.group.snapshots.latest() != p:
		s.wait(0) // a later one has taken its place
		return false
	case err != nil:
		s.fail(fmt.Sprintf("it cannot be opened: %v", err))
		return false
	}
	s.stage, s.heardAt = sendingBlocks, t.at
	s.offer()
	return !s.queue.empty()
}

// offer tells the receiver what there is, unless it has asked for it by itself.
func (s *sending) offer() {
	s.offeredAt = s.all.at
	if !s.core {
		return
	}
	p := s.published
	s.all.say(s.to, snapshotOffer{group: s.group.id, index: p.id.Index, term: p.id.Term, firstIndex: s.group.storage.log.FirstIndex(),
		manifestBytes: int64(len(s.manifest)), hash: p.hash}.encode())
}

// sendSome sends a few of the blocks that were asked for, if the rate allows it.
func (s *sending) sendSome() (more bool) {
	t := s.all
	r, ok := s.queue.next(min(t.rate.blocks(), readBlocks))
	if !ok {
		return false // a beat enqueues it again
	}
	asks, bytes := s.queue.last, r.blocks*snapshotBlockBytes
	t.rate.spend(bytes)
	t.mu.Unlock()
	content, err := s.read(r)
	sent, whole := s.sendBlocks(r, content)
	t.lock()
	s.bytes += sent
	t.counts.BytesSent += uint64(sent)
	t.rate.spend(sent - bytes)
	switch {
	case s.stage != sendingBlocks:
		return false
	case err != nil:
		t.sayEnd(s.group, s.to, s.published.hash, endUnreadable)
		s.group.snapshots.want()
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
	if r.part >= len(s.published.manifest.Parts) || r.block*snapshotBlockBytes >= s.published.manifest.Parts[r.part].Bytes {
		return nil, nil
	}
	return s.reader.ReadBlocks(r.part, r.block, int(r.blocks*snapshotBlockBytes))
}

// sendBlocks sends content as blocks, until the transport is full. It returns how many bytes it took, and how
// many blocks.
func (s *sending) sendBlocks(r blockRange, content []byte) (bytes, blocks int64) {
	for len(content) > 0 {
		n := min(len(content), snapshotBlockBytes)
		b := snapshotBlock{group: s.group.id, hash: s.published.hash, at: blockAt{r.part, r.block + blocks}, content: content[:n]}
		if !s.group.host.transport.SendBytes(s.to, transport.Bulk, b.encode()) {
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
	s.release, s.reader, s.manifest = nil, nil, nil
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

// wait ends the present try and begins again in some ticks, with the snapshot that is the latest then.
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
		s.all.counts.Sent++
		s.all.events = append(s.all.events, SnapshotSent{Group: s.group.id, Member: s.to, Index: s.published.id.Index, Bytes: s.bytes})
	}
	s.tellCore(raft.SnapshotFinish)
	s.stop(sendingGone)
}

// fail ends the transfer, and tells the core in a while: it then begins another one, if the member needs it.
func (s *sending) fail(cause string) {
	p := s.published
	s.all.counts.Aborted++
	s.all.events = append(s.all.events, SnapshotTransferAborted{Group: s.group.id, Member: s.to, Index: p.id.Index, Bytes: s.bytes, Cause: cause})
	s.group.host.env.logger.Warn("a snapshot was not sent", "group", s.group.id, "host", s.group.self, "to", s.to, "snapshot", p.id.String(), "cause", cause)
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
	leads := s.group.status.Load().Role == raft.StateLeader
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
		pinned, most := s.group.snapshots.bytesSince(s.published.id.Index), max(minPinnedLog, 4*s.published.bytes)
		switch {
		case t.at-s.heardAt >= t.idleTicks():
			s.fail(fmt.Sprintf("the receiver has been silent for %d ticks", t.at-s.heardAt))
		case pinned > most:
			s.fail(fmt.Sprintf("the log that is kept for it has grown to %d bytes, want at most %d", pinned, most))
		case t.at-s.heardAt >= t.repeatTicks() && t.at-s.offeredAt >= t.repeatTicks():
			s.offer()
		}
		if s.stage == sendingBlocks && !s.queue.empty() {
			s.enqueue()
		}
	}
}

// asked takes an ask. Any member that has the snapshot answers, whether it has offered it or not.
func (t *transfers) asked(g *Group, from uint64, a *snapshotAsk) {
	t.lock()
	defer t.unlock()
	s := t.outgoingTo(g, from)
	if s == nil || !s.isActive() || s.published.hash != a.hash {
		p := g.snapshots.latest()
		switch {
		case p == nil || p.hash != a.hash || s != nil && s.isActive():
			t.sayEnd(g, from, a.hash, endAbsent)
			return
		case s != nil && s.running || !t.maySend() && !t.endSlowSending():
			t.sayEnd(g, from, a.hash, endSenderBusy)
			return
		}
		if s == nil {
			s = t.add(g, from)
		}
		s.begin(p)
	}
	if !s.queue.take(a) {
		return // a copy, which is no sign of life; after a number that was too large all others look like one
	}
	s.heardAt = t.at
	if s.stage == sendingBlocks && !s.queue.empty() {
		s.enqueue()
	}
}

// ended takes an end, of either side.
func (t *transfers) ended(g *Group, from uint64, e snapshotEnd) {
	t.lock()
	defer t.unlock()
	if e.why >= endAbsent {
		if r := t.incoming(g); r != nil && r.offer.hash == e.hash && r.from == from {
			r.sourceFails(e.why.String())
		}
		return
	}
	s := t.outgoingTo(g, from)
	if s == nil || !s.isActive() || s.published.hash != e.hash {
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
