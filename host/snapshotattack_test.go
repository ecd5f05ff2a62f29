package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
)

// A member has received a snapshot, and no leader is there for which it could install it. It takes one of its
// own, which is older. The one that it received must not displace it: only the older one fits the log.
func TestATakeBehindAReceivedSnapshot(t *testing.T) {
	c := newInstallCluster(t, 11)
	c.change1 = func(config *Config) { config.SnapshotBytesPerSecond = 256 << 10 }
	c.start()
	h := c.hosts[2]
	c.load("the log is compacted", 2, func() bool { return h.group.writes.storage.log.FirstIndex() > 1 })
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	c.load("it receives", 0, func() bool { return len(h.process.bulk.transfers.In()) > 0 })
	c.change = func(p *parcel) {
		if aboutSnapshots := len(p.body) > 0 && p.body[0] >= control.SnapshotOffer && p.body[0] <= control.SnapshotEnd; (p.to == 3 || p.from == 3) && p.kind != transport.Bulk && !aboutSnapshots {
			p.batch, p.body = nil, nil
		}
	}
	c.load("it has the snapshot and no leader", 0, func() bool {
		return count[event.SnapshotReceived](h) > 0 && h.group.Status().Leader == raft.None
	})
	taking := h.group.StartSnapshot()
	c.load("it takes one", 0, func() bool {
		_, done, _ := taking.Poll()
		return done
	})
	info, _, err := taking.Poll()
	if err != nil || count[event.SnapshotInstalled](h) > 0 || info.Index >= h.group.snapshots.Received.Load().ID.Index {
		t.Fatalf("setup: %+v, %v; %s", info, err, c.describe())
	}
	h.group.Close(gone(t))
	h.manual.runIdle()
	if err := h.group.Close(gone(t)); err != nil {
		t.Fatal(err)
	}
	h.machine = &slots{}
	h.group, err = h.process.OpenGroup(context.Background(), GroupConfig{ID: theGroup, Snapshots: SnapshotPolicy{LogBytes: 1 << 20}}, Commands(h.machine, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	c.change = nil
	c.load("all are equal", 0, c.equal)
}

// badKeeper is a keeper whose views do what a test says before they write, and before they close.
type badKeeper struct {
	keeper
	write, close func()
}

type badView struct {
	statemachine.Snapshot
	keeper *badKeeper
}

func (k *badKeeper) Snapshot() (statemachine.Snapshot, error) {
	v, err := k.keeper.Snapshot()
	return badView{v, k}, err
}

func (v badView) WriteTo(ctx context.Context, w io.Writer) error {
	v.keeper.write()
	return v.Snapshot.WriteTo(ctx, w)
}

func (v badView) Close() error {
	v.keeper.close()
	return v.Snapshot.Close()
}

// A machine panics in WriteTo, and again in Close, when what it has given is released. The snapshot has
// failed, and the host lives.
func TestAViewThatPanicsTwice(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	k := &badKeeper{write: func() { panic("in WriteTo") }, close: func() { panic("in Close") }}
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(k, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	h.leadAlone(g)
	if err := g.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), "a command"...)}); err != nil {
		t.Fatal(err)
	}
	h.manual.runIdle()
	take := func() (SnapshotInfo, error) {
		s := g.StartSnapshot()
		for range 8 {
			h.manual.tick()
		}
		info, done, err := s.Poll()
		if !done {
			t.Fatal("the snapshot is not done")
		}
		return info, err
	}
	if _, err := take(); err == nil || !strings.Contains(err.Error(), "in WriteTo") || !strings.Contains(err.Error(), "in Close") {
		t.Errorf("%v, want both panics", err)
	}
	k.write, k.close = func() {}, func() {}
	if info, err := take(); err != nil || info.Index == 0 {
		t.Errorf("the next one: %+v, %v", info, err)
	}
}

// halfKeeper has files in its snapshots, if a test says so, and no RestoreFiles.
type halfKeeper struct {
	keeper
	files []statemachine.File
}

type halfView struct {
	statemachine.Snapshot
	files []statemachine.File
}

func (v halfView) Files() []statemachine.File { return v.files }

func (k *halfKeeper) Snapshot() (statemachine.Snapshot, error) {
	v, err := k.keeper.Snapshot()
	return halfView{v, k.files}, err
}

// wholeKeeper is one that has it.
type wholeKeeper struct{ halfKeeper }

func (k *wholeKeeper) RestoreFiles(ctx context.Context, r io.Reader, _ statemachine.SnapshotFiles) error {
	return k.Restore(ctx, r)
}

