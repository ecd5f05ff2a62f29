package host

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A member lacks an object that commands may name. It does not take the leadership over when it is told to;
// when it has the object, it does.
func TestLeadershipIsNotGivenToAMemberThatLacksAnObject(t *testing.T) {
	c := newObjectCluster(t, 71).start()
	h, l := c.follower(), c.leader()
	c.change = dropBlocks(h.id)
	u := l.begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) })
	ends := func() error {
		transfer := c.leader().group.StartTransfer(h.id)
		var err error
		c.load("the transfer ends", 0, func() bool {
			var done bool
			done, err = transfer.Poll()
			return done
		})
		return err
	}
	if err := ends(); err == nil || c.leader() != l {
		t.Errorf("the leadership was transferred to a member that lacks an object: %v", err)
	}
	c.change = nil
	c.load("the object arrives", 0, func() bool { return h.has(u.ID()) })
	if err := ends(); err != nil || c.leader() != h {
		t.Errorf("the leadership was not transferred to a member that lacks nothing: %v", err)
	}
}

// The files of an object that has gone stay while they are read, and go when the reader has ended,
// although nothing else happens in the group.
func TestFilesInUseAreRemovedLater(t *testing.T) {
	c := newObjectCluster(t, 72).start()
	h := c.follower()
	u := c.leader().begins(300_000, time.Second)
	c.load("it is held", 0, func() bool { return u.held(t) && h.has(u.ID()) })
	f, err := h.group.OpenObject(u.ID())
	if err != nil {
		t.Fatal(err)
	}
	c.load("it has expired, and the log behind that is gone", 2, func() bool {
		m := h.group.Metrics().Objects
		return m.Sets+m.Ended == 0 && m.Strays == 1
	})
	turns := 0
	for range 1000 {
		c.tick()
		if h.group.machine.objects.InUse() == 0 {
			turns++
		}
	}
	if !h.has(u.ID()) || turns > 1000/2 {
		t.Errorf("it is there: %v, while it is read; its removal was under way in %d of 1000 ticks", h.has(u.ID()), turns)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 * ticksPerHeartbeat {
		c.tick()
	}
	if h.has(u.ID()) {
		t.Error("its files are there, two heartbeats after the reader has ended")
	}
}

// What a leader remembers of the holds that it has proposed is bounded by the sets that are not held.
func TestProposedHoldsAreForgotten(t *testing.T) {
	c := newObjectCluster(t, 73).start()
	for range 20 {
		u := c.leader().begins(100, time.Hour)
		c.load("it is held", 0, func() bool { return u.held(t) })
	}
	u := c.leader().begins(100, time.Hour)
	c.load("one more is held", 0, func() bool { return u.held(t) })
	if n := c.leader().group.machine.objects.Proposed(); n > 2 {
		t.Errorf("the leader remembers %d holds, and all are applied", n)
	}
}

// The disk has changed bytes of an object, and the operator removes its directory as objects.md says. The
// snapshot has the same file under another name: the member sees that it is damaged, and fetches the object.
func TestADamagedObjectIsNotTakenFromASnapshot(t *testing.T) {
	c := newObjectCluster(t, 74).start()
	h := c.follower()
	u := c.leader().begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) && h.has(u.ID()) })
	c.load("the hold is applied", 1, func() bool { return h.group.Metrics().Objects.Unheld == 0 && h.group.Objects()[0].Held > 0 })
	taking := h.group.StartSnapshot()
	c.load("a snapshot is taken", 0, func() bool { _, done, _ := taking.Poll(); return done })
	if _, _, err := taking.Poll(); err != nil {
		t.Fatal(err)
	}
	h.crash(crashfs.LoseNothing)
	h.events = nil
	disk := h.disk.Mount()
	dir := filepath.Join(objectsDir("data", theGroup), u.ID().String(), "0000000000000001-0000000000000001")
	f, err := disk.Open(filepath.Join(dir, "part-00000000"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 1000); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close(), identity.RemoveTree(disk, filepath.Dir(dir))); err != nil {
		t.Fatal(err)
	}
	h.start()
	c.load("it is fetched", 0, func() bool { return h.has(u.ID()) })
	file, err := h.group.OpenObject(u.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if content, err := io.ReadAll(io.NewSectionReader(file, 0, file.Size())); err != nil || !bytes.Equal(content, make([]byte, 300_000)) {
		t.Errorf("%d other bytes, %v", len(content), err)
	}
	if n := count[event.ObjectReceived](h); n != 1 {
		t.Errorf("%d objects were fetched after the start, want 1", n)
	}
}

