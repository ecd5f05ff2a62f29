package host

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// newObjectCluster is a cluster whose group has objects.
func newObjectCluster(t *testing.T, seed uint64) *installCluster {
	c := newInstallCluster(t, seed)
	c.objects = &statemachine.ObjectOptions{ReserveBytes: 1}
	return c
}

// begins uploads n equal bytes on a host, and does not wait for the end.
func (h *installHost) begins(n int, life time.Duration) *Upload {
	h.all.t.Helper()
	u, err := h.group.StartUpload(UploadOptions{Life: life})
	if err == nil {
		if _, err = u.Write(make([]byte, n)); err == nil {
			err = u.Finish()
		}
	}
	if err != nil {
		h.all.t.Fatal(err)
	}
	h.manual.runIdle()
	return u
}

// has reports whether a host has an object.
func (h *installHost) has(id object.ID) bool {
	_, here := h.group.machine.objects.Files().Info(id)
	return here
}

// held reports whether an upload has ended well.
func (u *Upload) held(t *testing.T) bool {
	t.Helper()
	_, done, err := u.Poll()
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// dropBlocks loses all blocks for a host.
func dropBlocks(to uint64) func(*parcel) {
	return func(p *parcel) {
		if p.to == to && len(p.body) > 0 && p.body[0] == control.SnapshotBlock {
			p.body = nil
		}
	}
}

// Two objects have the same content, and one of them expires while a member fetches the other one. The fetch
// goes on, although nothing else happens in the group.
func TestAnObjectExpiresWhileItsCopyIsFetched(t *testing.T) {
	c := newObjectCluster(t, 61).start()
	c.change = dropBlocks(3)
	kept := c.hosts[0].begins(300_000, time.Hour)
	c.load("the first is held", 0, func() bool { return kept.held(t) })
	gone := c.hosts[0].begins(300_000, time.Second)
	c.load("the second is held", 0, func() bool { return gone.held(t) })
	h := c.hosts[2]
	c.load("it expires", 0, func() bool { return len(h.group.Objects()) == 1 })
	for range 200 {
		c.tick()
	}
	c.change = nil
	for i := 0; i < 3000 && !h.has(kept.ID()); i++ {
		c.tick()
	}
	if !h.has(kept.ID()) {
		t.Errorf("host 3 does not get the object: %s", c.describe())
	}
}

// No member that is up has some of the objects. Those behind them are fetched all the same.
func TestLostObjectsDoNotBlockOthers(t *testing.T) {
	for name, lost := range map[string]struct {
		n    int
		same bool
	}{"same": {2, true}, "many": {12, false}} {
		t.Run(name, func(t *testing.T) {
			c := newObjectCluster(t, 62).start()
			h := c.hosts[0]
			if h == c.leader() {
				h = c.hosts[1]
			}
			c.change = func(p *parcel) {
				if p.from == h.id && len(p.body) > 0 && p.body[0] == control.SnapshotBlock {
					p.body = nil
				}
			}
			for i := range lost.n {
				n := 300_000
				if !lost.same {
					n += i
				}
				h.begins(n, time.Hour)
			}
			l := c.leader()
			c.load("they are opened", 0, func() bool { return len(l.group.Objects()) == lost.n })
			c.isolate(h.id)
			c.change = nil
			u := l.begins(100, time.Hour)
			ticks := 0
			c.load("the upload is held", 0, func() bool { ticks++; return ticks > 15_000 || u.held(t) })
			t.Logf("%d ticks, an election timeout has %d", ticks, l.process.config.electionTicks())
			if limit := 25 * l.process.config.electionTicks(); ticks > limit {
				t.Errorf("the upload has taken %d ticks, want at most %d", ticks, limit)
			}
		})
	}
}

// An upload was finished, and the group ends before its outcome is known: it may be held.
func TestUploadOfAGroupThatEnds(t *testing.T) {
	c := newObjectCluster(t, 63).start()
	l := c.leader()
	c.change = func(p *parcel) {
		if len(p.body) > 0 && p.body[0] == control.SnapshotBlock {
			p.body = nil
		}
	}
	u := l.begins(300_000, time.Hour)
	c.load("it is opened", 0, func() bool { return len(l.group.Objects()) == 1 })
	l.group.fail(errors.New("the end"))
	if _, done, err := u.Poll(); !done || !outcome.MayHaveCommitted(err) || !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("Poll returns %t, %v; want an indeterminate outcome", done, err)
	}
}

// brokenReader is a reader of a user that panics, or ends its goroutine.
type brokenReader func()

func (r brokenReader) Read([]byte) (int, error) { r(); return 0, io.EOF }

// A reader that panics, or ends the caller's goroutine, leaves no upload behind.
func TestUploadOfABrokenReader(t *testing.T) {
	g := newObjectCluster(t, 65).start().hosts[0].group
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = g.Upload(t.Context(), brokenReader(end), UploadOptions{})
			t.Errorf("%s: Upload returned", name)
		}()
		if p := <-ended; (name == "panic") != (p == "boom") {
			t.Errorf("%s: the caller recovers %v", name, p)
		}
		if n := g.Metrics().Objects.Uploads; n != 0 {
			t.Errorf("%s: %d uploads are under way", name, n)
		}
	}
}

