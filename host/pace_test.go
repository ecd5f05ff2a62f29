package host

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// An offer of a member that does not lead is not taken.
func TestOnlyTheLeaderOffersSnapshots(t *testing.T) {
	b := newBesieged(t, 6, nil)
	for _, h := range b.honest() {
		o := bulk.Offer{Group: theGroup, Index: h.group.Status().Committed + 100, Term: h.group.Status().Term, FirstIndex: 1, ManifestBytes: 1 << 20}
		(*h.receiver).Deliver(theLiar, transport.Control, o.Encode())
		if n := len(h.process.bulk.transfers.In()); n != 0 {
			t.Errorf("host %d receives %d snapshots", h.id, n)
		}
	}
}

// A liar leads two other groups, offers snapshots of them, and sends a block now and then: it takes both
// slots, and keeps them until a third group needs one.
func TestSlowTransfersKeepNoSlot(t *testing.T) {
	b := newBesieged(t, 7, nil)
	h := b.hosts[2-b.leader().id] // the follower
	send := func(group uint64, m raftpb.Message) {
		m.From, m.To, m.Term = theLiar, h.id, 50
		(*h.receiver).Receive(theLiar, []transport.Envelope{{Group: group, Message: m}})
	}
	for group := uint64(2); group <= 3; group++ {
		if _, err := h.process.OpenGroup(context.Background(), GroupConfig{ID: group, Snapshots: SnapshotPolicy{LogBytes: 1 << 20}}, Commands(&slots{}, statemachine.CommandOptions{})); err != nil {
			t.Fatal(err)
		}
		send(group, raftpb.Message{Type: raftpb.MsgHeartbeat})
		h.manual.runIdle()
		o := bulk.Offer{Group: group, Index: 1000, Term: 50, FirstIndex: 1, ManifestBytes: bulk.MaxManifest}
		(*h.receiver).Deliver(theLiar, transport.Control, o.Encode())
	}
	transfers := &h.process.bulk.transfers
	receives := func() (n int) {
		for _, r := range transfers.In() {
			if r.HasSlot() {
				n++
			}
		}
		return n
	}
	if n := receives(); n != maxReceivings {
		t.Fatalf("setup: it receives %d snapshots", n)
	}
	if m := transfers.Counts(transfers.snapshots); m.Receiving != maxReceivings || m.Sending != 0 {
		t.Errorf("it receives %d snapshots, and counts %d, and %d that it sends", maxReceivings, m.Receiving, m.Sending)
	}
	ticks := int(transfers.SlotTicks())
	for i := range 3 * ticks {
		for group := uint64(2); group <= 3; group++ {
			send(group, raftpb.Message{Type: raftpb.MsgHeartbeat})
			if i%100 == 0 {
				k := bulk.Block{Group: group, At: bulk.Place{Part: bulk.ManifestPart, Block: int64(i / 100 % 256)}, Content: make([]byte, bulk.BlockBytes)}
				(*h.receiver).Deliver(theLiar, transport.Bulk, k.Encode())
			}
		}
		b.tick()
		if i < ticks && receives() != maxReceivings {
			t.Fatalf("setup: after %d ticks it receives %d snapshots", i, receives())
		}
		s := h.group.Status()
		o := bulk.Offer{Group: theGroup, Index: s.Committed + 100, Term: s.Term, FirstIndex: 1, ManifestBytes: 1 << 20, Hash: [32]byte{1}}
		(*h.receiver).Deliver(s.Leader, transport.Control, o.Encode())
		if r, _ := h.group.snapshots.Incoming(); r != nil {
			t.Logf("after %d ticks, of which a transfer keeps its slot for %d", i, ticks)
			return
		}
	}
	t.Fatalf("the third group got no slot in %d ticks: %s", 3*ticks, b.describe())
}

// Two liars ask for a snapshot, and then say now and then that they are at work: they take both slots for
// sending, and keep them until a member needs one.
func TestSilentReceiversKeepNoSlot(t *testing.T) {
	b := newBesieged(t, 8, nil)
	l := b.leader()
	l.group.StartSnapshot()
	b.load("a snapshot is taken", 1, func() bool { return l.group.snapshots.Latest() != nil })
	transfers, latest := &l.process.bulk.transfers, l.group.snapshots.Latest()
	ticks := int(transfers.SlotTicks())
	for i := range 3 * ticks {
		for liar := uint64(theLiar); i%100 == 0 && liar <= theLiar+1; liar++ {
			transfers.Asked((*bulkGroup)(l.group), liar, &bulk.Ask{Group: theGroup, Hash: latest.Hash, Number: uint64(i + 1)})
		}
		b.tick()
		if i == 100 && transfers.Counts(transfers.snapshots).Sending != maxSendings {
			t.Fatalf("setup: it sends %d snapshots: %s", transfers.Counts(transfers.snapshots).Sending, b.describe())
		}
		if i == 200 {
			l.group.snapshots.Send(3 - l.id)
		}
		out := transfers.Out()
		at := slices.IndexFunc(out, func(s *bulk.Sender) bool { return s.To() == 3-l.id })
		if i > 200 && (at < 0 || out[at].IsActive()) { // or it has ended: the member needs none
			t.Logf("after %d ticks, of which a transfer keeps its slot for %d", i, ticks)
			return
		}
	}
	t.Fatalf("the member got no slot in %d ticks: %s", 3*ticks, b.describe())
}
