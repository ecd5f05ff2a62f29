package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A snapshot is read as it was written, by the process that wrote it and by the next one, on every
// filesystem.
func TestTakeAndRead(t *testing.T) {
	for name, disk := range map[string]vfs.FS{"memory": vfs.Memory(), "crashfs": crashfs.New()} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, disk)
			if id, found := store.Latest(); found {
				t.Fatalf("an empty store has %v", id)
			}
			src := sample(5)
			must(t, src.take(disk, store))
			must(t, src.compare(store))
			again := openStore(t, disk)
			must(t, src.compare(again))
			if again.Verified(src.id) {
				t.Error("verified, and nothing was read")
			}
			must(t, again.Verify(context.Background(), src.id))
			if !again.Verified(src.id) {
				t.Error("not verified after Verify")
			}
			if _, err := again.Create(src.id); !errors.Is(err, ErrPublished) {
				t.Errorf("create of a published snapshot: %v", err)
			}
		})
	}
}

// counting counts what is read.
type counting struct {
	vfs.FS
	bytes *atomic.Int64
}

func (c counting) SameFile(a, b string) (bool, error) { return vfs.SameFile(c.FS, a, b) }

func (c counting) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.bytes}, nil
}

type countingFile struct {
	vfs.File
	bytes *atomic.Int64
}

func (f countingFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.bytes.Add(int64(n))
	return n, err
}

// A file that the newest verified snapshot has already is linked and not read, also when the snapshot is
// verified; another file under its name is read.
func TestUnchangedFileIsNotRead(t *testing.T) {
	var bytes atomic.Int64
	disk := counting{vfs.OS(), &bytes}
	root := t.TempDir()
	put := func(text []byte) string {
		t.Helper()
		name := filepath.Join(root, "machine.sst")
		_ = os.Remove(name)
		must(t, os.WriteFile(name, text, 0o600))
		return name
	}
	text := content(3, 3*BlockBytes)
	file := put(text)
	store := value(OpenStore(disk, filepath.Join(root, "snapshots")))(t)
	take := func(index uint64, verify bool, want int64) {
		t.Helper()
		w := value(store.Create(ID{index, 1}))(t)
		before := bytes.Load()
		p := value(w.Link("machine.sst", file))(t)
		if n := bytes.Load() - before; n != want {
			t.Errorf("for snapshot %d %d bytes were read, want %d", index, n, want)
		}
		if p.SHA256 != sha256.Sum256(value(os.ReadFile(file))(t)) {
			t.Errorf("the part of snapshot %d is not the file", index)
		}
		must(t, w.SyncParts())
		m := sample(7).manifest()
		m.Index, m.Term = index, 1
		must(t, w.Publish(m))
		if verify {
			before := bytes.Load()
			must(t, store.Verify(context.Background(), ID{index, 1}))
			if n := bytes.Load() - before; n < want || n >= want+int64(len(text)) {
				t.Errorf("to verify snapshot %d %d bytes were read, want %d and the manifest", index, n, want)
			}
		}
	}
	whole := int64(len(text))
	take(1, false, whole)
	take(2, true, whole) // the first was not verified
	take(3, true, 0)
	must(t, store.Prune())
	take(4, true, 0)
	file = put(content(4, 3*BlockBytes))
	take(5, true, whole)
	file = put(content(4, 3*BlockBytes))
	take(6, true, whole) // the same content, and another file

	// A file that has rotted since it was verified is found when the store is opened again.
	f := value(os.OpenFile(file, os.O_WRONLY, 0))(t)
	_, err := f.WriteAt([]byte{^content(4, 1)[0]}, 0)
	must(t, errors.Join(err, f.Close()))
	w := value(store.Create(ID{7, 1}))(t)
	_ = value(w.Link("machine.sst", file))(t)
	must(t, w.SyncParts())
	m := sample(7).manifest()
	m.Index, m.Term = 7, 1
	must(t, w.Publish(m))
	must(t, store.Verify(context.Background(), ID{7, 1}))
	again := value(OpenStore(disk, filepath.Join(root, "snapshots")))(t)
	damage := (*DamageError)(nil)
	if err := again.Verify(context.Background(), ID{7, 1}); !errors.As(err, &damage) {
		t.Errorf("Verify of a snapshot with a file that has rotted: %v", err)
	}
}