// Abort after Finish does nothing, as its comment says.
func TestAbortAfterFinish(t *testing.T) {
	c := newObjectCluster(t, 64).start()
	u := c.hosts[0].begins(300_000, time.Hour)
	if err := u.Abort(); err != nil {
		t.Error(err)
	}
	c.load("it is held", 0, func() bool { return u.held(t) })
	if !slices.ContainsFunc(c.leader().group.Objects(), func(s object.Set) bool { return s.ID == u.ID() && s.Held > 0 }) {
		t.Error("it is not held")
	}
}

// Two objects are fetched at a time, and there is space for one of them only. The reserve stays free. When
// there is space again both arrive.
func TestFetchesLeaveTheReserve(t *testing.T) {
	const reserve = 1 << 20
	c := newInstallCluster(t, 65).start()
	h := c.hosts[2]
	told := h.listens()
	h.group.machine.objects.ReserveBytes = reserve
	o := c.newTestObject(40 * bulk.BlockBytes).put(c.hosts[1])
	other := c.newTestObject(40 * bulk.BlockBytes).put(c.hosts[1])
	h.disk.SetCapacity(h.disk.UsedBytes() + reserve + 50*bulk.BlockBytes)
	o.fetches(h, 2)
	other.fetches(h, 2)
	for range 500 {
		c.tick()
		if free, err := h.disk.FreeBytes(""); err != nil || free < reserve {
			t.Fatalf("%d bytes are free, %v, want %d at least", free, err, reserve)
		}
	}
	h.disk.SetCapacity(1 << 30)
	c.load("both arrive", 0, func() bool { return told.arrived[o.ID] > 0 && told.arrived[other.ID] > 0 })
}

// A member continues to fetch an object when the disk has space for the rest of it.
func TestFetchGoesOnInLittleSpace(t *testing.T) {
	const reserve = 1 << 20
	c := newInstallCluster(t, 66)
	c.change1 = func(config *Config) { config.ObjectBytesPerSecond = 1 << 20 }
	c.start()
	h := c.hosts[2]
	h.listens()
	o := c.newTestObject(100 * bulk.BlockBytes).put(c.hosts[1])
	o.fetches(h, 2)
	c.load("most of it arrives", 0, func() bool { return len(c.blocks) > 80 })
	h.crash(crashfs.LoseNothing)
	h.start()
	told := h.listens()
	h.group.machine.objects.ReserveBytes = reserve
	h.disk.SetCapacity(h.disk.UsedBytes() + reserve + 50*bulk.BlockBytes)
	o.fetches(h, 2)
	for i := 0; i < 3000 && told.arrived[o.ID] == 0; i++ {
		c.tick()
	}
	if told.arrived[o.ID] == 0 {
		t.Fatal("it does not arrive")
	}
	h.disk.SetCapacity(h.disk.UsedBytes() + 10)
	o.fetches(h, 2)
	for i := 0; i < 100 && told.arrived[o.ID] < 2; i++ {
		c.tick()
	}
	if told.arrived[o.ID] < 2 {
		t.Error("what is here is not found on a full disk")
	}
}

// follower returns a host that does not lead.
func (c *installCluster) follower() *installHost {
	for _, h := range c.hosts {
		if h != c.leader() {
			return h
		}
	}
	return nil
}

// A group is idle, and asleep. Its objects expire nevertheless, also if nothing has happened since the last
// election.
func TestObjectsOfAnIdleGroupExpire(t *testing.T) {
	c := newObjectCluster(t, 69).start()
	u := c.leader().begins(300_000, time.Minute)
	c.load("it is held", 0, func() bool { return u.held(t) })
	next := c.follower()
	c.leader().group.StartTransfer(next.id)
	c.load("another member leads", 0, func() bool { return c.leader() == next })
	for end := c.now + 90*time.Second; c.now < end; {
		c.tick()
	}
	for _, h := range c.hosts {
		if n := len(h.group.Objects()); n > 0 {
			t.Errorf("host %d has %d objects half a minute after they have expired", h.id, n)
		}
	}
}

// A member of an idle group begins a fetch when its host has a slot again.
func TestAFetchWaitsForASlotInAnIdleGroup(t *testing.T) {
	c := newObjectCluster(t, 70).start()
	h := c.follower()
	h.process.bulk.transfers.objects.Class.MaxReceivings = 0
	u := c.leader().begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) })
	for range 1000 {
		c.tick()
	}
	h.process.bulk.transfers.objects.Class.MaxReceivings = maxObjectReceivings
	for range 1000 {
		c.tick()
	}
	if !h.has(u.ID()) {
		t.Error("the object does not arrive")
	}
}

