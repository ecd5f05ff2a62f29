package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
)

// Snapshots travel between hosts in transfers (thesis §5.3). The core's message MsgSnap says only that a
// member needs one. The host keeps it, and offers its latest snapshot; the receiver asks for what it lacks,
// and steps MsgSnap into its own core when everything is on its disk and was checked (receiving.go,
// install.go).
//
//	sender                                     receiver
//	core sends MsgSnap: offer           ──►    asks for the manifest, then for the blocks that its disk lacks
//	reads and sends blocks              ◄──    ask, one window at a time (receivingWindow)
//	                                    ──►    writes, verifies, publishes, installs
//	tells its core                      ◄──    end
//
// A break costs nothing but time: the receiver asks again, also after a restart of either side, also another
// member that has the same snapshot. So a sender remembers nothing that it cannot lose.
//
// A host sends maxSendings snapshots at a time, and SnapshotBytesPerSecond in all. Others wait. The
// snapshot is not removed while it is sent, and the log behind it is kept, since the receiver needs it
// next; if that becomes too much (maxPinnedLog), the transfer ends with an event, and the log goes.
//
// Rejected: a stream that the sender pushes. It starts again from zero after each break, and it needs a
// second way to say what the receiver has already.
type transfers struct {
	host   *Host
	active atomic.Int32 // transfers: while there are any, the clock is not calm

	mu    sync.Mutex
	at    int64 // the tick of the latest beat, not missed, as of the last lock
	beats int64 // and of the last beat that was counted
	out   []*sending
	in    []*receiving

	snapshots, objects transferClass

	says   []said        // to send,
	events []event.Event // to emit,
	tells  []func()      // and to call when mu is released
}

// maxSendings and maxReceivings bound the transfers of snapshots of a host at a time, in each direction.
const (
	maxSendings   = 2
	maxReceivings = 2

	// maxObjectSendings and maxObjectReceivings bound those of objects.
	maxObjectSendings   = 8
	maxObjectReceivings = 4
)

// said is a control record for another host.
type said struct {
	to   uint64
	body []byte
}

// repeatTicks is how long a record goes unanswered before it is repeated, and idleTicks how long a transfer
// stands still before it ends.
func (t *transfers) repeatTicks() int64 { return 2 * ticksPerHeartbeat }

func (t *transfers) idleTicks() int64 { return 4 * int64(t.host.config.electionTicks()) }

func (t *transfers) init(h *Host) {
	t.host = h
	ticksPerSecond := 1 / h.config.tickPeriod().Seconds()
	t.snapshots = transferClass{all: t, maxSendings: maxSendings, maxReceivings: maxReceivings, rate: newSendingRate(h.config.SnapshotBytesPerSecond, ticksPerSecond)}
	t.objects = transferClass{all: t, maxSendings: maxObjectSendings, maxReceivings: maxObjectReceivings, rate: newSendingRate(h.config.ObjectBytesPerSecond, ticksPerSecond)}
}

// lock takes mu, and reads the clock.
func (t *transfers) lock() {
	t.mu.Lock()
	t.at = max(t.at, t.host.clock.livedAtBeat())
}

// unlock releases mu, then says, emits and calls what is waiting for that.
func (t *transfers) unlock() {
	says, events, tells := t.says, t.events, t.tells
	t.says, t.events, t.tells = nil, nil, nil
	was := t.active.Swap(int32(len(t.out) + len(t.in)))
	begins := was == 0 && len(t.out)+len(t.in) > 0
	t.mu.Unlock()
	if begins {
		t.host.clock.hasten()
	}
	for _, s := range says {
		t.host.transport.SendBytes(s.to, transport.Control, s.body)
	}
	for _, e := range events {
		t.host.events.emit(e)
	}
	for _, tell := range tells {
		tell()
	}
}

func (t *transfers) say(to uint64, body []byte) { t.says = append(t.says, said{to, body}) }

// emit emits an event when mu is released, unless it is nil.
func (t *transfers) emit(e event.Event) {
	if e != nil {
		t.events = append(t.events, e)
	}
}

