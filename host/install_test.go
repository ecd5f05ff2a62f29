package host

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A member that was cut off until the log of the leader began behind its own catches up under load, three
// times in a row.
func TestAMemberBeyondTheLogCatchesUp(t *testing.T) {
	c := newInstallCluster(t, 1).start()
	for round := range 3 {
		c.isolate(3)
		c.load("log grows", 2, func() bool { return c.isBeyond(3) })
		c.heal()
		c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](c.hosts[2]) > round })
		c.load("all are equal", 0, c.equal)
	}
	for at, n := range c.blocks {
		if n > 1 {
			t.Errorf("block %s arrived %d times", at, n)
		}
	}
	if l := c.leader(); count[event.SnapshotSent](l) != 3 || count[event.SnapshotReceived](c.hosts[2]) != 3 {
		t.Errorf("%d snapshots sent, %d received, want 3 each; %s", count[event.SnapshotSent](l), count[event.SnapshotReceived](c.hosts[2]), c.describe())
	}
}

// The link breaks every 200 ms while a snapshot is sent under load, also for longer than a sender waits,
// three times in a row. What was received is kept.
func TestALinkThatBreaksCostsNoBlocks(t *testing.T) {
	oneGoroutine(t)
	c := newInstallCluster(t, 2)
	c.change1 = func(config *Config) { config.SnapshotBytesPerSecond = 1 << 20 } // 26 KiB in a tick
	c.start()
	for round := range 3 {
		c.isolate(3)
		c.load("log grows", 2, func() bool { return c.isBeyond(3) })
		clear(c.blocks)
		ticks, breaks := 0, 0
		c.load("the member installs", 1, func() bool {
			if ticks++; ticks%8 == 0 { // 200 ms
				c.isolate(3)
				breaks++
			} else if ticks%8 == 3 {
				c.heal()
			}
			return count[event.SnapshotInstalled](c.hosts[2]) > round
		})
		c.heal()
		c.load("all are equal", 0, c.equal)
		twice := 0
		for _, n := range c.blocks {
			twice += n - 1
		}
		if breaks < 3 || twice > breaks {
			t.Errorf("round %d: %d blocks arrived twice in %d breaks, want at most one in each, and 3 breaks", round, twice, breaks)
		}
		t.Logf("round %d: %d breaks, %d blocks arrived, %d of them twice", round, breaks, len(c.blocks), twice)
	}
}

// Between the moment in which the machine has the state of a received snapshot and the one in which the log
// relies on it, a snapshot is asked for. The one that was received is not removed for it.
func TestATakeBesideAnInstall(t *testing.T) {
	c := newInstallCluster(t, 5).start()
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	h := c.hosts[2]
	var taking *Taking
	var index uint64
	h.machine.restored = func() {
		h.process.storage.lane.Task().(*manualTask).dead = true // the disk hangs
		taking, index = h.group.StartSnapshot(), h.group.snapshots.Installed.Load().ID.Index
	}
	c.heal()
	c.load("the member restores", 0, func() bool { return taking != nil })
	h.machine.restored = nil
	for range 2 * h.process.config.electionTicks() {
		c.tick()
	}
	store, err := h.group.snapshots.Store()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Manifest(snapshot.ID{Index: index, Term: h.group.snapshots.Installed.Load().ID.Term}); err != nil {
		t.Errorf("of the snapshot that is being installed: %v; the store has %v", err, store.List())
	}
	h.process.storage.lane.Task().(*manualTask).dead = false
	c.load("all are equal", 0, c.equal)
	c.load("the snapshot is taken", 0, func() bool {
		_, done, _ := taking.Poll()
		return done
	})
	if info, _, err := taking.Poll(); err != nil || info.Index < index {
		t.Errorf("the snapshot that was asked for: %+v, %v; one of entry %d was installed", info, err, index)
	}
}

