package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

const testDir = "data/objects"

func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func openStore(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(fs, testDir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(s *Store, id object.ID, b []byte) (Info, error) {
	w, err := s.Create(id, object.MaxBytes)
	if err != nil {
		return Info{}, err
	}
	if _, err := w.Write(b); err != nil {
		return Info{}, errors.Join(err, w.Abort())
	}
	info, err := w.Publish()
	if err != nil {
		return Info{}, errors.Join(err, w.Abort())
	}
	return info, nil
}

// fetch receives an object from another store, block by block.
func fetch(s, from *Store, id object.ID) error {
	source, err := from.Blocks(id)
	if err != nil {
		return err
	}
	defer source.Close()
	m := source.Manifest()
	r, err := s.Receive(context.Background(), id, m)
	if errors.Is(err, snapshot.ErrPublished) {
		return nil
	}
	if err != nil {
		return err
	}
	for missing := r.Missing(1); len(missing) > 0; missing = r.Missing(1) {
		raw, err := source.ReadBlocks(missing[0].Part, missing[0].Block, snapshot.BlockBytes)
		if err == nil {
			err = r.Put(missing[0].Part, missing[0].Block, raw)
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
	}
	if err := r.Finish(context.Background()); err != nil {
		return errors.Join(err, r.Close())
	}
	if err := r.Publish(); err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// An object is read as it was written, at any place, here and where it was fetched, also after a restart.
func TestObjectsAreReadAsWritten(t *testing.T) {
	for _, size := range []int{0, 1, snapshot.BlockBytes - 1, snapshot.BlockBytes, 3*snapshot.BlockBytes + 7, snapshot.PartBytes + 5} {
		disk, other := vfs.Memory(), vfs.Memory()
		id, want := object.ID{1, byte(size)}, content(uint64(size), size)
		s := openStore(t, disk)
		info, err := write(s, id, want)
		if err != nil || info.Bytes != int64(size) {
			t.Fatalf("%d bytes: %+v, %v", size, info, err)
		}
		if err := fetch(openStore(t, other), s, id); err != nil {
			t.Fatalf("%d bytes: fetch: %v", size, err)
		}
		for name, fs := range map[string]vfs.FS{"written": disk, "fetched": other} {
			s := openStore(t, fs)
			if all := s.List(); len(all) != 1 || all[0] != info {
				t.Fatalf("%d bytes, %s: %+v, want %+v", size, name, all, info)
			}
			for range 2 {
				if found, ok := s.FindHash(info.Hash); !ok || found != id {
					t.Fatalf("%d bytes, %s: FindHash: %v, %v, want %v", size, name, found, ok, id)
				}
			}
			f, err := s.OpenFile(id)
			if err != nil {
				t.Fatal(err)
			}
			m := f.r.Manifest()
			if err := RejectManifest(&m, info.Bytes, info.Hash); err != nil {
				t.Errorf("%d bytes, %s: %v", size, name, err)
			}
			if have, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size())); err != nil || !bytes.Equal(have, want) {
				t.Fatalf("%d bytes, %s: %d other bytes are read, %v", size, name, len(have), err)
			}
			for range 20 {
				off, n := rand.IntN(size+1), rand.IntN(200_000)
				have := make([]byte, n)
				n, err := f.ReadAt(have, int64(off))
				if end := min(off+len(have), size); n != end-off || !bytes.Equal(have[:n], want[off:end]) || (err == io.EOF) != (n < len(have)) || err != nil && err != io.EOF {
					t.Fatalf("%d bytes, %s: %d bytes from %d on: %d, %v", size, name, len(have), off, n, err)
				}
			}
			if err := s.Remove(id); !errors.Is(err, ErrBusy) {
				t.Errorf("an object that is read can be removed: %v", err)
			}
			if err := errors.Join(f.Close(), s.Verify(t.Context(), id), s.Remove(id), s.Remove(id)); err != nil {
				t.Errorf("%d bytes, %s: %v", size, name, err)
			}
			if names, _ := fs.ReadDir(testDir); len(names) > 0 {
				t.Errorf("%d bytes, %s: %q are left", size, name, names)
			}
			if found, ok := s.FindHash(info.Hash); ok {
				t.Errorf("%d bytes, %s: FindHash finds %v, which was removed", size, name, found)
			}
		}
	}
}

// What is wrong is refused with a sentence, and nothing is left of it.
func TestObjectsAreRefused(t *testing.T) {
	fs := vfs.Memory()
	s := openStore(t, fs)
	w, err := s.Create(object.ID{1}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 11)); err == nil {
		t.Error("more bytes than were asked for")
	}
	if _, err := s.Create(object.ID{1}, 10); !errors.Is(err, ErrBusy) {
		t.Errorf("one id is written twice: %v", err)
	}
	if err := errors.Join(w.Abort(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	if names, _ := fs.ReadDir(testDir); len(names) > 0 {
		t.Errorf("%q are left", names)
	}
	if _, err := s.OpenFile(object.ID{1}); !errors.Is(err, ErrNotHere) {
		t.Errorf("an object that was aborted is read: %v", err)
	}
	info, err := write(s, object.ID{1}, content(1, 70_000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := write(s, object.ID{1}, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("an object is written again: %v", err)
	}
	r, err := s.Blocks(object.ID{1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for what, change := range map[string]func(*snapshot.Manifest){
		"another length": func(m *snapshot.Manifest) { m.Parts = m.Parts[:0] },
		"another group":  func(m *snapshot.Manifest) { m.Group = 7 },
		"a file":         func(m *snapshot.Manifest) { m.Parts[0].Kind = snapshot.KindFile },
	} {
		m := r.Manifest()
		m.Parts = append([]snapshot.Part(nil), m.Parts...)
		change(&m)
		if RejectManifest(&m, info.Bytes, m.Hash()) == nil || RejectManifest(&m, info.Bytes, info.Hash) == nil {
			t.Errorf("%s: the manifest is taken", what)
		}
	}
}

// A bit of an object turns over on the disk: it is found when it is read, and by Verify; then the object is
// fetched again.
func TestDamagedObjectIsFetchedAgain(t *testing.T) {
	fs, other := vfs.Memory(), vfs.Memory()
	s, from := openStore(t, fs), openStore(t, other)
	id, want := object.ID{1}, content(3, 200_000)
	if _, err := write(from, id, want); err != nil {
		t.Fatal(err)
	}
	if err := fetch(s, from, id); err != nil {
		t.Fatal(err)
	}
	part, err := fs.Open(filepath.Join(testDir, id.String(), the.String(), "part-00000000"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = part.WriteAt([]byte{want[100_000] ^ 1}, 100_000)
	if err := errors.Join(err, part.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenFile(id)
	if err != nil {
		t.Fatal(err)
	}
	damage := (*snapshot.DamageError)(nil)
	if _, err := f.ReadAt(make([]byte, 10), 100_000); !errors.As(err, &damage) || damage.Block != 1 {
		t.Errorf("a wrong bit is read: %v", err)
	}
	f.Close()
	if _, here := s.Info(id); here || len(s.Damaged()) != 1 {
		t.Error("the object counts as whole")
	}
	if whole, ok := from.Info(id); !ok {
		t.Error("the source has lost it")
	} else if _, here := s.FindHash(whole.Hash); here {
		t.Error("FindHash finds a damaged object")
	}
	if err := fetch(s, from, id); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), id); err != nil || len(s.Damaged()) != 0 {
		t.Errorf("after it was fetched again: %v", err)
	}
}

// While an object is removed it cannot be received, in no step: what came would be in a directory that is
// gone.
func TestNothingIsReceivedIntoWhatIsRemoved(t *testing.T) {
	source := openStore(t, vfs.Memory())
	id := object.ID{1}
	if _, err := write(source, id, content(1, 100_000)); err != nil {
		t.Fatal(err)
	}
	blocks, err := source.Blocks(id)
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.Close()
	disk := crashfs.New()
	s := openStore(t, disk.Mount())
	if err := fetch(s, source, id); err != nil {
		t.Fatal(err)
	}
	ops, inside := 0, false
	disk.SetHook(func(crashfs.Op) error {
		if inside {
			return nil
		}
		inside = true
		defer func() { inside = false }()
		ops++
		if r, err := s.Receive(context.Background(), id, blocks.Manifest()); !errors.Is(err, ErrBusy) {
			t.Errorf("operation %d: a receive begins: %v, %v", ops, r, err)
		}
		return nil
	})
	err = s.Remove(id)
	disk.SetHook(nil)
	if err != nil || ops < 5 {
		t.Errorf("%d operations, %v", ops, err)
	}
	if err := fetch(s, source, id); err != nil {
		t.Errorf("after it was removed: %v", err)
	}
}

// A power cut before any operation of the disk leaves an object whole or not at all, once it was said to be
// here it is, and what is left of others can be removed or fetched.
func TestCrashesLeaveObjectsWhole(t *testing.T) {
	source := openStore(t, vfs.Memory())
	kept, made, fetched, removed := object.ID{1}, object.ID{2}, object.ID{3}, object.ID{4}
	all := map[object.ID][]byte{}
	for i, id := range []object.ID{kept, made, fetched, removed} {
		all[id] = content(uint64(i), 100_000*(i+1))
		if _, err := write(source, id, all[id]); err != nil {
			t.Fatal(err)
		}
	}
	disk := crashfs.New()
	must := map[object.ID]bool{}
	images, seen, ops := 0, map[string]bool{}, 0
	judge := func(image *crashfs.FS) error {
		s, err := Open(image, testDir)
		if err != nil {
			return err
		}
		if d := s.Damaged(); len(d) > 0 {
			return d[0]
		}
		for id := range must {
			if _, here := s.Info(id); !here {
				return fmt.Errorf("%v is lost", id)
			}
		}
		for _, info := range s.List() {
			if err := s.Verify(context.Background(), info.ID); err != nil {
				return err
			}
			if want, _ := source.Info(info.ID); want != info {
				return fmt.Errorf("%v is another object", info.ID)
			}
		}
		for id := range all { // the next process goes on, whatever is there
			if err := fetch(s, source, id); err != nil {
				return fmt.Errorf("fetch %v: %w", id, err)
			}
			if err := s.Remove(id); err != nil {
				return fmt.Errorf("remove %v: %w", id, err)
			}
		}
		if names, err := image.ReadDir(testDir); err != nil || len(names) > 0 {
			return fmt.Errorf("%q are left, %w", names, err)
		}
		return nil
	}
	disk.SetHook(func(op crashfs.Op) error {
		ops++
		switch op.Kind {
		case crashfs.OpOpen, crashfs.OpRead, crashfs.OpReadDir:
			return nil
		}
		for d, image := range disk.Images(6, uint64(ops)) {
			key := fmt.Sprint(image.Hash(), must)
			if seen[key] {
				continue
			}
			seen[key] = true
			images++
			if err := judge(image); err != nil {
				t.Fatalf("crash before operation %d, %v, of which %v: %v", ops, op.Kind, d, err)
			}
		}
		return nil
	})
	s := openStore(t, disk.Mount())
	step := func(id object.ID, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		must[id] = true
	}
	step(kept, func() error { return fetch(s, source, kept) })
	step(removed, func() error { return fetch(s, source, removed) })
	step(made, func() error { _, err := write(s, made, all[made]); return err })
	delete(must, removed)
	if err := s.Remove(removed); err != nil {
		t.Fatal(err)
	}
	step(fetched, func() error { return fetch(s, source, fetched) })
	disk.SetHook(nil)
	t.Logf("%d operations, %d images", ops, images)
	if images < 100 {
		t.Errorf("%d images, want at least 100", images)
	}
}