func (t *transfers) sayEnd(g *Group, to uint64, hash [32]byte, why transferEnd) {
	t.say(to, snapshotEnd{group: g.id, hash: hash, why: why}.encode())
}

// beat is called at each beat of the host's clock, with the ticks that were not missed.
func (t *transfers) beat(now int64) {
	if t.active.Load() == 0 {
		return
	}
	t.lock()
	defer t.unlock()
	passed := min(now-t.beats, ticksPerHeartbeat) // it does not count while there is nothing to do
	t.beats = now
	t.snapshots.rate.advance(now)
	t.objects.rate.advance(now)
	for _, s := range slices.Clone(t.out) {
		s.beat()
	}
	t.beginWaiting()
	for _, r := range slices.Clone(t.in) {
		r.beat(passed)
	}
}

// takeSnapshotRecord takes a record about a snapshot.
func (h *Host) takeSnapshotRecord(from uint64, body []byte) error {
	switch body[0] {
	case control.SnapshotBlock:
		b, err := decodeSnapshotBlock(body)
		if err == nil {
			h.forPeer(from, b.group, func(g *Group) { h.transfers.arrived(g, from, &b) })
		}
		return err
	case control.SnapshotOffer:
		o, err := decodeSnapshotOffer(body)
		if err == nil {
			h.forPeer(from, o.group, func(g *Group) { h.transfers.offered(g, from, o) })
		}
		return err
	case control.SnapshotAsk:
		a, err := decodeSnapshotAsk(body)
		if err == nil {
			h.forMember(from, a.group, func(g *Group) { h.transfers.asked(g, from, &a) })
		}
		return err
	default: // the end
		e, err := decodeSnapshotEnd(body)
		if err == nil {
			h.forMember(from, e.group, func(g *Group) { h.transfers.ended(g, from, e) })
		}
		return err
	}
}

// forMember calls f for an open group that has from as another member.
func (h *Host) forMember(from, group uint64, f func(*Group)) {
	h.forPeer(from, group, func(g *Group) {
		if !g.isMember(from) {
			h.strays.Add(1)
			return
		}
		f(g)
	})
}

// forPeer calls f for an open group that does not refuse from. Whether from is a member is not asked: a
// receiver that is behind does not know those that came later.
func (h *Host) forPeer(from, group uint64, f func(*Group)) {
	g := h.groups.get(group)
	if g == nil || g.Err() != nil || from == g.self || g.leavesOutMember(from) {
		h.strays.Add(1)
		return
	}
	f(g)
}

// leavesOutMember reports whether the group does not hear a member: it comes with another directory.
func (g *Group) leavesOutMember(id uint64) bool {
	refused := g.refuses.Load()
	return refused != nil && slices.Contains(*refused, id)
}

// leave ends the transfers of a group that is closed.
func (t *transfers) leave(g *Group) {
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		if s.group == g {
			s.stop(sendingGone)
		}
	}
	for _, r := range slices.Clone(t.in) {
		if r.group == g {
			r.stop()
		}
	}
}

// stopSendingTo ends the transfers to a host that comes with another directory: the numbers of its asks begin
// again, with that.
func (t *transfers) stopSendingTo(member uint64) {
	if t.active.Load() == 0 {
		return
	}
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		if s.to == member {
			s.stop(sendingGone)
		}
	}
}

// closeAll releases all files, when no lane runs any more.
func (t *transfers) closeAll() {
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		s.running = false
		s.stop(sendingGone)
	}
	for _, r := range slices.Clone(t.in) {
		r.stop()
	}
}

// countUnwanted counts a block that was not asked for. r is the transfer that it names; if that is nil it
// counts among those of snapshots.
func (t *transfers) countUnwanted(r *receiving) {
	class := &t.snapshots
	if r != nil {
		class = r.class()
	}
	class.counts.Unwanted++
}

// metrics returns what is counted of a class.
func (t *transfers) metrics(class *transferClass) TransferMetrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	return class.metrics()
}