// The disk has changed bytes of an object while the host runs. Nothing reads the object, and VerifyObject
// finds the damage: the host fetches the object again. An object that is whole stays.
func TestAVerifiedObjectThatIsDamagedIsFetched(t *testing.T) {
	c := newObjectCluster(t, 75).start()
	h := c.follower()
	u := c.leader().begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) && h.has(u.ID()) })
	first, err := adminPort{h.process}.VerifyObject(t.Context(), theGroup, "")
	if err != nil || first.ID != u.ID().String() || first.Bytes != 300_000 || first.Damage != "" || first.Left != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if none, err := (adminPort{h.process}).VerifyObject(t.Context(), theGroup, first.ID); err != nil || none.ID != "" {
		t.Errorf("%+v, %v", none, err)
	}
	before := count[event.ObjectReceived](h)
	part := filepath.Join(objectsDir("data", theGroup), u.ID().String(), "0000000000000001-0000000000000001", "part-00000000")
	f, err := h.disk.Mount().Open(part)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 70_000); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if found, err := (adminPort{h.process}).VerifyObject(t.Context(), theGroup, ""); err != nil || !strings.Contains(found.Damage, part) {
		t.Fatalf("%+v, %v", found, err)
	}
	c.load("it is fetched", 0, func() bool { return h.has(u.ID()) })
	if err := h.group.VerifyObject(t.Context(), u.ID()); err != nil {
		t.Error(err)
	}
	if n := count[event.ObjectReceived](h); n != before+1 {
		t.Errorf("%d objects were fetched, want 1", n-before)
	}
	if err := h.group.VerifyObject(t.Context(), object.ID{1}); !errors.Is(err, files.ErrNotHere) {
		t.Error(err)
	}
}

// A member that lacks two objects with the same content fetches one after the other. It looks again after a
// heartbeat interval, not in each turn until then.
func TestWaitingForASlotIsNoBusyWait(t *testing.T) {
	c := newObjectCluster(t, 76).start()
	h := c.follower()
	c.change = dropBlocks(h.id)
	for range 2 {
		u := c.leader().begins(300_000, time.Hour)
		c.load("it is held", 0, func() bool { return u.held(t) })
	}
	lacks := func() int { return h.group.Metrics().Objects.Lacking }
	c.load("both are lacking", 0, func() bool { return lacks() == 2 })
	for range 10 * ticksPerHeartbeat {
		c.tick()
		if due := h.group.objectsDue(); due <= h.group.core.at.Ticks {
			t.Fatalf("after the turn of tick %d the objects are due in tick %d", h.group.core.at.Ticks, due)
		}
	}
	c.change = nil
	c.load("both arrive", 0, func() bool { return lacks() == 0 })
}

// The files of an object that no entry of the log names go after a restart, although nothing is committed any
// more.
func TestOrphansOfAQuietGroupGo(t *testing.T) {
	c := newObjectCluster(t, 77).start()
	h := c.follower()
	c.load("all is applied", 0, c.equal)
	h.crash(crashfs.LoseNothing)
	disk := h.disk.Mount()
	store, err := files.Open(disk, objectsDir("data", theGroup))
	if err != nil {
		t.Fatal(err)
	}
	orphan := object.ID{7, 7}
	putObject(t, store, orphan)
	h.start()
	if !h.has(orphan) {
		t.Fatal("setup: the orphan is not there")
	}
	last := c.leader().group.Status().LastIndex
	c.load("it goes", 0, func() bool { return !h.has(orphan) })
	if now := c.leader().group.Status().LastIndex; now != last {
		t.Errorf("the log has grown from entry %d to %d meanwhile", last, now)
	}
}
