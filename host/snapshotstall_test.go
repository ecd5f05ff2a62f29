package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A volatile machine may have applied what the disk of its host does not hold. A snapshot of that is
// published only when the disk holds it: otherwise a power cut leaves a snapshot of entries which this member
// never had, and the log does not reach it.
func TestASnapshotWaitsForTheLog(t *testing.T) {
	k := &keeper{}
	l := openTestHostWith(t, 3, func(*Config) {})
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Volatile: true, MaxCommandBytes: 1 << 10}, Commands(k, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.leadGroup(g)
	task := l.storage.lane.Task().(*manualTask)
	task.dead = true // the disk hangs
	if err := g.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), "a command"...)}); err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	for _, id := range l.others() {
		m := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1, From: id, To: 1}
		(*inbound)(l.Host).Receive(id, envelopes(2, m))
	}
	l.manual.runIdle()
	if len(k.list) != 1 || g.Status().Durable > begun {
		t.Fatalf("setup: %d commands are applied, %+v", len(k.list), g.Status())
	}
	s := g.StartSnapshot()
	for range 20 {
		l.manual.tick()
	}
	if _, ok := g.LatestSnapshot(); ok {
		t.Fatal("it is published before the log holds its last entry")
	}
	store, err := g.snapshots.Store()
	if err != nil {
		t.Fatal(err)
	}
	if ids := store.List(); len(ids) > 0 {
		t.Fatalf("%v is on the disk before the log holds its last entry", ids)
	}
	task.dead = false
	for range 8 {
		l.manual.tick()
	}
	if info, done, err := s.Poll(); !done || err != nil || info.Index != begun+1 {
		t.Fatalf("done %t, %+v, %v", done, info, err)
	}
}

// lanesInGoroutines runs the snapshot lanes of a manual host in goroutines, as in production, so that one
// can hang.
func lanesInGoroutines(h *keeperHost) (run func()) {
	return func() {
		for _, l := range h.bulk.snapshotLanes.All() {
			task := l.Task().(*manualTask)
			if !task.woken {
				continue
			}
			task.woken = false
			task.dead = true // runIdle leaves it alone
			done := make(chan struct{})
			go func() {
				defer close(done)
				for l.RunOnce() {
				}
			}()
			select {
			case <-done:
				task.dead = false
			case <-hangs:
			}
		}
	}
}

var hangs = make(chan struct{})

// A WriteTo that hangs holds one lane. It is reported, the group goes on, other groups take their snapshots,
// and Close of the group names what it waits for.
func TestASnapshotThatHangs(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	other := &keeper{}
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(other, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	h.leadAlone(g)
	h.call(t, nil, "a command")
	release, ended := make(chan struct{}), make(chan struct{})
	h.keeper.wrong = func(io.Writer) error {
		hangs <- struct{}{}
		<-release
		return errors.New("it hung")
	}
	for _, l := range h.bulk.snapshotLanes.All() {
		l.Task().(*manualTask).dead = true
	}
	s := h.group.StartSnapshot()
	h.manual.runIdle()
	for _, l := range h.bulk.snapshotLanes.All() {
		l.Task().(*manualTask).dead = false
	}
	run := lanesInGoroutines(h)
	run()
	if text := h.call(t, nil, "another"); !strings.HasPrefix(text, "the result") {
		t.Fatalf("the group does not go on: %q", text)
	}
	if err := g.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), "a command"...)}); err != nil {
		t.Fatal(err)
	}
	h.manual.runIdle()
	p := g.StartSnapshot()
	for range 8 {
		h.manual.tick()
	}
	if info, done, err := p.Poll(); !done || err != nil || info.Index == 0 {
		t.Fatalf("the other group's snapshot: %t, %+v, %v", done, info, err)
	}
	h.manual.now += snapshots.Stall
	h.manual.tick()
	if !slices.ContainsFunc(h.events, func(e event.Event) bool { v, is := e.(event.SnapshotStalled); return is && v.Group == theGroup }) {
		t.Error("no event reports it")
	}
	if d := h.group.Explain(); !d.Has(diagnosis.CodeSnapshotHangs) {
		t.Errorf("Explain says\n%v", d)
	}
	if n := len(h.bulk.snapshotLanes.All()); n != snapshots.LaneCount+1 {
		t.Errorf("%d lanes, want one more than %d", n, snapshots.LaneCount)
	}
	_ = h.group.leave(gone(t), outcome.ErrStopped, false) // its context has ended: it only begins
	h.manual.runIdle()
	err = h.group.Close(gone(t))
	if err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("Close of the group: %v", err)
	}
	if _, done, err := s.Poll(); !done || !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("the caller: %t, %v", done, err)
	}
	go func() { close(release); close(ended) }()
	<-ended
	if err := h.group.Close(soon(t)); err != nil {
		t.Errorf("after the machine has come back: %v", err)
	}
}