// An ask arrives with a number that is too large, so that all later ones look like copies of earlier ones.
// The transfer ends after a while, and another one begins. No other member has the snapshot.
func TestAnAskWithAWrongNumberCostsTime(t *testing.T) {
	c := newInstallCluster(t, 4).start()
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	wrong := 0
	c.change = func(p *parcel) {
		if len(p.body) == 0 || p.body[0] != control.SnapshotAsk {
			return
		}
		a, err := bulk.DecodeAsk(p.body)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case p.to != c.leader().id:
			a.Hash[0] ^= 1
		case wrong == 0:
			wrong++
			a.Number += 1 << 60
		}
		p.body = a.Encode()
	}
	c.load("the member installs", 0, func() bool { return count[event.SnapshotInstalled](c.hosts[2]) > 0 })
	if wrong == 0 {
		t.Error("no ask was sent")
	}
	c.load("all are equal", 0, c.equal)
}

// Blocks come changed, cut, at another place, or from another snapshot. None of them is installed, and the
// member catches up when the lies end.
func TestALyingPeer(t *testing.T) {
	c := newInstallCluster(t, 3).start()
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	lies := 0
	var other []byte // content of another block
	c.change = func(p *parcel) {
		if p.to != 3 || p.kind != transport.Bulk || p.body[0] != control.SnapshotBlock || lies >= 150 || c.rng.IntN(3) == 0 {
			return
		}
		b, err := bulk.DecodeBlock(p.body)
		if err != nil {
			t.Fatal(err)
		}
		lies++
		content := append([]byte(nil), b.Content...)
		switch c.rng.IntN(5) {
		case 0:
			content[c.rng.IntN(len(content))] ^= 1
		case 1:
			content = content[:1+c.rng.IntN(len(content))]
		case 2:
			b.At.Block += int64(c.rng.IntN(3))
		case 3:
			b.Hash[0] ^= 1
		case 4:
			content, other = append(other, 1), content[:min(len(content), 1000)]
		}
		b.Content = content
		p.body = b.Encode()
	}
	c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](c.hosts[2]) > 0 })
	c.load("all are equal", 0, c.equal)
	if lies < 40 {
		t.Errorf("%d lies were told, want more", lies)
	}
}

// The disk of the receiver is full while it receives, and has space again later. The member catches up, and
// goes on voting meanwhile.
func TestAFullDiskWhileReceiving(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all hosts")
	}
	c := newInstallCluster(t, 4).start()
	h := c.hosts[2]
	for round := range 4 {
		c.isolate(3)
		c.load("log grows", 2, func() bool { return c.isBeyond(3) })
		c.heal()
		left, refused := []int{0, 5, 15, 28}[round], 0
		h.disk.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpPreallocate || op.Kind == crashfs.OpWrite && strings.Contains(op.Name, "snapshots") {
				if left--; left < 0 {
					refused++
					return syscall.ENOSPC
				}
			}
			return nil
		})
		for range 400 {
			c.call(1)
			c.tick()
		}
		h.disk.SetHook(nil)
		if refused == 0 {
			t.Errorf("round %d: the disk has refused nothing", round)
		}
		c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](h) > round })
		c.load("all are equal", 0, c.equal)
	}
}

