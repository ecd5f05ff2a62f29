package kv

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/millrace"
)

// TestRestoreIsCutAnywhere: a power cut at any moment of a restore leaves the old state or the new one, and
// nothing else; after it, the new one.
func TestRestoreIsCutAnywhere(t *testing.T) {
	from := vfs.NewMem()
	source := must(build(from, Options{Dir: "state", BlockCacheBytes: 1 << 20, separatedBytes: 24}))
	for i := range 50 {
		source.apply(t, 0, put(fmt.Sprint("new", i%7), strings.Repeat("x", i)))
	}
	snap := must(source.Millrace().StateMachine().Snapshot())
	will := source.digest()
	for i := range 20 {
		source.apply(t, 0, put("later", fmt.Sprint(i))) // in the checkpoint, and taken back
	}
	var stream bytes.Buffer
	if err := snap.WriteTo(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	files := &sentFiles{files: map[string][]byte{}}
	files.read(t, from, snap.(millrace.FileSnapshot))
	if !slices.ContainsFunc(slices.Collect(maps.Keys(files.files)), func(name string) bool { return strings.HasSuffix(name, ".blob") }) {
		t.Errorf("the snapshot has no file of values: %q", slices.Collect(maps.Keys(files.files)))
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}

	disk := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex // Pebble works in several goroutines
	var images []*vfs.MemFS
	watching := false
	image := func() {
		mu.Lock()
		defer mu.Unlock()
		if watching {
			images = append(images, disk.CrashClone(vfs.CrashCloneCfg{}), disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
		}
	}
	watch := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		watching = on
	}
	files.to = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			image()
		}
		return nil
	}))
	m := must(build(files.to, Options{Dir: "state", BlockCacheBytes: 1 << 20, separatedBytes: 24}))
	m.apply(t, 0, put("old", "1"), put("old", "2"))
	was := m.digest()
	if err := (durable{m}).Sync(); err != nil {
		t.Fatal(err)
	}
	watch(true)
	if err := (durable{m}).RestoreFiles(t.Context(), &stream, files); err != nil {
		t.Fatal(err)
	}
	watch(false)
	during := len(images)
	watch(true)
	image()
	watch(false)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for i, fs := range images {
		m, err := build(fs, Options{Dir: "state", BlockCacheBytes: 1 << 20, separatedBytes: 24})
		if err != nil {
			t.Errorf("image %d of %d: %v", i, len(images), err)
			continue
		}
		switch d := m.digest(); {
		case d == was && i < during:
			found["old"]++
		case d == will:
			found["new"]++
		default:
			t.Errorf("image %d of %d has digest %x, want %x or %x", i, len(images), d, was, will)
		}
		if names := must(fs.List("state")); len(names) != 2 {
			t.Errorf("image %d of %d: the directory has %q, want CURRENT and one database", i, len(images), names)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if found["old"] == 0 || found["new"] < 2 {
		t.Errorf("found %v", found)
	}
	t.Logf("%d images: %v", len(images), found)
}
