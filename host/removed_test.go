package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// whileWaiting is a context that makes the workers of a manualEnv run when a call begins to wait.
type whileWaiting struct {
	context.Context
	run func()
}

func (w whileWaiting) Done() <-chan struct{} {
	w.run()
	return w.Context.Done()
}

// remove removes a group from a host whose workers run only here.
func remove(h *Host, s *manualEnv, id uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return h.RemoveGroup(whileWaiting{ctx, s.runIdle}, id)
}

// openGroup opens a group on a host of start, and gives it two entries of term 1 from host 2.
func openGroup(t *testing.T, h *Host, s *manualEnv, id uint64) (g *Group, err error) {
	t.Helper()
	g, err = h.OpenGroup(t.Context(), GroupConfig{ID: id}, &commands{})
	if err != nil {
		return nil, err
	}
	m := raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Term: 1, Entries: span(1, 3, 1), Commit: 2}
	(*inbound)(h).Receive(2, []transport.Envelope{{Group: id, Message: m}})
	s.runIdle()
	return g, nil
}

// A group that was removed stays removed when the host starts again, and its entries are gone. Others are as
// they were. A group that was never open can be removed as well.
func TestRemovedGroupStaysRemoved(t *testing.T) {
	disk := crashfs.New()
	h, s, err := start(disk, us())
	if err != nil {
		t.Fatal(err)
	}
	for id := uint64(2); id <= 4; id++ {
		if _, err := openGroup(t, h, s, id); err != nil {
			t.Fatal(err)
		}
	}
	removed := h.Group(3)
	for _, id := range []uint64{3, 9} {
		if err := remove(h, s, id); err != nil {
			t.Errorf("remove group %d: %v", id, err)
		}
	}
	if err := removed.Err(); !errors.Is(err, outcome.ErrRemoved) || h.Group(3) != nil {
		t.Errorf("the removed group ends with %v, want ErrRemoved", err)
	}
	if err := h.RemoveGroup(t.Context(), 0); err == nil {
		t.Error("group 0 can be removed")
	}
	for again := range 2 {
		for _, id := range []uint64{3, 9} {
			if _, err := h.OpenGroup(t.Context(), GroupConfig{ID: id}, &commands{}); !errors.Is(err, outcome.ErrRemoved) || !strings.Contains(err.Error(), fmt.Sprint(id)) {
				t.Errorf("start %d: OpenGroup of the removed group %d: %v", again, id, err)
			}
		}
		for id, want := range map[uint64]uint64{2: 2, 3: 0, 4: 2} {
			if last := h.storage.log.Group(id).LastIndex(); last != want {
				t.Errorf("start %d: the log of group %d ends at %d, want %d", again, id, last, want)
			}
		}
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again == 0 {
			if h, _, err = start(disk, us()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A group that is closed can be removed: its entries are deleted, too, and not only when the host starts
// again.
func TestRemoveOfAClosedGroupDeletesIt(t *testing.T) {
	disk := crashfs.New()
	h, s, err := start(disk, us())
	if err != nil {
		t.Fatal(err)
	}
	g, err := openGroup(t, h, s, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(whileWaiting{t.Context(), s.runIdle}); err != nil {
		t.Fatal(err)
	}
	if err := remove(h, s, 2); err != nil {
		t.Fatal(err)
	}
	s.runIdle()
	if last := h.storage.log.Group(2).LastIndex(); last != 0 {
		t.Errorf("the log of the removed group ends at %d, want 0", last)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The power fails at each operation of the disk while a group is removed. When the host starts again, either
// the group is as it was, or it is removed and its entries are gone. If RemoveGroup was done, it is removed.
func TestCrashWhileAGroupIsRemoved(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 11))
	kept, gone, swept := 0, 0, 0
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		for n, all := 1, false; !all; n++ {
			disk, left := crashfs.New(), n
			h, s, err := start(disk.Mount(), us())
			if err != nil {
				t.Fatal(err)
			}
			for id := uint64(2); id <= 3; id++ {
				if _, err := openGroup(t, h, s, id); err != nil {
					t.Fatal(err)
				}
			}
			disk.SetHook(func(crashfs.Op) error {
				if left--; left == 0 {
					disk.Crash(loss, rng.Uint64)
				}
				return nil
			})
			removed := remove(h, s, 2)
			disk.SetHook(nil)
			if all = left > 0; all {
				disk.Crash(loss, rng.Uint64)
				if removed != nil {
					t.Fatal(removed)
				}
			}
			h, s, err = start(disk.Mount(), us())
			if err != nil {
				t.Fatalf("%v at operation %d: %v", loss, n, err)
			}
			known := slices.Contains(h.storage.log.Deleted(), 2)
			switch last := h.storage.log.Group(2).LastIndex(); {
			case known && last == 0:
				gone++
				if !all {
					swept++
				}
			case !known && last == 2 && removed != nil:
				kept++
			default:
				t.Errorf("%v at operation %d, RemoveGroup said %v: the group is removed: %t, and its log ends at %d", loss, n, removed, known, last)
			}
			if last := h.storage.log.Group(3).LastIndex(); last != 2 {
				t.Errorf("%v at operation %d: the other group's log ends at %d, want 2", loss, n, last)
			}
			s.runIdle()
			if err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	if kept == 0 || gone == 0 || swept == 0 {
		t.Errorf("%d crashes left the group, %d removed it, %d of them before the end: each kind must be seen", kept, gone, swept)
	}
}

// A removal for which the disk has no space is an error that says so, and the group is not forgotten: it is
// closed, and can be removed when there is space. A group of another id goes on.
func TestRemovalWithoutSpace(t *testing.T) {
	disk := crashfs.New()
	h, s, err := start(disk, us())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openGroup(t, h, s, 2); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(noWrites)
	if err := remove(h, s, 2); !errors.Is(err, wal.ErrDiskFull) || !strings.Contains(err.Error(), "group 2 is not deleted") {
		t.Errorf("RemoveGroup says %v", err)
	}
	if last := h.storage.log.Group(2).LastIndex(); last != 2 {
		t.Errorf("the log of the group ends at %d, want 2", last)
	}
	disk.SetHook(nil)
	if err := remove(h, s, 2); err != nil || h.Group(2) != nil || !slices.Contains(h.storage.log.Deleted(), 2) {
		t.Errorf("with space again: %v; deleted: %t", err, slices.Contains(h.storage.log.Deleted(), 2))
	}
	if err := h.Group(theGroup).Err(); err != nil {
		t.Errorf("the other group has stopped: %v", err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// noWrites refuses everything that takes space or may take it.
func noWrites(op crashfs.Op) error {
	if op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpPreallocate {
		return syscall.ENOSPC
	}
	return nil
}