// The power of the receiver is cut at operations of its disk, every few of them, from the offer until the
// snapshot is installed, with any loss. It comes back with the old state or the new one, catches up, and
// gets no more than the block twice that was on its way.
func TestTheReceiverCrashesAtEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all hosts")
	}
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		steps := rand.New(rand.NewPCG(5, uint64(loss)))
		came := [2]int{} // back with the old state, and with the new one
		for n := 1; ; n += 1 + steps.IntN(32) {
			c := newInstallCluster(t, uint64(n)).start()
			c.isolate(3)
			c.load("log grows", 2, func() bool { return c.isBeyond(3) })
			h := c.hosts[2]
			before := h.group.Status().LastIndex
			left, crashed := n, false
			h.disk.SetHook(func(crashfs.Op) error {
				if left--; left == 0 {
					crashed = true
					h.disk.Crash(loss, c.rng.Uint64)
				}
				return nil
			})
			c.heal()
			c.load("the member installs, or crashes", 0, func() bool { return crashed || count[event.SnapshotInstalled](h) > 0 })
			if !crashed {
				h.disk.SetHook(nil)
				break
			}
			h.crash(crashfs.LoseNothing)
			h.start()
			switch first := h.group.writes.storage.log.FirstIndex(); {
			case first > before+1:
				came[1]++
			default:
				came[0]++
			}
			c.load("all are equal", 0, c.equal)
			if err := h.group.Err(); err != nil {
				t.Fatalf("%v at operation %d: %v", loss, n, err)
			}
		}
		if came[0] == 0 || came[1] == 0 {
			t.Errorf("%v: %d starts had the old state, %d the new one", loss, came[0], came[1])
		}
	}
}

// Hosts crash at random moments while a member catches up: the sender, the receiver, or the third. Everything
// arrives in the end, from whichever member leads then.
func TestHostsCrashWhileAMemberCatchesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all hosts")
	}
	installed := 0
	for seed := range uint64(6) {
		c := newInstallCluster(t, 100+seed)
		c.change1 = func(config *Config) { config.SnapshotBytesPerSecond = 4 << 20 }
		c.start()
		c.isolate(3)
		c.load("log grows", 2, func() bool { return c.isBeyond(3) })
		c.heal()
		for range 6 {
			for range c.rng.IntN(60) {
				c.call(c.rng.IntN(2))
				c.tick()
			}
			h := c.hosts[c.rng.IntN(3)]
			installed += count[event.SnapshotInstalled](h)
			h.crash([]crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing}[c.rng.IntN(3)])
			for range c.rng.IntN(100) {
				c.call(c.rng.IntN(2))
				c.tick()
			}
			h.events = nil
			h.start()
		}
		c.load("all are equal", 0, c.equal)
		for _, h := range c.hosts {
			installed += count[event.SnapshotInstalled](h)
		}
	}
	if installed < 4 {
		t.Errorf("%d snapshots were installed, want more", installed)
	}
}

// A member that does not lead serves what it has, to members only, and says so of what it does not have.
func TestAFollowerServesItsSnapshot(t *testing.T) {
	c := newInstallCluster(t, 7).start()
	follower := c.hosts[1]
	if c.leader() == follower {
		follower = c.hosts[0]
	}
	c.load("a snapshot is taken", 2, func() bool { return follower.group.snapshots.Latest() != nil })
	p := follower.group.snapshots.Latest()
	ask := func(from uint64, hash [32]byte) (blocks, ends int) {
		a := bulk.Ask{Group: theGroup, Hash: hash, Number: 1 << 62, Ranges: []bulk.Range{{Part: bulk.ManifestPart, Blocks: 1}, {Blocks: 2}}}
		(*follower.receiver).Deliver(from, transport.Control, a.Encode())
		follower.manual.runIdle()
		for _, sent := range c.wire {
			if sent.from == follower.id && sent.kind == transport.Bulk {
				if b, err := bulk.DecodeBlock(sent.body); err == nil && b.Hash == hash && sent.to == from {
					blocks++
				}
			} else if sent.kind == transport.Control && sent.body[0] == control.SnapshotEnd {
				if e, err := bulk.DecodeEnd(sent.body); err == nil && e.Why == bulk.Absent && e.Hash == hash {
					ends++
				}
			}
		}
		c.wire = nil
		return blocks, ends
	}
	if blocks, ends := ask(3, p.Hash); blocks != 3 || ends != 0 {
		t.Errorf("%d blocks and %d ends for the snapshot that it has, want 3 and 0", blocks, ends)
	}
	if blocks, ends := ask(3, someHash(1)); blocks != 0 || ends != 1 {
		t.Errorf("%d blocks and %d ends for another snapshot, want 0 and 1", blocks, ends)
	}
	if blocks, ends := ask(9, p.Hash); blocks != 0 || ends != 0 {
		t.Errorf("%d blocks and %d ends for a host that is no member, want none", blocks, ends)
	}
	if m := follower.process.Metrics().Transfers; m.Sending != 1 || m.BytesSent < 2*bulk.BlockBytes {
		t.Errorf("metrics are %+v, want one transfer and more than two blocks", m)
	}
}

