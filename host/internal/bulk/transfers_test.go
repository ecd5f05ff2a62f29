package bulk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// node is a host of one group, with the transfers of one class. It has no clock, no lanes and no network: the
// test moves what leaves it.
type node struct {
	Transfers
	t     *testing.T
	id    uint64
	class *Class
	store *snapshot.Store
	now   int64

	sent    []sent
	work    []func() bool // pieces that a lane must run
	events  []event.Event
	lines   []string // of the log
	hastens int
	numbers uint64
	core    []raft.SnapshotStatus
	whole   []uint64 // indexes of what has arrived
	lost    int      // the content was nowhere
	lasts   bool
}

type sent struct {
	to   uint64
	body []byte
}

func newNode(t *testing.T, id uint64) *node {
	n := &node{t: t, id: id}
	n.Init(Settings{Self: id, Heartbeat: 4, Election: 40, TicksPerSecond: 40}, n)
	n.class = n.NewClass(1, 1, 1<<30, true)
	var err error
	if n.store, err = snapshot.OpenStore(crashfs.New(), "/snapshots"); err != nil {
		t.Fatal(err)
	}
	return n
}

// publish makes a snapshot with these bytes, and returns the hash of its manifest.
func (n *node) publish(index uint64, content []byte) [32]byte {
	n.t.Helper()
	w, err := n.store.Create(snapshot.ID{Index: index, Term: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	s, err := w.Stream(snapshot.KindMachine, "state")
	if err == nil {
		_, err = io.Copy(s, bytes.NewReader(content))
	}
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		err = w.SyncParts()
	}
	if err == nil {
		err = w.Publish(snapshot.Manifest{Group: 7, Index: index, Term: 1, Conf: raftpb.ConfState{Voters: []uint64{1}}, Host: []byte("host")})
	}
	if err != nil {
		n.t.Fatal(err)
	}
	m, err := n.store.Manifest(snapshot.ID{Index: index, Term: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	return m.Hash()
}

// Wiring.
func (n *node) Now() int64         { return n.now }
func (n *node) Hasten()            { n.hastens++ }
func (n *node) Emit(e event.Event) { n.events = append(n.events, e) }
func (n *node) Warn(text string, args ...any) {
	n.lines = append(n.lines, fmt.Sprint(append([]any{text, " "}, args...)...))
}
func (n *node) Number() uint64 { n.numbers++; return n.numbers }

func (n *node) Send(to uint64, _ transport.Kind, body []byte) bool {
	n.sent = append(n.sent, sent{to, slices.Clone(body)})
	return true
}

func (n *node) Work(_ Group, _ string, piece func() bool) func() {
	return func() { n.work = append(n.work, piece) }
}

// Group.
func (n *node) ID() uint64  { return 7 }
func (n *node) Leads() bool { return n.id == 1 }

func (n *node) Content(hash [32]byte) SentContent {
	for _, id := range n.store.List() {
		if m, err := n.store.Manifest(id); err == nil && m.Hash() == hash {
			return &content{n: n, m: m}
		}
	}
	return nil
}

func (n *node) SnapshotSent(_ uint64, status raft.SnapshotStatus) { n.core = append(n.core, status) }

// content is a snapshot, of both sides.
type content struct {
	n *node
	m snapshot.Manifest
}

func (c *content) Class() *Class                                         { return c.n.class }
func (c *content) What() string                                          { return "a snapshot" }
func (c *content) Name() string                                          { return c.m.ID().String() }
func (c *content) Hash() [32]byte                                        { return c.m.Hash() }
func (c *content) Renew() bool                                           { return true }
func (c *content) Begins() (release func())                              { return nil }
func (c *content) NotOpened(s *Sender, err error)                        { s.Fail(err.Error()) }
func (c *content) RejectGoingOn() string                                 { return "" }
func (c *content) Unreadable()                                           {}
func (c *content) Inspect() (m snapshot.Manifest, found bool, err error) { return m, false, nil }
func (c *content) RejectManifest(*snapshot.Manifest) error               { return nil }
func (c *content) RejectWrite() error                                    { return nil }
func (c *content) Lasts() bool                                           { return c.n.lasts }
func (c *content) IsUseless() bool                                       { return false }
func (c *content) Released(*Receiver)                                    {}
func (c *content) Sources() []uint64                                     { return []uint64{1, 3} }

func (c *content) Open() (snapshot.Manifest, *snapshot.Reader, error) {
	r, err := c.n.store.Open(c.m.ID())
	return c.m, r, err
}

func (c *content) Offer(manifestBytes int64) []byte {
	return Offer{Group: 7, Index: c.m.Index, Term: c.m.Term, FirstIndex: 1, ManifestBytes: manifestBytes, Hash: c.m.Hash()}.Encode()
}

func (c *content) Receive(m snapshot.Manifest) (*snapshot.Receiver, error) {
	return c.n.store.Receive(context.Background(), m)
}

func (c *content) Whole(r *Receiver) {
	r.SayDone()
	r.Tell(func() {
		if !c.n.mu.TryLock() {
			c.n.t.Error("a function is called under the lock of the transfers")
			return
		}
		c.n.mu.Unlock()
		c.n.whole = append(c.n.whole, r.Manifest().Index)
	})
	r.Stop()
}

func (c *content) Nowhere(r *Receiver) { r.Tell(func() { c.n.lost++ }) }

func (c *content) Sent(to uint64, bytes int64) event.Event {
	return event.SnapshotSent{Group: 7, Member: to, Bytes: bytes}
}

func (c *content) Received(from uint64, bytes int64) event.Event {
	return event.SnapshotReceived{Group: 7, From: from, Bytes: bytes}
}

func (c *content) Failed(member uint64, bytes int64, cause string) event.Event {
	return event.SnapshotTransferAborted{Group: 7, Member: member, Bytes: bytes, Cause: cause}
}

// take takes a record from another node.
func (n *node) take(from uint64, body []byte) {
	n.t.Helper()
	var err error
	switch body[0] {
	case control.SnapshotOffer:
		var o Offer
		if o, err = DecodeOffer(body); err == nil {
			n.Do(func() {
				if r := n.ReceiverOf(n, o.Hash); r != nil {
					r.Offered(from)
				} else if n.class.GiveReceivingSlot() {
					n.Receive(n, from, o.Hash, o.ManifestBytes, &content{n: n})
				}
			})
		}
	case control.SnapshotAsk:
		var a Ask
		if a, err = DecodeAsk(body); err == nil {
			n.Asked(n, from, &a)
		}
	case control.SnapshotBlock:
		var b Block
		if b, err = DecodeBlock(body); err == nil {
			n.Arrived(n, from, &b)
		}
	case control.SnapshotEnd:
		var e End
		if e, err = DecodeEnd(body); err == nil {
			n.Ended(n, from, e)
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// run lets nodes work and talk until nothing is under way, or for some beats. change may lose and change
// what is sent.
func run(beats int, change func(from uint64, s *sent) (lost bool), nodes ...*node) {
	for range beats {
		for busy := true; busy; {
			busy = false
			for _, n := range nodes {
				work := n.work
				n.work = nil
				for _, piece := range work {
					for piece() {
					}
				}
				out := n.sent
				n.sent = nil
				busy = busy || len(work)+len(out) > 0
				for _, s := range out {
					for _, to := range nodes {
						if to.id == s.to && (change == nil || !change(n.id, &s)) {
							to.take(n.id, s.body)
						}
					}
				}
			}
		}
		for _, n := range nodes {
			n.now += 4
			n.Beat(n.now)
		}
	}
}

// A member gets what the leader's core wants it to have, whole, and both cores and programs learn of it.
func TestTransfer(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	state := bytes.Repeat([]byte("state of a machine "), 40_000)
	hash := a.publish(9, state)
	a.Transfers.Send(a, 2, a.Content(hash))
	run(20, nil, a, b)
	if !slices.Equal(b.whole, []uint64{9}) || !slices.Equal(a.core, []raft.SnapshotStatus{raft.SnapshotFinish}) {
		t.Fatalf("arrived: %v, and the core was told %v", b.whole, a.core)
	}
	if m, err := b.store.Manifest(snapshot.ID{Index: 9, Term: 1}); err != nil || m.Hash() != hash {
		t.Errorf("another snapshot is on the disk: %v", err)
	}
	if len(a.events) != 1 || len(b.events) != 1 || a.Active()+b.Active() > 0 || a.hastens != 1 || b.hastens != 1 {
		t.Errorf("events %v and %v, %d and %d transfers, beats wanted %d and %d times", a.events, b.events, a.Active(), b.Active(), a.hastens, b.hastens)
	}
	sent, received := a.Counts(a.class), b.Counts(b.class)
	if sent.Sent != 1 || received.Received != 1 || sent.BytesSent != received.BytesReceived || sent.BytesSent < uint64(len(state)) || received.Unwanted > 0 {
		t.Errorf("sent %+v, received %+v", sent, received)
	}
}

// What is lost is asked for again, and a block that was changed is refused and asked of another member.
func TestTransferOverABadNetwork(t *testing.T) {
	a, b, c := newNode(t, 1), newNode(t, 2), newNode(t, 3)
	state := bytes.Repeat([]byte("0123456789abcdef"), 60_000)
	hash := a.publish(9, state)
	if c.publish(9, state) != hash {
		t.Fatal("setup: two members have other snapshots of the same entry")
	}
	a.Transfers.Send(a, 2, a.Content(hash))
	n, from := 0, map[uint64]int{}
	run(2000, func(sender uint64, s *sent) (lost bool) {
		if s.body[0] != control.SnapshotBlock {
			return false
		}
		if n++; n%7 == 3 {
			return true
		}
		if n%5 == 4 {
			s.body[len(s.body)-1]++
		}
		from[sender]++
		return false
	}, a, b, c)
	if !slices.Equal(b.whole, []uint64{9}) || len(b.events) != 1 || from[1] == 0 || from[3] == 0 {
		t.Errorf("arrived: %v, events %v, blocks from %v", b.whole, b.events, from)
	}
}

// A content that no member has is nowhere. The transfer of one that lasts goes on until it is stopped, and
// another transfer ends.
func TestContentThatIsNowhere(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		a, b, c := newNode(t, 1), newNode(t, 2), newNode(t, 3)
		b.lasts = lasts
		b.Do(func() { b.Receive(b, 1, [32]byte{1}, 100, &content{n: b}) })
		run(2000, nil, a, b, c)
		if b.lost == 0 || (b.Active() > 0) != lasts || len(b.whole) > 0 {
			t.Errorf("lasts %v: nowhere %d times, %d transfers, arrived %v", lasts, b.lost, b.Active(), b.whole)
		}
		b.Leave(b)
		if b.Active() > 0 {
			t.Errorf("the group has ended, and %d transfers go on", b.Active())
		}
	}
}

// A member for which there is no slot waits, and gets one later; one that asks by itself is told why not.
func TestSendingSlots(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	hash := a.publish(9, make([]byte, 1000))
	a.Transfers.Send(a, 3, a.Content(hash)) // which never answers
	a.Transfers.Send(a, 2, a.Content(hash))
	a.take(4, Ask{Group: 7, Hash: hash, Number: 1}.Encode())
	if !slices.ContainsFunc(a.sent, func(s sent) bool {
		return s.to == 4 && slices.Equal(s.body, End{Group: 7, Hash: hash, Why: SenderBusy}.Encode())
	}) {
		t.Errorf("a member that asks was not told that the host is busy: %v", a.sent)
	}
	run(2000, nil, a, b)
	if !slices.Equal(b.whole, []uint64{9}) {
		t.Error("a silent member keeps the only slot")
	}
	a.take(5, Ask{Group: 7, Hash: [32]byte{9}, Number: 1}.Encode())
	if !slices.Equal(a.sent[len(a.sent)-1].body, End{Group: 7, Hash: [32]byte{9}, Why: Absent}.Encode()) {
		t.Error("a member that asks for what is not here was not told")
	}
}

// A host that asks and gives up, again and again, makes one line in the log, and the next ones say how often.
func TestAFlappingReceiverDoesNotFillTheLog(t *testing.T) {
	a := newNode(t, 1)
	hash := a.publish(9, []byte("state"))
	flap := func(times int) {
		for i := range times {
			a.Asked(a, 2, &Ask{Hash: hash, Number: uint64(a.now)<<20 + uint64(i) + 1})
			a.Ended(a, 2, End{Hash: hash, Why: Refused})
		}
	}
	flap(100)
	if len(a.lines) != 1 || len(a.events) != 100 {
		t.Fatalf("%d transfers have failed, and the log has %q", len(a.events), a.lines)
	}
	a.now += 40 * 11
	flap(1)
	if len(a.lines) != 2 || !strings.Contains(a.lines[1], "99") {
		t.Errorf("eleven seconds later the log has %q", a.lines)
	}
}
