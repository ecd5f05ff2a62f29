package host

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// testObject is an object that some hosts of a cluster have.
type testObject struct {
	objects.Object
	content []byte
}

// newTestObject makes an object of n bytes.
func (c *installCluster) newTestObject(n int) *testObject {
	o := &testObject{content: make([]byte, n)}
	for i := range o.content {
		o.content[i] = byte(c.rng.Uint32())
	}
	for i := range o.ID {
		o.ID[i] = byte(c.rng.Uint32())
	}
	return o
}

// objectsOn returns the objects of a host, whose group has none as far as its machine knows.
func objectsOn(h *installHost) (_ *files.Store, err error) {
	g := h.group
	if g.machine.objects == nil {
		s := g.objectSettings(statemachine.ObjectOptions{})
		s.ReserveBytes, s.Told = 0, func(object.ID, bool) {}
		if g.machine.objects, err = objects.New(s, (*objectGroup)(g), &h.process.bulk.transfers.objects); err != nil {
			return nil, err
		}
	}
	return g.machine.objects.Files(), nil
}

// put writes the object on hosts.
func (o *testObject) put(hosts ...*installHost) *testObject {
	for _, h := range hosts {
		t := h.all.t
		store, err := objectsOn(h)
		if err != nil {
			t.Fatal(err)
		}
		w, err := store.Create(o.ID, object.MaxBytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(o.content); err != nil {
			t.Fatal(err)
		}
		info, err := w.Publish()
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.Blocks(o.ID)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Manifest()
		form, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		o.Bytes, o.Hash, o.ManifestBytes = info.Bytes, info.Hash, int64(len(form))
	}
	return o
}

// blocks is how many blocks a transfer of the whole has, with the manifest.
func (o *testObject) blocks() int {
	of := func(n int64) int { return int((n + bulk.BlockBytes - 1) / bulk.BlockBytes) }
	return of(o.ManifestBytes) + of(o.Bytes)
}

// isOn reports whether a host has the object, and checks what it has.
func (o *testObject) isOn(h *installHost) bool {
	h.all.t.Helper()
	store, err := objectsOn(h)
	if err != nil {
		h.all.t.Fatal(err)
	}
	if _, here := store.Info(o.ID); !here {
		return false
	}
	f, err := store.OpenFile(o.ID)
	if err != nil {
		h.all.t.Fatal(err)
	}
	defer f.Close()
	if have, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size())); err != nil || !bytes.Equal(have, o.content) {
		h.all.t.Fatalf("host %d has %d other bytes, %v", h.id, len(have), err)
	}
	return true
}

// fetches makes a host fetch the object, from sources first.
func (o *testObject) fetches(h *installHost, sources ...uint64) bool {
	if _, err := objectsOn(h); err != nil {
		h.all.t.Fatal(err)
	}
	f := o.Object
	f.Sources = sources
	began := h.process.bulk.transfers.objects.Begin(h.group.machine.objects, f)
	h.manual.runIdle()
	return began
}

// heardOf counts what the group's objects of a host are told.
type heardOf struct{ arrived, absent map[object.ID]int }

func (h *installHost) listens() *heardOf {
	if _, err := objectsOn(h); err != nil {
		h.all.t.Fatal(err)
	}
	n := &heardOf{map[object.ID]int{}, map[object.ID]int{}}
	h.group.machine.objects.Told = func(id object.ID, here bool) {
		h.process.bulk.transfers.Do(func() {}) // no lock is held
		if here {
			n.arrived[id]++
		} else {
			n.absent[id]++
		}
	}
	return n
}

// twice returns how many blocks more than once arrived at host 3.
func (c *installCluster) twice() (n int) {
	for _, times := range c.blocks {
		n += times - 1
	}
	return n
}