// The files of a snapshot are never left out silently, neither when it is taken nor when it is restored.
func TestFilesNeedOneWhoRestoresThem(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	f, err := h.disk.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	files := []statemachine.File{{Name: "file", Path: "file"}}
	open := func(m statemachine.CommandMachine) (*Group, error) {
		g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(m, statemachine.CommandOptions{}))
		if err == nil {
			h.leadAlone(g)
		}
		return g, err
	}
	run := func(m statemachine.CommandMachine) error {
		g, err := open(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), "a command"...)}); err != nil {
			t.Fatal(err)
		}
		h.manual.runIdle()
		s := g.StartSnapshot()
		for range 8 {
			h.manual.tick()
		}
		_, done, err := s.Poll()
		if !done {
			t.Fatal("the snapshot is not done")
		}
		g.Close(gone(t))
		h.manual.runIdle()
		if err := g.Close(gone(t)); err != nil {
			t.Fatal(err)
		}
		return err
	}
	if err := run(&halfKeeper{files: files}); err == nil || !strings.Contains(err.Error(), "RestoreFiles") {
		t.Errorf("a snapshot with files of a machine that cannot restore them: %v", err)
	}
	if err := run(&halfKeeper{}); err != nil {
		t.Errorf("without files: %v", err)
	}
	if err := run(&wholeKeeper{halfKeeper{files: files}}); err != nil {
		t.Errorf("of a machine that restores them: %v", err)
	}
	if _, err := open(&halfKeeper{}); err == nil || !strings.Contains(err.Error(), "RestoreFiles") {
		t.Errorf("a machine that cannot restore files begins from them: %v", err)
	}
}

// A manifest has the right checksums of all blocks, and a wrong one of a part: the receiver can never
// finish it. It gives up after a while, and installs the next one.
func TestAPartThatNeverVerifies(t *testing.T) {
	oneGoroutine(t)
	for name, spoil := range map[string]func(*snapshot.Manifest){
		"a part": func(m *snapshot.Manifest) { m.Parts[0].SHA256[0] ^= 1 },
		"an empty part": func(m *snapshot.Manifest) {
			m.Parts = append(m.Parts, snapshot.Part{Kind: snapshot.KindMachine, Name: "nothing"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstallCluster(t, 6).start()
			c.isolate(3)
			c.load("log grows", 2, func() bool { return c.isBeyond(3) })
			s := &c.leader().group.snapshots
			right := s.Latest()
			m := right.Manifest
			m.Parts = slices.Clone(m.Parts)
			spoil(&m)
			s.Begin(snapshots.NewPublished(m, right.At), c.leader().group.writes.storage.log.FirstIndex(), s.Growth.PerEntry())
			c.heal()
			h := c.hosts[2]
			c.load("it gives up", 0, func() bool { return count[event.SnapshotTransferAborted](h) > 0 })
			if m := h.process.Metrics().Transfers; m.BytesReceived > 16*uint64(right.Bytes) {
				t.Errorf("it has received %d bytes of a snapshot of %d", m.BytesReceived, right.Bytes)
			}
			c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](h) > 0 })
			c.load("all are equal", 0, c.equal)
		})
	}
}

// A snapshot is due while one that was received is being installed, so it is put off. When that one is there,
// none is due until the log has grown again.
func TestATakeThatWasPutOff(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 2000}}, false)
	h.call(t, nil, "a command")
	h.mustTake(t)
	h.group.snapshots.Installing.Store(true)
	for i := range 40 {
		h.call(t, nil, fmt.Sprint("a command to make the log longer, number ", i))
		h.manual.tick()
	}
	taken := func() (n int) {
		for _, e := range h.events {
			if _, is := e.(event.SnapshotTaken); is {
				n++
			}
		}
		return n
	}
	before := taken()
	if before > 1 {
		t.Fatal("setup: it was not put off")
	}
	at := h.group.machine.apply.position()
	installed := h.group.snapshots.Latest().Manifest // stands for the one that is installed
	installed.Index, installed.Term = at.Index, at.Term
	h.group.snapshots.Publish(snapshots.NewPublished(installed, 1))
	h.group.snapshots.Installing.Store(false)
	for range 2 * ticksPerHeartbeat {
		h.manual.tick()
	}
	for range 3 {
		h.call(t, nil, "one more")
		for range 2 * ticksPerHeartbeat {
			h.manual.tick()
		}
	}
	if n := taken() - before; n > 0 {
		t.Errorf("%d more were taken, of three commands", n)
	}
	for i := range 40 {
		h.call(t, nil, fmt.Sprint("a command to make the log longer, number ", i))
	}
	for range 8 {
		h.manual.tick()
	}
	if taken() == before {
		t.Error("none was taken when the log had grown again")
	}
}

// Snapshots of a member have failed, and then it installs one that it has received. What is wrong is over.
func TestAnInstallEndsTheFailures(t *testing.T) {
	c := newInstallCluster(t, 7).start()
	h := c.hosts[2]
	c.load("something is applied", 1, func() bool { return h.group.Status().Applied > 5 })
	h.machine.refuses = errors.New("the machine refuses")
	taking := h.group.StartSnapshot()
	c.load("it fails", 0, func() bool {
		_, done, _ := taking.Poll()
		return done
	})
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	c.load("the member installs", 0, func() bool { return count[event.SnapshotInstalled](h) > 0 && c.equal() })
	for range 600 * h.process.config.electionTicks() {
		c.tick()
	}
	if m := h.group.Metrics().Snapshots; m.FailedInARow > 0 {
		t.Errorf("%d snapshots have failed, of a state that the latest one has: %+v", m.FailedInARow, m)
	}
	for _, cause := range h.group.Explain().Causes {
		t.Errorf("a cause: %v", cause)
	}
}