// soon ends only if something hangs.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// leadAlone makes a host that is alone lead another group.
func (h *keeperHost) leadAlone(g *Group) {
	h.manual.runIdle()
	g.Campaign()
	h.manual.runIdle()
}

// While a disk has no space for entries, the log is compacted all the same. That makes space, and the member
// goes on, although no file can be added.
func TestCompactionBesideAFullDisk(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 4, Disabled: true}}, false)
	h.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpPreallocate {
			return syscall.ENOSPC
		}
		return nil
	})
	for i := 0; !h.group.writes.append.Full.Load(); i++ {
		if i == 10_000 {
			t.Fatal("setup: the disk does not become full")
		}
		if err := h.group.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), strings.Repeat("x", 900)...)}); err != nil {
			t.Fatal(err)
		}
		h.manual.runIdle()
	}
	applied := len(h.keeper.list)
	h.keeper.list = []string{"little"} // so that it costs less than the log
	info := h.mustTake(t)
	if first := h.group.writes.storage.log.FirstIndex(); first <= 1 || first > info.Index+1 {
		t.Errorf("the log begins at %d behind a snapshot of %d", first, info.Index)
	}
	for range 20 {
		h.manual.tick()
	}
	if len(h.keeper.list) < 2 || h.group.writes.append.Full.Load() {
		t.Errorf("after the compaction %d commands are applied after %d, full: %t", len(h.keeper.list)-1, applied, h.group.writes.append.Full.Load())
	}
}

// A disk that writes other bytes than it was given is found when the snapshot is read back: the snapshot
// fails, and the log keeps everything.
func TestASnapshotIsReadBack(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 4, Disabled: true}}, false)
	for i := range 20 {
		h.call(t, nil, fmt.Sprint("command ", i))
	}
	list := slices.Clone(h.keeper.list)
	h.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && strings.Contains(op.Name, "part-") {
			return crashfs.Flip(1, 3)
		}
		return nil
	})
	if info, err := h.take(t); err == nil {
		t.Errorf("it is taken: %+v", info)
	} else if !snapshots.IsDamage(err) {
		t.Errorf("it fails with %v", err)
	}
	h.disk.SetHook(nil)
	if first := h.group.writes.storage.log.FirstIndex(); first != 1 {
		t.Errorf("the log begins at %d", first)
	}
	h.restart(t, crashfs.LoseAll, nil)
	if !slices.Equal(h.keeper.list, list) {
		t.Errorf("after a restart the machine has %q, want %q", h.keeper.list, list)
	}
	h.mustTake(t)
}

// A host, or a group, is closed at each step of a take. The callers are told, the view of the machine is
// closed once, and the next start has everything.
func TestCloseWhileASnapshotIsTaken(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for steps := range 12 {
			h := openKeeper(t, GroupConfig{}, false)
			for i := range 5 {
				h.call(t, nil, fmt.Sprint("command ", i))
			}
			list, k := slices.Clone(h.keeper.list), h.keeper
			s := h.group.StartSnapshot()
			later := h.group.StartSnapshot()
			for range steps {
				for _, task := range h.manual.tasks {
					if task.woken {
						task.woken = task.worker.RunOnce()
						break
					}
				}
			}
			if whole {
				if err := h.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			} else {
				h.group.Close(gone(t))
				h.manual.runIdle()
				if err := h.group.Close(gone(t)); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range []*Taking{s, later} {
				if _, done, err := s.Poll(); !done || err != nil && !errors.Is(err, outcome.ErrStopped) {
					t.Fatalf("after %d steps: done %t, %v", steps, done, err)
				}
			}
			for _, v := range k.views {
				if v.closed != 1 {
					t.Fatalf("after %d steps a view is closed %d times", steps, v.closed)
				}
			}
			h.restart(t, crashfs.LoseAll, nil)
			if !slices.Equal(h.keeper.list, list) {
				t.Fatalf("after %d steps and a restart the machine has %q, want %q", steps, h.keeper.list, list)
			}
		}
	}
}
