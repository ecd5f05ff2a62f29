package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
)

// put applies puts of the keys [lo, hi) at the indexes after the last one.
func (s *store) put(t *testing.T, lo, hi int, value []byte) {
	t.Helper()
	var batch []millrace.Command[server.Command]
	for k := range hi - lo {
		batch = append(batch, millrace.Command[server.Command]{
			Index: s.meta.applied + 1 + uint64(k), Value: server.Command{Op: server.Put, Key: fmt.Sprint(lo + k), Value: value},
		})
	}
	if err := s.Apply(batch, make([]server.Result, len(batch))); err != nil {
		t.Fatal(err)
	}
}

func openIn(t *testing.T, fs vfs.FS) *store {
	t.Helper()
	s, err := openStore(fs, "state")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sent is a snapshot as a member gets it: millrace.SnapshotFiles.
type sent struct {
	stream []byte
	files  map[string][]byte
	to     vfs.FS
}

// send takes a snapshot of a store.
func send(t *testing.T, s *store) *sent {
	t.Helper()
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return written(t, s, snap)
}

// written writes a snapshot, and closes it.
func written(t *testing.T, s *store, snap millrace.Snapshot) *sent {
	t.Helper()
	var stream bytes.Buffer
	if err := snap.WriteTo(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	f := &sent{stream: stream.Bytes(), files: map[string][]byte{}}
	for _, file := range snap.(millrace.FileSnapshot).Files() {
		r, err := s.fs.Open(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		if f.files[file.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *sent) Names() (names []string) {
	for name := range f.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *sent) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.files[name])), nil
}

// Link makes a file whose content is durable and whose name is not, as a link to a part is.
func (f *sent) Link(name, path string) error {
	return writeFile(f.to, path, bytes.NewReader(f.files[name]))
}

// restore restores a store. A panic of Pebble is an error, as it is to the host.
func (f *sent) restore(s *store) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	f.to = s.fs
	return s.RestoreFiles(context.Background(), bytes.NewReader(f.stream), f)
}

// twoStates returns a store with one state below fs, and a snapshot with another one.
func twoStates(t *testing.T, fs vfs.FS) (s *store, f *sent, was, will meta) {
	t.Helper()
	from := openIn(t, vfs.NewMem())
	from.put(t, 0, 300, bytes.Repeat([]byte("new"), 100))
	f, will = send(t, from), from.meta
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, fs)
	s.put(t, 100, 200, []byte("old"))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	return s, f, s.meta, will
}

// A power cut at any moment of a restore leaves the old state or the new one, and nothing else; after it, the
// new one.
func TestRestoreIsCutAnywhere(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var images []*vfs.MemFS
	var watching atomic.Bool
	rng := rand.New(rand.NewPCG(1, 1))
	image := func() {
		images = append(images, disk.CrashClone(vfs.CrashCloneCfg{}), disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
	}
	var turn = make(chan struct{}, 1) // Pebble works in several goroutines
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if watching.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			turn <- struct{}{}
			image()
			<-turn
		}
		return nil
	}))
	s, f, was, will := twoStates(t, fs)
	watching.Store(true)
	if err := f.restore(s); err != nil {
		t.Fatal(err)
	}
	watching.Store(false)
	during := len(images)
	turn <- struct{}{}
	image()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for i, disk := range images {
		s := openIn(t, disk)
		switch {
		case s.meta == was && i < during:
			found["old"]++
		case s.meta == will:
			found["new"]++
		default:
			t.Errorf("image %d of %d has %+v, want %+v or %+v", i, len(images), s.meta, was, will)
		}
		wantTidy(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("states of %d images: %v", len(images), found)
	if found["old"] == 0 || found["new"] == 0 {
		t.Errorf("the images have %v, want both states", found)
	}
}

// wantTidy fails the test if more than one database is there, or a checkpoint.
func wantTidy(t *testing.T, s *store) {
	t.Helper()
	names, err := s.fs.List(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	databases := 0
	for _, name := range names {
		if strings.HasPrefix(name, databasePrefix) {
			databases++
		}
		if strings.HasPrefix(name, checkpointPrefix) {
			t.Errorf("%s is still there", name)
		}
	}
	if databases != 1 {
		t.Errorf("after the start there is %v, want one database", names)
	}
}

// When an operation of the disk fails during a restore, the store has the old state, and says so, or the new
// one.
func TestRestoreFails(t *testing.T) {
	failed := 0
	for n := 0; ; n++ {
		disk := vfs.NewMem()
		var left atomic.Int64
		left.Store(1 << 40)
		var broke atomic.Bool
		fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && !endsProcess(op) && left.Add(-1) == 0 {
				broke.Store(true)
				return errorfs.ErrInjected
			}
			return nil
		}))
		s, f, was, will := twoStates(t, fs)
		left.Store(int64(n) + 1)
		err := f.restore(s)
		left.Store(1 << 40)
		if err != nil {
			failed++
			if s.meta != was {
				t.Errorf("operation %d: %v, and the state is %+v, want %+v", n, err, s.meta, was)
			}
			if i, found, err := s.Get("150"); err != nil || !found || string(i.Value) != "old" {
				t.Errorf("operation %d: after a restore that has failed key 150 is %q, %t, %v", n, i.Value, found, err)
			}
		} else if s.meta != will {
			t.Errorf("operation %d: the state is %+v, want %+v", n, s.meta, will)
		}
		again := openIn(t, copyOf(t, disk))
		if again.meta != was && again.meta != will || err == nil && again.meta != will {
			t.Errorf("operation %d: after %v the next start has %+v, want %+v or %+v", n, err, again.meta, was, will)
		}
		again.abandon()
		s.abandon()
		if !broke.Load() {
			break
		}
	}
	if t.Logf("%d operations made a restore fail", failed); failed < 20 {
		t.Error("want at least 20")
	}
}

