package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// life is a life of a group with objects on one disk: each is linked into snapshots, removed, and taken from
// snapshots. After a step, what it names must be there.
type life struct {
	source    *Store
	infos     map[object.ID]Info
	sums      map[object.ID][32]byte
	objects   map[object.ID]bool
	snapshots map[snapshot.ID]bool
}

var linkedIDs = []object.ID{{1}, {2}}

func newLife(t *testing.T) *life {
	l := &life{source: openStore(t, vfs.Memory()), infos: map[object.ID]Info{}, sums: map[object.ID][32]byte{}, objects: map[object.ID]bool{}, snapshots: map[snapshot.ID]bool{}}
	for i, id := range linkedIDs {
		b := content(uint64(i), 100_000*(i+1))
		info, err := write(l.source, id, b)
		if err != nil {
			t.Fatal(err)
		}
		l.infos[id], l.sums[id] = info, sha256.Sum256(b)
	}
	return l
}

// lifeStep is a step with what is there after it. While it runs, what before and after do not share may be
// there, whole.
type lifeStep struct {
	name      string
	do        func(s *Store, snapshots *snapshot.Store) error
	objects   []object.ID
	snapshots []snapshot.ID
}

func (l *life) steps() []lifeStep {
	a, b := linkedIDs[0], linkedIDs[1]
	five, six := snapshot.ID{Index: 5, Term: 1}, snapshot.ID{Index: 6, Term: 1}
	take := func(id object.ID, of snapshot.ID) func(*Store, *snapshot.Store) error {
		return func(s *Store, snapshots *snapshot.Store) error {
			return s.TakeFrom(id, l.infos[id].Bytes, l.infos[id].Hash, snapshots, of)
		}
	}
	half := func(s *Store, _ *snapshot.Store) error {
		from, err := l.source.Blocks(b)
		if err != nil {
			return err
		}
		defer from.Close()
		r, err := s.Receive(context.Background(), b, from.Manifest())
		if err != nil {
			return err
		}
		raw, err := from.ReadBlocks(0, 1, snapshot.BlockBytes)
		if err == nil {
			err = r.Put(0, 1, raw)
		}
		return errors.Join(err, r.Close())
	}
	return []lifeStep{
		{"fetch", func(s *Store, _ *snapshot.Store) error {
			return errors.Join(fetch(s, l.source, a), fetch(s, l.source, b))
		}, []object.ID{a, b}, nil},
		{"link one", func(s *Store, snapshots *snapshot.Store) error { return again(takeSnapshot(snapshots, s, 5, a)) }, []object.ID{a, b}, []snapshot.ID{five}},
		{"link both", func(s *Store, snapshots *snapshot.Store) error { return again(takeSnapshot(snapshots, s, 6, a, b)) }, []object.ID{a, b}, []snapshot.ID{five, six}},
		{"remove objects", func(s *Store, _ *snapshot.Store) error { return errors.Join(s.Remove(a), s.Remove(b)) }, nil, []snapshot.ID{five, six}},
		{"take one", take(a, five), []object.ID{a}, []snapshot.ID{five, six}},
		{"receive half of the other", half, []object.ID{a}, []snapshot.ID{five, six}},
		{"take the other", take(b, six), []object.ID{a, b}, []snapshot.ID{five, six}},
		{"prune", func(_ *Store, snapshots *snapshot.Store) error { return snapshots.Prune() }, []object.ID{a, b}, []snapshot.ID{six}},
		{"remove the snapshot", func(_ *Store, snapshots *snapshot.Store) error { return snapshots.Remove(six) }, []object.ID{a, b}, nil},
	}
}

// again makes a step one that may be done twice.
func again(_ snapshot.ID, err error) error {
	if errors.Is(err, snapshot.ErrPublished) {
		return nil
	}
	return err
}

// enter sets what must be there while a step runs, and leave what must be there after it.
func (l *life) enter(step lifeStep) {
	for id := range l.objects {
		l.objects[id] = slices.Contains(step.objects, id)
	}
	for id := range l.snapshots {
		l.snapshots[id] = slices.Contains(step.snapshots, id)
	}
}

func (l *life) leave(step lifeStep) {
	clear(l.objects)
	clear(l.snapshots)
	for _, id := range step.objects {
		l.objects[id] = true
	}
	for _, id := range step.snapshots {
		l.snapshots[id] = true
	}
}