// A member fetches objects of several lengths from the first source, each block once. A second fetch of what
// is there moves nothing.
func TestTransferOfObjects(t *testing.T) {
	c := newInstallCluster(t, 21).start()
	h := c.hosts[2]
	told := h.listens()
	for _, n := range []int{0, 1, bulk.BlockBytes, 45*bulk.BlockBytes + 100, 65 << 20} {
		if n > 60<<20 && testing.Short() {
			continue
		}
		o := c.newTestObject(n).put(c.hosts[0], c.hosts[1])
		c.change = func(p *parcel) {
			if p.from == 1 && p.to == 3 && len(p.body) > 0 && p.body[0] == control.SnapshotBlock {
				t.Errorf("%d bytes: a block comes from host 1, and only host 2 was asked", n)
			}
		}
		clear(c.blocks)
		h.events = nil
		for range 2 { // the second changes nothing
			if !o.fetches(h, 2, 1) {
				t.Fatal("no fetch begins")
			}
		}
		c.load("it arrives", 0, func() bool { return told.arrived[o.ID] > 0 })
		if !o.isOn(h) || len(c.blocks) != o.blocks() || c.twice() > 0 {
			t.Errorf("%d bytes: here %v, %d blocks arrived, %d twice, want %d blocks once", n, o.isOn(h), len(c.blocks), c.twice(), o.blocks())
		}
		if count[event.ObjectReceived](h) != 1 || count[event.ObjectTransferFailed](h) > 0 {
			t.Errorf("%d bytes: events %+v", n, h.events)
		}
		if !o.fetches(h, 2) {
			t.Fatal("no fetch begins of what is there")
		}
		c.load("it is found", 0, func() bool { return told.arrived[o.ID] == 2 })
		if c.twice() > 0 || count[event.ObjectReceived](h) != 1 {
			t.Errorf("%d bytes: a fetch of what is there: %d blocks twice, events %+v", n, c.twice(), h.events)
		}
		c.load("the sender has ended", 0, func() bool { return len(c.hosts[1].process.bulk.transfers.Out()) == 0 })
	}
	m, s := h.process.Metrics(), c.hosts[1].process.Metrics()
	if m.ObjectTransfers.Received == 0 || s.ObjectTransfers.Sent != m.ObjectTransfers.Received || s.ObjectTransfers.BytesSent != m.ObjectTransfers.BytesReceived || m.Transfers != (TransferMetrics{}) {
		t.Errorf("metrics of the receiver %+v and %+v, of the sender %+v", m.ObjectTransfers, m.Transfers, s.ObjectTransfers)
	}
	if len(told.absent) > 0 {
		t.Errorf("absent was called: %v", told.absent)
	}
}

// The first source is down, or does not have the object: the second one serves it. A source that has it not
// costs a round trip, and no waiting.
func TestTransferOfAnObjectFromTheNextSource(t *testing.T) {
	for name, isDown := range map[string]bool{"down": true, "without it": false} {
		t.Run(name, func(t *testing.T) {
			c := newInstallCluster(t, 22).start()
			h := c.hosts[2]
			o := c.newTestObject(20 * bulk.BlockBytes).put(c.hosts[0])
			told := h.listens()
			if isDown {
				c.hosts[1].crash(crashfs.LoseNothing)
			}
			o.fetches(h, 2, 1)
			ticks := 0
			c.load("it arrives", 0, func() bool { ticks++; return told.arrived[o.ID] > 0 })
			if !o.isOn(h) || len(told.absent) > 0 || !isDown && ticks > ticksPerHeartbeat {
				t.Errorf("it is here: %v, after %d ticks, absent %v", o.isOn(h), ticks, told.absent)
			}
		})
	}
}

// The only source restarts in the middle, and then the receiver does. Nothing is sent twice beyond a window.
func TestTransferOfAnObjectOverRestarts(t *testing.T) {
	c := newInstallCluster(t, 23)
	c.change1 = func(config *Config) { config.ObjectBytesPerSecond = 1 << 20 }
	c.start()
	h, source := c.hosts[2], c.hosts[1]
	o := c.newTestObject(100 * bulk.BlockBytes).put(source)
	told := h.listens()
	o.fetches(h, 2)
	for i, restarts := range []*installHost{source, h, source} {
		c.load("a part arrives", 0, func() bool { return len(c.blocks) > 25*(i+1) })
		if o.isOn(h) {
			t.Fatal("setup: all of it is here")
		}
		restarts.crash(crashfs.LoseNothing)
		for range 20 {
			c.tick()
		}
		restarts.start()
		restarts.listens()
		if restarts == h {
			told = h.listens()
			o.fetches(h, 2)
		}
	}
	c.load("it arrives", 0, func() bool { return told.arrived[o.ID] > 0 })
	if !o.isOn(h) || len(c.blocks) != o.blocks() || c.twice() > 3*bulk.WindowBlocks {
		t.Errorf("here %v, %d blocks of %d, %d twice in 3 restarts", o.isOn(h), len(c.blocks), o.blocks(), c.twice())
	}
	t.Logf("%d blocks, %d twice in 3 restarts", len(c.blocks), c.twice())
}

