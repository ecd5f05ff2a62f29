package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

const snapshotsDir = "data/snapshots"

func openSnapshots(t testing.TB, fs vfs.FS) *snapshot.Store {
	t.Helper()
	s, err := snapshot.OpenStore(fs, snapshotsDir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takeSnapshot publishes a snapshot of a group with these objects, and a state that is its index.
func takeSnapshot(snapshots *snapshot.Store, s *Store, index uint64, ids ...object.ID) (of snapshot.ID, err error) {
	of = snapshot.ID{Index: index, Term: 1}
	w, err := snapshots.Create(of)
	if err != nil {
		return of, err
	}
	if err := fillSnapshot(w, s, index, ids); err != nil {
		return of, errors.Join(err, w.Abort())
	}
	return of, snapshots.Verify(context.Background(), of)
}

func fillSnapshot(w *snapshot.Writer, s *Store, index uint64, ids []object.ID) error {
	state, err := w.Stream(snapshot.KindMachine, "state")
	if err == nil {
		_, err = fmt.Fprint(state, index)
	}
	if err == nil {
		err = state.Close()
	}
	for _, id := range ids {
		if err == nil {
			err = s.LinkInto(id, w)
		}
	}
	if err == nil {
		err = w.SyncParts()
	}
	if err == nil {
		err = w.Publish(snapshot.Manifest{Group: 7, Index: index, Term: 1})
	}
	return err
}

// sumOf is the SHA-256 of what a snapshot has of an object.
func sumOf(snapshots *snapshot.Store, of snapshot.ID, id object.ID) (sum [32]byte, err error) {
	r, err := snapshots.Open(of)
	if err != nil {
		return sum, err
	}
	defer r.Close()
	stream, err := r.Stream(snapshot.KindObject, id.String())
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	_, err = io.Copy(h, stream)
	return [32]byte(h.Sum(nil)), errors.Join(err, stream.Close())
}

// An object is linked into a snapshot and taken from it, here and at a member that has received the snapshot:
// the manifest is the one of its uploader, the content is the same file, and is neither read nor written.
func TestObjectsAreLinkedAndTaken(t *testing.T) {
	for _, size := range []int{0, 1, 3*snapshot.BlockBytes + 7, snapshot.PartBytes + 5} {
		disk, id, want := crashfs.New(), object.ID{1, 0xab}, content(uint64(size), size)
		s, snapshots := openStore(t, disk), openSnapshots(t, disk)
		info, err := write(s, id, want)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := readAll(disk, filepath.Join(testDir, id.String(), the.String(), "MANIFEST")); err != nil || int64(len(b)) != info.Manifest || sha256.Sum256(b) != info.Hash {
			t.Errorf("%d bytes: a manifest of %d bytes, and Info is %+v, %v", size, len(b), info, err)
		}
		touched := func(op crashfs.Op) error {
			if strings.HasPrefix(filepath.Base(op.Name), "part-") && op.Kind != crashfs.OpLink && op.Kind != crashfs.OpRemove {
				t.Errorf("%d bytes: %v", size, op)
			}
			return nil
		}
		w, err := snapshots.Create(snapshot.ID{Index: 5, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		disk.SetHook(touched)
		err = s.LinkInto(id, w)
		disk.SetHook(nil)
		if err := errors.Join(err, w.SyncParts(), w.Publish(snapshot.Manifest{Index: 5, Term: 1})); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := errors.Join(snapshots.Verify(t.Context(), snapshot.ID{Index: 5, Term: 1}), s.Remove(id)); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if have, err := sumOf(snapshots, snapshot.ID{Index: 5, Term: 1}, id); err != nil || have != sha256.Sum256(want) {
			t.Errorf("%d bytes: the snapshot has something else, %v", size, err)
		}
		disk.SetHook(touched)
		err = s.TakeFrom(id, info.Bytes, info.Hash, snapshots, snapshot.ID{Index: 5, Term: 1})
		disk.SetHook(nil)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if err := errors.Join(s.TakeFrom(id, info.Bytes, info.Hash, snapshots, snapshot.ID{Index: 5, Term: 1}), snapshots.Remove(snapshot.ID{Index: 5, Term: 1})); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for _, s := range []*Store{s, openStore(t, disk)} {
			if all := s.List(); len(all) != 1 || all[0] != info || s.Verify(t.Context(), id) != nil {
				t.Errorf("%d bytes: %+v, want %+v", size, all, info)
			}
		}
	}
}

func readAll(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

// A member that receives a snapshot is sent none of the objects that it has, and takes the others from it.
func TestMembersReceiveSnapshotsWithObjects(t *testing.T) {
	there, here := crashfs.New(), crashfs.New()
	theirs, mine := openStore(t, there), openStore(t, here)
	ids, infos := []object.ID{{1}, {2}}, []Info{}
	for i, id := range ids {
		info, err := write(theirs, id, content(uint64(i), 200_000))
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	sender := openSnapshots(t, there)
	of, err := takeSnapshot(sender, theirs, 5, ids...)
	if err != nil {
		t.Fatal(err)
	}
	if err := fetch(mine, theirs, ids[0]); err != nil {
		t.Fatal(err)
	}
	from, err := sender.Open(of)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var further []snapshot.Source
	for _, id := range ids {
		if source, ok := mine.Source(id); ok {
			further = append(further, source)
		}
	}
	snapshots := openSnapshots(t, here)
	to, err := snapshots.Receive(t.Context(), from.Manifest(), further...)
	if err != nil {
		t.Fatal(err)
	}
	if have, want := to.Progress(); len(further) != 1 || have != infos[0].Bytes || want != 2*infos[0].Bytes+1 {
		t.Errorf("%d sources, %d bytes of %d are there", len(further), have, want)
	}
	for missing := to.Missing(1); len(missing) > 0; missing = to.Missing(1) {
		raw, err := from.ReadBlocks(missing[0].Part, missing[0].Block, snapshot.BlockBytes)
		if err := errors.Join(err, to.Put(missing[0].Part, missing[0].Block, raw)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.Finish(t.Context()), to.Publish()); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if err := mine.TakeFrom(id, infos[i].Bytes, infos[i].Hash, snapshots, of); err != nil {
			t.Error(err)
		}
	}
	if all := mine.List(); !slices.Equal(all, infos) {
		t.Errorf("%+v, want %+v", all, infos)
	}
}

// What LinkInto and TakeFrom refuse, and that it changes nothing.
func TestTakingIsRefused(t *testing.T) {
	disk := crashfs.New()
	s, snapshots := openStore(t, disk), openSnapshots(t, disk)
	id, other := object.ID{1}, object.ID{2}
	info, err := write(s, id, content(1, 200_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeSnapshot(snapshots, s, 4, other); !errors.Is(err, ErrNotHere) {
		t.Errorf("an object that is not here is linked: %v", err)
	}
	of, err := takeSnapshot(snapshots, s, 5, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.TakeFrom(id, info.Bytes, [32]byte{1}, snapshots, of); err == nil || !strings.Contains(err.Error(), "another object") {
		t.Errorf("another object is here: %v", err)
	}
	if err := s.Remove(id); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"another hash":   s.TakeFrom(id, info.Bytes, [32]byte{1}, snapshots, of),
		"another length": s.TakeFrom(id, info.Bytes+1, info.Hash, snapshots, of),
	} {
		if err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", what, err)
		}
		t.Logf("%s: %v", what, err)
	}
	if err := s.TakeFrom(other, info.Bytes, info.Hash, snapshots, of); !errors.Is(err, ErrNotHere) {
		t.Errorf("the snapshot does not have it: %v", err)
	}
	if err := s.TakeFrom(id, info.Bytes, info.Hash, snapshots, snapshot.ID{Index: 9, Term: 1}); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("there is no snapshot: %v", err)
	}
	if names, err := disk.ReadDir(testDir); err != nil || len(names) > 0 {
		t.Errorf("%q are left, %v", names, err)
	}

	// The same bytes, cut in other places, are parts of another manifest.
	w, err := snapshots.Create(snapshot.ID{Index: 6, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := content(1, 200_000)
	for i, piece := range [][]byte{b[:snapshot.BlockBytes], b[snapshot.BlockBytes:]} {
		stream, err := w.Stream(snapshot.KindMachine, fmt.Sprint("piece-", i))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Write(piece)
		if err := errors.Join(err, stream.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.SyncParts(), w.Publish(snapshot.Manifest{Index: 6, Term: 1})); err != nil {
		t.Fatal(err)
	}
	m, _ := snapshots.Manifest(snapshot.ID{Index: 6, Term: 1})
	if w, err = snapshots.Create(snapshot.ID{Index: 7, Term: 1}); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Parts {
		p.Kind, p.Name = snapshot.KindObject, id.String()
		if err := w.Reuse(p, m.ID()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.SyncParts(), w.Publish(snapshot.Manifest{Index: 7, Term: 1})); err != nil {
		t.Fatal(err)
	}
	if err := s.TakeFrom(id, info.Bytes, info.Hash, snapshots, snapshot.ID{Index: 7, Term: 1}); err == nil {
		t.Error("parts that are cut otherwise are taken")
	}

	// While it is written, received or removed: not now.
	busy := func(when string) {
		t.Helper()
		if err := s.TakeFrom(id, info.Bytes, info.Hash, snapshots, of); !errors.Is(err, ErrBusy) {
			t.Errorf("while it is %s: %v", when, err)
		}
	}
	written, err := s.Create(id, 1)
	if err != nil {
		t.Fatal(err)
	}
	busy("written")
	if err := written.Abort(); err != nil {
		t.Fatal(err)
	}
	source := openStore(t, vfs.Memory())
	if _, err := write(source, id, b); err != nil {
		t.Fatal(err)
	}
	from, err := source.Blocks(id)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	r, err := s.Receive(t.Context(), id, from.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := from.ReadBlocks(0, 0, snapshot.BlockBytes)
	if err := errors.Join(err, r.Put(0, 0, raw)); err != nil {
		t.Fatal(err)
	}
	busy("received")
	if err := r.Put(0, 0, raw); err != nil {
		t.Errorf("the receive does not go on: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, unfinished := s.Unfinished(id); !unfinished {
		t.Error("what was received is gone")
	}

	// What was received in part is dropped.
	if err := errors.Join(s.TakeFrom(id, info.Bytes, info.Hash, snapshots, of), s.Verify(t.Context(), id)); err != nil {
		t.Error(err)
	}
	if names, _ := disk.ReadDir(filepath.Join(testDir, id.String(), the.String())); !slices.Equal(names, []string{"MANIFEST", "part-00000000"}) {
		t.Errorf("%q are there", names)
	}
	inside := false
	disk.SetHook(func(crashfs.Op) error {
		if !inside {
			inside = true
			if _, here := s.Info(id); !here {
				busy("removed")
			}
			inside = false
		}
		return nil
	})
	err = s.Remove(id)
	disk.SetHook(nil)
	if err != nil {
		t.Error(err)
	}
}

// A wrong bit is found in the object and in the snapshot. What is taken from a snapshot replaces a damaged
// object.
func TestDamageOfLinkedObjects(t *testing.T) {
	disk := crashfs.New()
	s, snapshots, id := openStore(t, disk), openSnapshots(t, linkless{disk}), object.ID{1}
	info, err := write(s, id, content(1, 200_000))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := takeSnapshot(snapshots, s, 5, id)
	if err != nil {
		t.Fatal(err)
	}
	snapshots = openSnapshots(t, disk)
	linked, err := takeSnapshot(snapshots, s, 6, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.FlipBit(filepath.Join(testDir, id.String(), the.String(), "part-00000000"), 100_000, 1); err != nil {
		t.Fatal(err)
	}
	damage := (*snapshot.DamageError)(nil)
	if err := s.Verify(t.Context(), id); !errors.As(err, &damage) || damage.Block != 1 {
		t.Errorf("the object: %v", err)
	}
	if err := snapshots.Verify(t.Context(), linked); !errors.As(err, &damage) || damage.ID != linked {
		t.Errorf("the snapshot: %v", err)
	}
	if _, err := takeSnapshot(snapshots, s, 7, id); !errors.As(err, &damage) && !errors.Is(err, ErrNotHere) {
		t.Errorf("a damaged object is linked: %v", err)
	}
	if err := s.TakeFrom(id, info.Bytes, info.Hash, snapshots, linked); !errors.As(err, &damage) {
		t.Errorf("an object is taken from a damaged snapshot: %v", err)
	}
	if err := errors.Join(s.TakeFrom(id, info.Bytes, info.Hash, snapshots, copied), s.Verify(t.Context(), id), snapshots.Verify(t.Context(), copied)); err != nil {
		t.Error(err)
	}
	if len(s.Damaged()) > 0 {
		t.Errorf("%v", s.Damaged())
	}
}

// TakeFrom fails where something was received in part: the same process can use the id again for anything.
func TestAFailedTakingLeavesNothing(t *testing.T) {
	source := openStore(t, vfs.Memory())
	id, b := object.ID{1}, content(1, 200_000)
	info, err := write(source, id, b)
	if err != nil {
		t.Fatal(err)
	}
	from, err := source.Blocks(id)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for what, next := range map[string]func(*Store, *snapshot.Store, snapshot.ID) error{
		"taken": func(s *Store, all *snapshot.Store, of snapshot.ID) error {
			return s.TakeFrom(id, info.Bytes, info.Hash, all, of)
		},
		"written":  func(s *Store, _ *snapshot.Store, _ snapshot.ID) error { _, err := write(s, id, b); return err },
		"received": func(s *Store, _ *snapshot.Store, _ snapshot.ID) error { return fetch(s, source, id) },
		"removed": func(s *Store, _ *snapshot.Store, _ snapshot.ID) error {
			return errors.Join(s.Remove(id), fetch(s, source, id))
		},
	} {
		disk := crashfs.New()
		s, snapshots := openStore(t, disk), openSnapshots(t, disk)
		if err := fetch(s, source, id); err != nil {
			t.Fatal(err)
		}
		of, err := takeSnapshot(snapshots, s, 5, id)
		if err := errors.Join(err, s.Remove(id)); err != nil {
			t.Fatal(err)
		}
		r, err := s.Receive(t.Context(), id, from.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		disk.SetHook(crashfs.FailNth(crashfs.OpLink, 1, syscall.EIO))
		err = s.TakeFrom(id, info.Bytes, info.Hash, snapshots, of)
		disk.SetHook(nil)
		if _, unfinished := s.Unfinished(id); unfinished || len(s.List()) > 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: something is left, or %v", what, err)
		}
		if names, _ := disk.ReadDir(testDir); len(names) > 0 {
			t.Errorf("%s: %q are left", what, names)
		}
		if err := errors.Join(next(s, snapshots, of), s.Verify(t.Context(), id)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// linkless is a filesystem without links.
type linkless struct{ vfs.FS }

func (l linkless) Link(from, to string) error {
	return fmt.Errorf("link %s: %w", from, errors.ErrUnsupported)
}

// Without links contents are copied, in both directions, and compared.
func TestObjectsAreCopiedWithoutLinks(t *testing.T) {
	disk := crashfs.New()
	fs, id := linkless{disk}, object.ID{1}
	s, snapshots := openStore(t, fs), openSnapshots(t, fs)
	info, err := write(s, id, content(1, 200_000))
	if err != nil {
		t.Fatal(err)
	}
	of, err := takeSnapshot(snapshots, s, 5, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Remove(id), s.TakeFrom(id, info.Bytes, info.Hash, snapshots, of), s.Verify(t.Context(), id)); err != nil {
		t.Fatal(err)
	}
	if have, _ := s.Info(id); have != info {
		t.Errorf("%+v, want %+v", have, info)
	}
	if err := s.Remove(id); err != nil {
		t.Fatal(err)
	}
	if err := disk.FlipBit(filepath.Join(snapshotsDir, of.String(), "part-00000001"), 100_000, 1); err != nil {
		t.Fatal(err)
	}
	damage := (*snapshot.DamageError)(nil)
	if err := s.TakeFrom(id, info.Bytes, info.Hash, snapshots, of); !errors.As(err, &damage) || damage.ID != of {
		t.Errorf("a wrong bit is copied: %v", err)
	}
	if names, _ := disk.ReadDir(testDir); len(names) > 0 || len(snapshots.Damaged()) != 1 {
		t.Errorf("%q are left; damaged are %v", names, snapshots.Damaged())
	}
	if _, err := write(s, id, nil); err != nil {
		t.Errorf("after it was refused, the object cannot be written: %v", err)
	}
}

// A group with as many objects as it may have, of as many bytes, has a snapshot: its manifest has space for
// them, and for the blocks of 8 GiB of other content.
func TestAllObjectsOfAGroupFitIntoASnapshot(t *testing.T) {
	most := object.Options{MaxSets: 32 << 10, MaxBytes: 192 << 30}
	if most.Validate() != nil || (object.Options{MaxSets: most.MaxSets + 1}).Validate() == nil || (object.Options{MaxBytes: most.MaxBytes + 1}).Validate() == nil {
		t.Fatalf("setup: %+v are not the bounds", most)
	}
	m := snapshot.Manifest{Index: 1, Term: 1}
	add := func(kind snapshot.Kind, name string, bytes int64) {
		for bytes > 0 {
			n := min(bytes, snapshot.PartBytes)
			m.Parts = append(m.Parts, snapshot.Part{Kind: kind, Name: name, Bytes: n, Sums: make([]uint32, (n+snapshot.BlockBytes-1)/snapshot.BlockBytes)})
			bytes -= n
		}
	}
	for i := range most.MaxSets { // one byte more than whole blocks wastes most
		add(snapshot.KindObject, object.ID{byte(i), byte(i >> 8), 1}.String(), most.MaxBytes/int64(most.MaxSets)-snapshot.BlockBytes+1)
	}
	add(snapshot.KindObject, object.ID{2}.String(), int64(most.MaxSets)*(snapshot.BlockBytes-1)) // to the bound of bytes
	add(snapshot.KindMachine, "state", 8<<30)
	if bytes := m.EncodedBytes(); bytes > snapshot.MaxManifestBytes {
		t.Errorf("the manifest takes %d bytes, and may take %d", bytes, snapshot.MaxManifestBytes)
	} else {
		t.Logf("the manifest takes %d bytes of %d", bytes, snapshot.MaxManifestBytes)
	}
}
