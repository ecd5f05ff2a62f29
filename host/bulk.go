package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// This file wires package bulk: what it knows of a host and of a group, and who tells it what.

// maxSendings and maxReceivings bound the transfers of snapshots of a host at a time, in each direction.
const (
	maxSendings   = 2
	maxReceivings = 2

	// maxObjectSendings and maxObjectReceivings bound those of objects.
	maxObjectSendings   = 8
	maxObjectReceivings = 4
)

func (t *transfers) init(h *Host) {
	t.Init(bulk.Settings{
		Self: h.config.ID, Heartbeat: ticksPerHeartbeat, Election: int64(h.config.electionTicks()),
		TicksPerSecond: 1 / h.config.tickPeriod().Seconds(),
	}, (*bulkHost)(h))
	t.snapshots = t.NewClass(maxSendings, maxReceivings, h.config.SnapshotBytesPerSecond, true)
	t.objects = objects.Fetches{Transfers: &t.Transfers, Class: t.NewClass(maxObjectSendings, maxObjectReceivings, h.config.ObjectBytesPerSecond, false)}
}

// bulkHost implements bulk.Wiring.
type bulkHost Host

func (h *bulkHost) Now() int64         { return h.clock.awakeAtBeat() }
func (h *bulkHost) Hasten()            { h.clock.hasten() }
func (h *bulkHost) Emit(e event.Event) { h.reports.events.Emit(e) }
func (h *bulkHost) Number() uint64     { return (*Host)(h).nextFrame() }

func (h *bulkHost) Send(to uint64, kind transport.Kind, body []byte) bool {
	return h.network.transport.SendBytes(to, kind, body)
}

func (h *bulkHost) Warn(text string, args ...any) { h.env.logger.Warn(text, args...) }

func (h *bulkHost) Work(g bulk.Group, doing string, piece func() (more bool)) (enqueue func()) {
	w := &snapshots.Work{Seat: &g.(*bulkGroup).snapshots.Seat, Doing: doing, Piece: piece}
	return func() { h.bulk.snapshotLanes.Enqueue(w) }
}

// bulkGroup implements bulk.Group.
type bulkGroup Group

func (g *bulkGroup) ID() uint64  { return g.id }
func (g *bulkGroup) Leads() bool { return g.life.status.leads.Load() }

func (g *bulkGroup) Content(hash [32]byte) bulk.SentContent {
	if c := g.snapshots.Content(hash); c != nil {
		return c
	}
	return g.machine.objects.Sent(hash)
}

func (g *bulkGroup) SnapshotSent(to uint64, status raft.SnapshotStatus) {
	g.inbox.enqueueSnapshotStatus(snapshotStatus{to, status})
	(*Group)(g).wake()
}

// receiveSnapshotRecord receives a record about a snapshot.
func (h *Host) receiveSnapshotRecord(from uint64, body []byte) error {
	switch body[0] {
	case control.SnapshotBlock:
		b, err := bulk.DecodeBlock(body)
		if err == nil {
			h.forPeer(from, b.Group, func(g *Group) { h.bulk.transfers.Arrived((*bulkGroup)(g), from, &b) })
		}
		return err
	case control.SnapshotOffer:
		o, err := bulk.DecodeOffer(body)
		if err == nil {
			h.forPeer(from, o.Group, func(g *Group) { g.snapshots.Offer(from, o) })
		}
		return err
	case control.SnapshotAsk:
		a, err := bulk.DecodeAsk(body)
		if err == nil {
			h.forMember(from, a.Group, func(g *Group) { h.bulk.transfers.Asked((*bulkGroup)(g), from, &a) })
		}
		return err
	default: // the end
		e, err := bulk.DecodeEnd(body)
		if err == nil {
			h.forMember(from, e.Group, func(g *Group) { h.bulk.transfers.Ended((*bulkGroup)(g), from, e) })
		}
		return err
	}
}

// forMember calls f for an open group that has from as another member.
func (h *Host) forMember(from, group uint64, f func(*Group)) {
	h.forPeer(from, group, func(g *Group) {
		if !g.members.Has(from) {
			h.network.strays.Add(1)
			return
		}
		f(g)
	})
}

// forPeer calls f for an open group that does not refuse from. Whether from is a member is not asked: a
// receiver that is behind does not know those that came later.
func (h *Host) forPeer(from, group uint64, f func(*Group)) {
	g := h.groups.get(group)
	if g == nil || g.Err() != nil || from == g.self || g.members.Excludes(from) {
		h.network.strays.Add(1)
		return
	}
	f(g)
}