// A host sends wrong blocks, or a wrong manifest. The object comes from another one. If all lie, the fetch
// starts over, again and again, and ends well when the lies do.
func TestTransferOfAnObjectFromLiars(t *testing.T) {
	oneGoroutine(t)
	for name, wrong := range map[string]func(b *bulk.Block) bool{
		"blocks":   func(b *bulk.Block) bool { return b.At.Part != bulk.ManifestPart },
		"manifest": func(b *bulk.Block) bool { return b.At.Part == bulk.ManifestPart },
		"lengths": func(b *bulk.Block) bool {
			b.Content = b.Content[:len(b.Content)-1]
			return false
		},
	} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, all lie %v", name, all), func(t *testing.T) {
				c := newInstallCluster(t, 24).start()
				h := c.hosts[2]
				o := c.newTestObject(40*bulk.BlockBytes).put(c.hosts[0], c.hosts[1])
				told, lies := h.listens(), 0
				c.change = func(p *parcel) {
					if p.to != 3 || p.from == 1 && !all || len(p.body) == 0 || p.body[0] != control.SnapshotBlock {
						return
					}
					b, err := bulk.DecodeBlock(p.body)
					if err != nil {
						t.Fatal(err)
					}
					lies++
					b.Content = bytes.Clone(b.Content)
					if wrong(&b) {
						b.Content[len(b.Content)/2] ^= 1
					}
					p.body = b.Encode()
				}
				o.fetches(h, 2, 1)
				if all {
					c.load("it starts over twice", 0, func() bool { return count[event.ObjectTransferFailed](h) >= 2 })
					if told.arrived[o.ID] > 0 || told.absent[o.ID] == 0 || h.process.Metrics().ObjectTransfers.Aborted < 2 {
						t.Errorf("told %+v, metrics %+v", told, h.process.Metrics().ObjectTransfers)
					}
					c.change = nil
				}
				c.load("it arrives", 0, func() bool { return told.arrived[o.ID] > 0 })
				if !o.isOn(h) || lies == 0 || !all && count[event.ObjectTransferFailed](h) > 0 {
					t.Errorf("here %v, %d lies, events %+v", o.isOn(h), lies, h.events)
				}
			})
		}
	}
}

// What the log says of an object is not true: its hash is that of a manifest of another length. The fetch
// starts over, and says so; another object is fetched meanwhile.
func TestTransferOfAnObjectThatCannotBe(t *testing.T) {
	c := newInstallCluster(t, 25).start()
	h := c.hosts[2]
	o, good := c.newTestObject(100).put(c.hosts[0]), c.newTestObject(200).put(c.hosts[0])
	o.Bytes++
	told := h.listens()
	large := *o
	large.ManifestBytes = bulk.MaxManifest + 1
	if large.fetches(h, 1) {
		t.Error("a fetch with a manifest that is too large begins")
	}
	o.fetches(h, 1)
	good.fetches(h, 1)
	c.load("it starts over", 0, func() bool { return count[event.ObjectTransferFailed](h) >= 3 })
	if told.arrived[o.ID] > 0 || told.absent[o.ID] == 0 || told.arrived[good.ID] != 1 {
		t.Errorf("told %+v", told)
	}
}

// The disk of the receiver is full for a while. Nothing is lost, and nothing ends.
func TestTransferOfAnObjectToAFullDisk(t *testing.T) {
	c := newInstallCluster(t, 26).start()
	h := c.hosts[2]
	o := c.newTestObject(60 * bulk.BlockBytes).put(c.hosts[1])
	told, left, refused := h.listens(), 20, 0
	h.disk.SetHook(func(op crashfs.Op) error {
		if (op.Kind == crashfs.OpPreallocate || op.Kind == crashfs.OpWrite) && strings.Contains(op.Name, "objects") {
			if left--; left < 0 {
				refused++
				return syscall.ENOSPC
			}
		}
		return nil
	})
	o.fetches(h, 2)
	c.load("the disk refuses", 0, func() bool { return refused > 3 })
	for range 600 {
		c.tick()
	}
	if told.arrived[o.ID] > 0 || refused > 100 {
		t.Errorf("the disk has refused %d times, told %+v", refused, told)
	}
	h.disk.SetHook(nil)
	c.load("it arrives", 0, func() bool { return told.arrived[o.ID] > 0 })
	if !o.isOn(h) || count[event.ObjectTransferFailed](h) > 0 {
		t.Errorf("here %v, events %+v", o.isOn(h), h.events)
	}
}