// endsProcess reports whether Pebble ends the process if this operation fails, in a goroutine of its own:
// TestRestoreIsCutAnywhere has what that leaves.
func endsProcess(op errorfs.Op) bool {
	base := op.Path[strings.LastIndexByte(op.Path, '/')+1:]
	return strings.Contains(base, "MANIFEST-") || op.Kind == errorfs.OpFileSync && strings.HasPrefix(base, databasePrefix)
}

// copyOf copies a filesystem, so that a second store can be opened.
func copyOf(t *testing.T, from *vfs.MemFS) vfs.FS {
	t.Helper()
	to := vfs.NewMem()
	if _, err := vfs.Clone(from, to, "state", "state"); err != nil {
		t.Fatal(err)
	}
	return to
}

// A snapshot that is not one of this program is refused, and changes nothing.
func TestRestoreRefuses(t *testing.T) {
	for what, change := range map[string]func(*sent){
		"want tables":                     func(f *sent) { f.files["id_rsa"] = nil },
		"file \"../x.sst\"":               func(f *sent) { f.files["../x.sst"] = nil },
		"want \"kvpebble1\" and 8 bytes":  func(f *sent) { f.stream[0]++ },
		"with 16 bytes":                   func(f *sent) { f.stream = f.stream[:len(f.stream)-1] },
		"with 18 bytes":                   func(f *sent) { f.stream = append(f.stream, 0) },
		"and its stream says 301":         func(f *sent) { f.stream[len(f.stream)-1]++ },
		"have applied entry 0":            func(f *sent) { clear(f.files) },
		"open the database in state/db-0": func(f *sent) { f.cut(".sst") },
	} {
		s, f, was, _ := twoStates(t, vfs.NewMem())
		change(f)
		if err := f.restore(s); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
		if s.meta != was {
			t.Errorf("%s: the state is %+v, want %+v", what, s.meta, was)
		}
		s.put(t, 0, 1, nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// cut takes the last byte from the files with this suffix.
func (f *sent) cut(suffix string) {
	for name, b := range f.files {
		if strings.HasSuffix(name, suffix) {
			f.files[name] = b[:len(b)-1]
		}
	}
}

// Changes that wait for a checkpoint are read at once, are not in it, and are in the database after it. They
// are bounded: Apply makes the checkpoint when they are too many.
func TestHeldChanges(t *testing.T) {
	s := openIn(t, vfs.NewMem())
	s.put(t, 0, 10, []byte("before"))
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, 5, 15, []byte("after"))
	for key, want := range map[string]string{"0": "before", "5": "after", "14": "after"} {
		if i, _, err := s.Get(key); err != nil || string(i.Value) != want {
			t.Errorf("key %s is %q, %v, want %s", key, i.Value, err, want)
		}
	}
	large := bytes.Repeat([]byte("x"), server.MaxValueBytes)
	for k := 20; s.heldFor != nil; k++ {
		if s.put(t, k, k+1, large); s.heldBytes > maxHeldBytes+2*server.MaxValueBytes {
			t.Fatalf("%d bytes are held, want at most about %d", s.heldBytes, maxHeldBytes)
		}
	}
	if err := snap.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	other := openIn(t, vfs.NewMem())
	if err := send(t, s).restore(other); err != nil {
		t.Fatal(err)
	}
	if other.meta != s.meta {
		t.Errorf("the restored store has %+v, want %+v", other.meta, s.meta)
	}
	if err := errors.Join(snap.Close(), s.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}

// After a flush that has failed the store says so for good: what the disk has is not known.
func TestFailedFlush(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.HasSuffix(op.Path, ".sst") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s := openIn(t, fs)
	s.put(t, 0, 10, []byte("durable"))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	s.put(t, 10, 20, []byte("lost"))
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := snap.WriteTo(t.Context(), io.Discard); err == nil {
		t.Error("a checkpoint was made of a disk that fails")
	}
	broken.Store(false)
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "injected error") {
		t.Errorf("after a flush that has failed Sync returns %v", err)
	}
	if held, err := s.Applied(); err == nil || held != 10 {
		t.Errorf("Applied is %d, %v, want 10 and the error", held, err)
	}
	if err := s.Apply([]millrace.Command[server.Command]{{Index: 21, Value: server.Command{Op: server.Put, Key: "k"}}}, make([]server.Result, 1)); err == nil {
		t.Error("Apply returns nil")
	}
	_ = snap.Close() // it has an error of its own to tell
	s.abandon()
}