// The same on the machine's disk, where links are links.
func TestOnTheMachinesDisk(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "machine.sst")
	text := content(3, 3*BlockBytes)
	f := value(vfs.OS().Create(file))(t)
	_, err := f.WriteAt(text, 0)
	must(t, errors.Join(err, f.Close()))
	store := value(OpenStore(vfs.OS(), filepath.Join(root, "snapshots")))(t)
	w := value(store.Create(ID{7, 1}))(t)
	p := value(w.Link("machine.sst", file))(t)
	must(t, vfs.OS().Remove(file))
	must(t, w.SyncParts())
	m := sample(7).manifest()
	m.Term = 1
	must(t, w.Publish(m))
	must(t, store.Verify(context.Background(), ID{7, 1}))

	w = value(store.Create(ID{9, 1}))(t)
	must(t, w.Reuse(p, ID{7, 1}))
	must(t, w.SyncParts())
	m.Index = 9
	must(t, w.Publish(m))
	must(t, store.Verify(context.Background(), ID{9, 1}))
	must(t, store.Prune())
	if have := store.List(); !slices.Equal(have, []ID{{9, 1}}) {
		t.Fatalf("after Prune: %v", have)
	}
	r := value(store.Open(ID{9, 1}))(t)
	defer r.Close()
	must(t, r.Link("machine.sst", file))
	in := value(r.Stream(KindFile, "machine.sst"))(t)
	if have := value(io.ReadAll(in))(t); !slices.Equal(have, text) {
		t.Error("the file has other bytes")
	}
	if _, err := r.Stream(KindFile, "other"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// A stream longer than a part is split, and read as one; its length in blocks is whole or not.
func TestStreamsAreSplitIntoParts(t *testing.T) {
	disk := vfs.Memory()
	store := openStore(t, disk)
	w := value(store.Create(ID{1, 1}))(t)
	out := value(w.Stream(KindMachine, "state"))(t)
	piece := make([]byte, 10<<20)
	for i := range 13 {
		for k := 0; k < len(piece); k += 4096 {
			piece[k] = byte(i + 1)
		}
		if n, err := out.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := w.Stream(KindHost, "sessions"); err == nil {
		t.Error("two streams are open")
	}
	must(t, out.Close())
	if len(w.Parts()) != 3 || w.Parts()[0].Bytes != PartBytes || w.Parts()[2].Bytes != 2<<20 {
		t.Fatalf("%d parts", len(w.Parts()))
	}
	must(t, w.SyncParts())
	must(t, w.Publish(Manifest{Index: 1, Term: 1}))
	must(t, store.Verify(context.Background(), ID{1, 1}))
	r := value(store.Open(ID{1, 1}))(t)
	in := value(r.Stream(KindMachine, "state"))(t)
	for i := range 13 {
		if _, err := io.ReadFull(in, piece); err != nil {
			t.Fatal(err)
		}
		if piece[0] != byte(i+1) || piece[10<<20-4096] != byte(i+1) {
			t.Fatalf("piece %d has the bytes of %d", i, piece[0])
		}
	}
	if n, err := in.Read(piece); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}

// Prune keeps the newest verified snapshot and everything newer, what the caller names, and what is being
// read.
func TestPrune(t *testing.T) {
	disk := crashfs.New()
	store := openStore(t, disk)
	for _, index := range []uint64{1, 2, 3, 4} {
		must(t, sample(index).take(disk, store))
	}
	store = openStore(t, disk)
	must(t, store.Prune())
	if have := store.List(); len(have) != 4 {
		t.Fatalf("nothing is verified, and Prune left %v", have)
	}
	must(t, store.Verify(context.Background(), ID{3, 2}))
	r := value(store.Open(ID{1, 2}))(t)
	if err := store.Remove(ID{1, 2}); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	must(t, store.Prune(ID{2, 2}))
	if have := fmt.Sprint(store.List()); have != fmt.Sprint([]ID{{1, 2}, {2, 2}, {3, 2}, {4, 2}}) {
		t.Fatalf("after Prune: %v", have)
	}
	must(t, r.Close())
	must(t, r.Close())
	must(t, store.Prune())
	if have := fmt.Sprint(store.List()); have != fmt.Sprint([]ID{{3, 2}, {4, 2}}) {
		t.Fatalf("after Prune: %v", have)
	}
	if names := value(disk.ReadDir(testDir))(t); len(names) != 2 {
		t.Errorf("directories %v", names)
	}
	must(t, store.Remove(ID{4, 2}))
	if err := store.Remove(ID{4, 2}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	must(t, sample(3).compare(openStore(t, disk)))
}

// Every byte of every file counts: with one bit turned over, Verify and the readers say which file it is, and
// the snapshot is not offered any more.
func TestDamageIsFound(t *testing.T) {
	src := sample(5)
	for _, name := range []string{"MANIFEST", "part-00000000", "part-00000001", "part-00000003"} {
		disk := crashfs.New()
		store := openStore(t, disk)
		must(t, src.take(disk, store))
		file := filepath.Join(testDir, src.id.String(), name)
		size := value(value(disk.Open(file))(t).Size())(t)
		for _, off := range []int64{0, size / 2, size - 1} {
			must(t, disk.FlipBit(file, off, 3))
			again, opened := openStore(t, disk), false
			if again.List() != nil {
				opened = true
				err := src.compare(again)
				var damage *DamageError
				if !errors.As(err, &damage) || damage.File != file {
					t.Errorf("%s, byte %d: a reader says %v", name, off, err)
				}
				again = openStore(t, disk)
				if err := again.Verify(context.Background(), src.id); !errors.As(err, &damage) || damage.File != file {
					t.Errorf("%s, byte %d: Verify says %v", name, off, err)
				}
			}
			if opened == (name == "MANIFEST") {
				t.Errorf("%s, byte %d: in the list at open: %v", name, off, opened)
			}
			if len(again.List()) != 0 || len(again.Damaged()) != 1 {
				t.Errorf("%s, byte %d: list %v, damaged %v", name, off, again.List(), again.Damaged())
			}
			if _, err := again.Open(src.id); err == nil {
				t.Errorf("%s, byte %d: a damaged snapshot is opened", name, off)
			}
			must(t, disk.FlipBit(file, off, 3))
		}
	}
}

// A damaged snapshot can be taken again, and goes when a newer one is verified.
func TestDamagedSnapshotsGo(t *testing.T) {
	disk := crashfs.New()
	store := openStore(t, disk)
	must(t, sample(5).take(disk, store))
	must(t, disk.FlipBit(filepath.Join(testDir, sample(5).id.String(), "MANIFEST"), 9, 0))
	store = openStore(t, disk)
	must(t, sample(5).take(disk, store))
	must(t, sample(5).compare(openStore(t, disk)))
	must(t, disk.FlipBit(filepath.Join(testDir, sample(5).id.String(), "MANIFEST"), 9, 0))
	store = openStore(t, disk)
	must(t, sample(6).take(disk, store))
	if len(store.Damaged()) != 1 {
		t.Fatal(store.Damaged())
	}
	must(t, store.Prune())
	if names := value(disk.ReadDir(testDir))(t); len(store.Damaged()) != 0 || !slices.Equal(names, []string{sample(6).id.String()}) {
		t.Error(store.Damaged(), names)
	}
}

// A writer refuses what would make no snapshot.
func TestWriterRefuses(t *testing.T) {
	disk := crashfs.New()
	store := openStore(t, disk)
	stream := func(w *Writer, kind Kind, name string) error {
		out, err := w.Stream(kind, name)
		if err != nil {
			return err
		}
		return out.Close()
	}
	src := sample(3)
	for what, wrong := range map[string]func(w *Writer) error{
		"a name twice":        func(w *Writer) error { return errors.Join(stream(w, KindMachine, "a"), stream(w, KindMachine, "a")) },
		"a name that escapes": func(w *Writer) error { return stream(w, KindMachine, "a/../b") },
		"an empty name":       func(w *Writer) error { return stream(w, KindMachine, "") },
		"a file as a stream":  func(w *Writer) error { return stream(w, KindFile, "a") },
		"no such file":        func(w *Writer) error { _, err := w.Link("a", "/none"); return err },
		"publish before sync": func(w *Writer) error { return errors.Join(stream(w, KindMachine, "a"), w.Publish(src.manifest())) },
		"another snapshot": func(w *Writer) error {
			return errors.Join(w.SyncParts(), w.Publish(sample(4).manifest()))
		},
	} {
		w := value(store.Create(src.id))(t)
		if _, err := store.Create(ID{9, 9}); !errors.Is(err, ErrBusy) {
			t.Errorf("two writers: %v", err)
		}
		if err := wrong(w); err == nil {
			t.Errorf("%s is taken", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
		must(t, w.Abort())
		must(t, w.Abort())
		if _, err := w.Stream(KindHost, "a"); !errors.Is(err, ErrEnded) {
			t.Errorf("after Abort: %v", err)
		}
	}
	if names := value(disk.ReadDir(testDir))(t); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
	if _, err := store.Create(ID{}); err == nil {
		t.Error("a snapshot of nothing")
	}
}

// When the sync after the removal of a MANIFEST fails, another sync proves nothing. The directory stays as it
// is until the next process opens the store; otherwise a power cut could leave a MANIFEST without its parts.
func TestRemovalIsNotTriedAgainAfterAFailedSync(t *testing.T) {
	one, two := sample(5), sample(6)
	disk, store := published(t, one, two)
	disk.SetHook(crashfs.FailNth(crashfs.OpSyncDir, 1, syscall.EIO))
	if err := store.Prune(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	must(t, store.Prune())
	if err := store.Remove(one.id); !errors.Is(err, syscall.EIO) {
		t.Errorf("removed after all: %v", err)
	}
	if _, err := store.Create(one.id); !errors.Is(err, syscall.EIO) {
		t.Errorf("written again: %v", err)
	}
	if _, found := store.Latest(); !found || len(store.List()) != 1 {
		t.Error(store.List())
	}
	image := openStore(t, disk.Image(crashfs.LoseAll, nil))
	if len(image.Damaged()) != 0 {
		t.Error(image.Damaged())
	}
	must(t, two.compare(image))
	disk.Crash(crashfs.LoseNothing, nil)
	store = openStore(t, disk)
	if names := value(disk.ReadDir(testDir))(t); len(names) != 1 {
		t.Errorf("the next process left %v", names)
	}
	must(t, two.compare(store))
}