// Two objects and a snapshot of one group travel at the same time.
func TestTransferOfObjectsBesideASnapshot(t *testing.T) {
	oneGoroutine(t)
	c := newInstallCluster(t, 27)
	c.change1 = func(config *Config) {
		config.ObjectBytesPerSecond, config.SnapshotBytesPerSecond = 2<<20, 2<<20
	}
	c.start()
	h := c.hosts[2]
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	a, b := c.newTestObject(30*bulk.BlockBytes).put(c.hosts[0]), c.newTestObject(30*bulk.BlockBytes).put(c.hosts[0], c.hosts[1])
	told, most := h.listens(), 0
	a.fetches(h, 1)
	b.fetches(h, 2)
	c.load("all arrive", 0, func() bool {
		blocks := 0
		for _, r := range h.process.bulk.transfers.In() {
			if r.IsMoving() {
				blocks++
			}
		}
		most = max(most, blocks)
		return told.arrived[a.ID] > 0 && told.arrived[b.ID] > 0 && count[event.SnapshotInstalled](h) > 0
	})
	c.load("all are equal", 0, c.equal)
	if !a.isOn(h) || !b.isOn(h) || most != 3 || c.twice() > 0 {
		t.Errorf("here %v and %v, %d transfers at a time, %d blocks twice", a.isOn(h), b.isOn(h), most, c.twice())
	}
}