// A transfer ends when its member gets the entries meanwhile: it would only block the snapshot
// that the member takes of the same index itself.
func TestATransferThatIsNotNeededEnds(t *testing.T) {
	c := newInstallCluster(t, 8).start()
	h := c.hosts[2]
	offer := bulk.Offer{Group: theGroup, Index: h.group.Status().Committed + 5, Term: 1, FirstIndex: 1, ManifestBytes: 100, Hash: someHash(1)}
	(*h.receiver).Deliver(1, transport.Control, offer.Encode())
	h.manual.runIdle()
	if n := len(h.process.bulk.transfers.In()); n != 1 {
		t.Fatalf("%d transfers after an offer, want 1", n)
	}
	for range 3 * ticksPerHeartbeat {
		c.tick()
	}
	if n := len(h.process.bulk.transfers.In()); n != 1 {
		t.Fatalf("%d transfers while the entries are not here, want 1", n)
	}
	c.load("the entries come", 1, func() bool { return h.group.Status().Committed >= offer.Index })
	for range 3 * ticksPerHeartbeat {
		c.tick()
	}
	if n := len(h.process.bulk.transfers.In()); n != 0 {
		t.Errorf("%d transfers when the entries are here, want none", n)
	}
}

// When a snapshot is installed, the calls whose commands its table of sessions has end as duplicates; one
// that the table may have forgotten has no known outcome; the others go on.
func TestInstallEndsCalls(t *testing.T) {
	out := &forwardTransport{recordingTransport: &recordingTransport{}}
	l, g := followGroup(t, out)
	var callers []*overtakenCaller
	for range 3 {
		c := &overtakenCaller{echoCaller: newEchoCaller()}
		callers = append(callers, c)
		if err := g.Call(&Call{Data: append(make([]byte, CallRoom), 'x'), Owner: c}); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
	}
	table := session.New(session.Options{})
	if v, _ := table.Apply(session.Mark{ID: out.session, Number: 2, Low: 1}, raftpb.Position{Index: 70}, 7); v != session.Fresh {
		t.Fatal(v)
	}
	g.proposals.OvertakeRouted(table, nil)
	if d := callers[1].duplicates; len(d) != 1 || d[0] != (outcome.Receipt{Index: 70, Term: 7}) {
		t.Errorf("call 2 is told %+v", d)
	}
	if bytes := g.proposals.Counts().Bytes; bytes != 2*proposals.BytesOf(make([]byte, CallRoom+1)) || len(callers[0].failed)+len(callers[2].failed) > 0 {
		t.Errorf("calls of %d bytes wait, want 2 calls", bytes)
	}
	late := session.New(session.Options{})
	late.Advance(1000 * time.Hour)
	g.proposals.OvertakeRouted(late, nil)
	for _, i := range []int{0, 2} {
		select {
		case err := <-callers[i].failed:
			if !outcome.MayHaveCommitted(err) {
				t.Errorf("call %d: %v", i+1, err)
			}
		default:
			t.Errorf("call %d waits", i+1)
		}
	}
}

// overtakenCaller notes that its command was applied before.
type overtakenCaller struct {
	*echoCaller
	duplicates []outcome.Receipt
}

func (c *overtakenCaller) Duplicate(r outcome.Receipt, _ []byte, _ bool) {
	c.duplicates = append(c.duplicates, r)
}

func someHash(b byte) (h [32]byte) {
	for i := range h {
		h[i] = b
	}
	return h
}