// names hands in a command that names an object, at the leader.
func (c *installCluster) names(id object.ID) {
	l := c.leader()
	data := append(object.AppendHead(make([]byte, CallRoom), []object.ID{id}), "a name"...)
	if err := l.group.Call(&Call{Owner: &answer{}, Data: data}); err != nil {
		c.t.Fatal(err)
	}
	l.manual.runIdle()
}

// A member could not get an object for a while, and then gets it. After that it says nothing, and is sent
// nothing.
func TestAMemberForgetsThatAnObjectWasLost(t *testing.T) {
	c := newObjectCluster(t, 67).start()
	h := c.follower()
	c.change = dropBlocks(h.id)
	u := c.leader().begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) })
	c.names(u.ID())
	c.load("the member waits", 0, func() bool { return h.group.machine.apply.UnavailableAt() > 0 })
	c.change = func(p *parcel) {
		if len(p.body) > 0 && p.body[0] == control.SnapshotOffer {
			p.body = nil // the object is first
		}
	}
	c.load("the member goes on", 0, func() bool { return c.equal() && h.group.machine.apply.WaitsAt() == 0 })
	said, offered := 0, 0
	c.change = func(p *parcel) {
		if len(p.body) > 0 && (p.body[0] == control.ObjectQuestion || p.body[0] == control.ObjectAnswer) {
			said++
		}
		if len(p.body) > 0 && p.body[0] == control.SnapshotOffer {
			offered++
		}
	}
	for range 1000 {
		c.tick()
	}
	if said > 10 || offered > 2 {
		t.Errorf("%d records about objects, and %d offers of snapshots, in an idle group", said, offered)
	}
}

// A snapshot has come to pass an entry, and just then the object arrives. Later the member needs a snapshot
// again, and gets it.
func TestASnapshotThatIsNotNeededToPass(t *testing.T) {
	c := newObjectCluster(t, 68).start()
	h := c.follower()
	c.change = dropBlocks(h.id)
	u := c.leader().begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) })
	c.names(u.ID())
	c.load("the member waits", 0, func() bool { return h.group.machine.apply.UnavailableAt() > 0 })
	c.change = nil
	for i := 0; h.group.machine.apply.WaitsAt() > 0; i++ {
		if p := h.group.snapshots.Received.Load(); p != nil {
			t.Fatal("setup: the snapshot was first")
		}
		c.tick()
		if i > 5000 {
			t.Fatal("setup: the object does not arrive")
		}
	}
	// The turn has seen that the member waits, and the apply lane has gone on since.
	l := c.leader()
	taking := l.group.StartSnapshot()
	c.load("a snapshot is taken", 0, func() bool { _, done, _ := taking.Poll(); return done })
	p := l.group.snapshots.Latest()
	tr := &h.process.bulk.transfers
	tr.Do(func() {
		tr.Receive((*bulkGroup)(h.group), l.id, p.Hash, 1, h.group.snapshots.Offered(bulk.Offer{Group: theGroup, Index: p.ID.Index, Term: p.ID.Term, Hash: p.Hash}))
		r, _ := h.group.snapshots.Incoming()
		r.Install()
	})
	h.group.machine.apply.Pass((*snapshotGroup)(h.group).passage(p))
	for range 100 {
		c.tick()
	}
	if r, _ := h.group.snapshots.Incoming(); r != nil {
		t.Errorf("the transfer stays for ever: %s", c.describe())
	}
}

// A host forwards what only a leader may say: that all members hold an object, which one of them has.
func TestAForwardedHold(t *testing.T) {
	c := newObjectCluster(t, 71).start()
	l, liar := c.leader(), c.follower()
	c.change = func(p *parcel) {
		if len(p.body) > 0 && p.body[0] == control.SnapshotBlock {
			p.body = nil
		}
	}
	u := l.begins(300_000, time.Hour)
	c.load("it is opened", 0, func() bool { return len(l.group.Objects()) == 1 })
	hold := object.Holding{ID: u.ID()}
	for _, m := range l.group.roster().Members {
		hold.Holders = append(hold.Holders, object.Holder{ID: m.ID, Incarnation: m.Incarnation})
	}
	for frame, command := range [][]byte{object.AppendHolding(nil, hold), object.AppendPass(nil)} {
		body := proposals.AppendForward(nil, proposals.Forward{Group: theGroup, Term: l.group.Status().Term, Frame: 1<<50 + uint64(frame)})
		mark := session.Mark{ID: session.ID{Client: [16]byte{7}}, Number: 1 + uint64(frame), Low: 1}
		body = proposals.AppendCommand(body, session.Header{Mark: mark, HasMark: true}, command)
		last := l.group.Status().LastIndex
		(*l.receiver).Deliver(liar.id, transport.Control, body)
		l.manual.runIdle()
		for range 20 {
			c.tick()
		}
		if now := l.group.Status().LastIndex; now != last {
			t.Errorf("the leader has proposed %x", command)
		}
	}
	if s := l.group.Objects(); s[0].Held > 0 {
		t.Errorf("the members believe that %v is held", s[0].ID)
	}
}