// No member has the object. After each round absent is called, and rounds become rarer; a member that is busy
// makes no round one that found nothing. When a member has it, it arrives.
func TestTransferOfAnObjectThatNobodyHas(t *testing.T) {
	c := newInstallCluster(t, 28).start()
	h := c.hosts[2]
	o := c.newTestObject(10 * bulk.BlockBytes).put(c.hosts[0])
	store, err := objectsOn(c.hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Remove(o.ID); err != nil {
		t.Fatal(err)
	}
	told, asks := h.listens(), 0
	busy := true
	c.change = func(p *parcel) {
		if p.from == 3 && len(p.body) > 0 && p.body[0] == control.SnapshotAsk {
			asks++
		}
		if p.from == 1 && busy && len(p.body) > 0 && p.body[0] == control.SnapshotEnd {
			p.body[len(p.body)-1] = byte(bulk.SenderBusy)
		}
	}
	o.fetches(h, 2)
	for range 1000 {
		c.tick()
	}
	if told.absent[o.ID] > 0 || asks < 6 || asks > 60 {
		t.Errorf("in 1000 ticks, with a member that says that it is busy: %d asks, told %+v", asks, told)
	}
	busy = false
	for range 1000 {
		c.tick()
	}
	if n := told.absent[o.ID]; n < 3 || n > 20 {
		t.Errorf("in 1000 ticks absent was called %d times", n)
	}
	o.put(c.hosts[0])
	c.load("it arrives", 0, func() bool { return told.arrived[o.ID] > 0 })
	if !o.isOn(h) || count[event.ObjectTransferFailed](h) > 0 {
		t.Errorf("here %v, events %+v", o.isOn(h), h.events)
	}
}

// More objects are fetched than there are slots. Those that move nothing lose their slot to others, and get
// it back.
func TestTransfersOfObjectsShareSlots(t *testing.T) {
	c := newInstallCluster(t, 29).start()
	h := c.hosts[2]
	told := h.listens()
	source, err := objectsOn(c.hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	var slow []*testObject
	for range maxObjectReceivings {
		o := c.newTestObject(1000).put(c.hosts[0])
		if err := source.Remove(o.ID); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, o)
		if !o.fetches(h, 1) {
			t.Fatal("setup: no slot")
		}
	}
	next := c.newTestObject(20 * bulk.BlockBytes).put(c.hosts[1])
	if next.fetches(h, 2) {
		t.Fatal("there are too many slots")
	}
	c.load("the next one gets a slot", 0, func() bool { return next.fetches(h, 2) })
	if n := count[event.ObjectTransferFailed](h); n != 1 {
		t.Errorf("%d have lost their slots, want 1", n)
	}
	c.load("it arrives", 0, func() bool { return told.arrived[next.ID] > 0 })
	for _, o := range slow {
		o.put(c.hosts[0])
	}
	c.load("all arrive", 0, func() bool { return len(told.arrived) == maxObjectReceivings+1 })
}

// A fetch is ended in the middle, and begins again where it was; then the group is closed in the middle. In
// the end nothing is under way.
func TestTransferOfAnObjectEnds(t *testing.T) {
	c := newInstallCluster(t, 30)
	c.change1 = func(config *Config) { config.ObjectBytesPerSecond = 1 << 20 }
	c.start()
	h, source := c.hosts[2], c.hosts[1]
	o := c.newTestObject(80 * bulk.BlockBytes).put(source)
	told := h.listens()
	o.fetches(h, 2)
	c.load("a part arrives", 0, func() bool { return len(c.blocks) > 20 })
	h.process.bulk.transfers.objects.End(h.group.machine.objects, o.ID)
	for range 10 {
		c.tick()
	}
	if len(h.process.bulk.transfers.In()) > 0 || len(source.process.bulk.transfers.Out()) > 0 || count[event.ObjectTransferFailed](source) > 0 {
		t.Errorf("after the end: %s", c.describe())
	}
	store, err := objectsOn(h)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := store.Unfinished(o.ID); !is {
		t.Error("what was received is gone, or busy")
	}
	o.fetches(h, 2)
	c.load("more arrives", 0, func() bool { return len(c.blocks) > 50 })
	if c.twice() > bulk.WindowBlocks || told.arrived[o.ID] > 0 {
		t.Errorf("%d blocks came twice, told %+v", c.twice(), told)
	}
	for _, closes := range []*installHost{source, h} {
		closes.group.Close(gone(t))
		for range 10 {
			c.tick()
		}
		if err := closes.group.Close(gone(t)); err != nil {
			t.Fatal(err)
		}
		if n := closes.process.bulk.transfers.Active(); n > 0 {
			t.Errorf("host %d: %d transfers when the group is closed", closes.id, n)
		}
		if o.fetches(closes, 1) {
			t.Errorf("host %d: a fetch begins when the group is closed", closes.id)
		}
	}
}

// Two objects have the same content, and so the same hash. They are fetched one after the other.
func TestTransferOfObjectsWithOneHash(t *testing.T) {
	c := newInstallCluster(t, 32).start()
	h := c.hosts[2]
	a := c.newTestObject(20 * bulk.BlockBytes).put(c.hosts[1])
	b := *a
	b.ID[0]++
	b.put(c.hosts[1])
	told := h.listens()
	if a.Hash != b.Hash || !a.fetches(h, 2) || b.fetches(h, 2) {
		t.Fatal("want one fetch of two objects with the same hash")
	}
	c.load("both arrive", 0, func() bool { return b.fetches(h, 2) && told.arrived[b.ID] > 0 })
	if !a.isOn(h) || !b.isOn(h) || told.arrived[a.ID] != 1 {
		t.Errorf("here %v and %v, told %+v", a.isOn(h), b.isOn(h), told)
	}
}

// Objects are sent to members only.
func TestTransferOfAnObjectToAStranger(t *testing.T) {
	c := newInstallCluster(t, 31).start()
	h := c.hosts[1]
	o := c.newTestObject(1000).put(h)
	a := bulk.Ask{Group: theGroup, Hash: o.Hash, Number: 1 << 62, Ranges: []bulk.Range{{Blocks: 1}}}
	for from, want := range map[uint64]int{9: 0, 3: 1} {
		(*h.receiver).Deliver(from, transport.Control, a.Encode())
		h.manual.runIdle()
		blocks := 0
		for _, sent := range c.wire {
			if sent.from == h.id && sent.to == from && sent.kind == transport.Bulk {
				blocks++
			}
		}
		if c.wire = nil; blocks != want {
			t.Errorf("host %d gets %d blocks, want %d", from, blocks, want)
		}
	}
}