// judge looks at a disk as the next process does: whatever is listed is whole, nothing is damaged, and what
// must be there is. Then objects are taken from the snapshots that have them, and everything can be removed.
func (l *life) judge(image vfs.FS) error {
	s, err := Open(image, testDir)
	if err != nil {
		return err
	}
	snapshots, err := snapshot.OpenStore(image, snapshotsDir)
	if err != nil {
		return err
	}
	if damaged := append(s.Damaged(), snapshots.Damaged()...); len(damaged) > 0 {
		return damaged[0]
	}
	for id, must := range l.objects {
		if _, here := s.Info(id); must && !here {
			return fmt.Errorf("%v is lost", id)
		}
	}
	for id, must := range l.snapshots {
		if must && !slices.Contains(snapshots.List(), id) {
			return fmt.Errorf("snapshot %v is lost", id)
		}
	}
	for _, info := range s.List() {
		if err := s.Verify(context.Background(), info.ID); err != nil || info != l.infos[info.ID] {
			return fmt.Errorf("%+v, want %+v: %w", info, l.infos[info.ID], err)
		}
	}
	for _, of := range snapshots.List() {
		if err := snapshots.Verify(context.Background(), of); err != nil {
			return err
		}
		m, err := snapshots.Manifest(of)
		if err != nil {
			return err
		}
		for _, id := range linkedIDs {
			if _, n := m.Find(snapshot.KindObject, id.String()); n == 0 {
				continue
			}
			if sum, err := sumOf(snapshots, of, id); err != nil || sum != l.sums[id] {
				return fmt.Errorf("snapshot %v has something else for %v, %w", of, id, err)
			}
			if err := s.TakeFrom(id, l.infos[id].Bytes, l.infos[id].Hash, snapshots, of); err != nil {
				return err
			}
		}
	}
	for _, of := range snapshots.List() {
		if err := snapshots.Remove(of); err != nil {
			return err
		}
	}
	for _, id := range linkedIDs {
		if err := errors.Join(fetch(s, l.source, id), s.Verify(context.Background(), id), s.Remove(id)); err != nil {
			return fmt.Errorf("%v: %w", id, err)
		}
	}
	if names, err := image.ReadDir(testDir); err != nil || len(names) > 0 {
		return fmt.Errorf("%q are left, %w", names, err)
	}
	return nil
}

// A power cut before any operation of the disk leaves each object and each snapshot whole or not at all, and
// no snapshot or object names parts that it lacks.
func TestCrashesLeaveLinkedObjectsWhole(t *testing.T) {
	for _, stale := range []bool{false, true} {
		l, disk := newLife(t), crashfs.New()
		disk.SetStale(stale)
		mount := disk.Mount()
		s, snapshots := openStore(t, mount), openSnapshots(t, mount)
		images, seen, ops, name := 0, map[string]bool{}, 0, ""
		disk.SetHook(func(op crashfs.Op) error {
			ops++
			switch op.Kind {
			case crashfs.OpOpen, crashfs.OpRead, crashfs.OpReadDir:
				return nil
			}
			for d, image := range disk.Images(12, uint64(ops)) {
				key := fmt.Sprint(image.Hash(), l.objects, l.snapshots)
				if seen[key] {
					continue
				}
				seen[key] = true
				images++
				if err := l.judge(image); err != nil {
					t.Fatalf("%s, crash before operation %d, %v, of which %v: %v", name, ops, op.Kind, d, err)
				}
			}
			return nil
		})
		for _, step := range l.steps() {
			name = step.name
			l.enter(step)
			if err := step.do(s, snapshots); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			l.leave(step)
		}
		disk.SetHook(nil)
		t.Logf("%d operations, %d images", ops, images)
		if images < 100 {
			t.Errorf("%d images, want at least 100", images)
		}
	}
}

// An operation of the disk fails. The step returns an error or has happened, what is listed is whole after
// any crash, and the same step succeeds in the next process.
func TestFaultsLeaveLinkedObjectsWhole(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 4
	}
	images := 0
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		for k := 1; ; k += stride {
			l, disk := newLife(t), crashfs.New()
			mount := disk.Mount()
			s, snapshots := openStore(t, mount), openSnapshots(t, mount)
			ops, hit := 0, false
			for _, step := range l.steps() {
				l.enter(step)
				disk.SetHook(func(crashfs.Op) error {
					if ops++; ops == k {
						hit = true
						return fault
					}
					return nil
				})
				err := step.do(s, snapshots)
				disk.SetHook(nil)
				if err != nil {
					if !errors.Is(err, fault) {
						t.Fatalf("%s, %v of operation %d: %v", step.name, fault, k, err)
					}
					for d, image := range disk.Images(3, uint64(k)) {
						images++
						if err := l.judge(image); err != nil {
							t.Fatalf("%s, %v of operation %d, then a crash, %v: %v", step.name, fault, k, d, err)
						}
					}
					disk.Crash(crashfs.LoseNothing, nil)
					mount = disk.Mount()
					s, snapshots = openStore(t, mount), openSnapshots(t, mount)
					for _, of := range snapshots.List() {
						if err := snapshots.Verify(t.Context(), of); err != nil {
							t.Fatalf("%s, %v of operation %d, the next process: %v", step.name, fault, k, err)
						}
					}
					if err := step.do(s, snapshots); err != nil && !errors.Is(err, snapshot.ErrNotFound) { // it was removed
						t.Fatalf("%s, %v of operation %d, again: %v", step.name, fault, k, err)
					}
				}
				l.leave(step)
				if err == nil {
					continue
				}
				for d, image := range disk.Images(2, uint64(k)) {
					images++
					if err := l.judge(image); err != nil {
						t.Fatalf("%s again, after %v of operation %d, then a crash, %v: %v", step.name, fault, k, d, err)
					}
				}
			}
			if !hit {
				break
			}
		}
	}
	t.Logf("%d images", images)
}
