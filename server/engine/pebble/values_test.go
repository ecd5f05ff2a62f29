package pebble_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	cockroach "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/pebble"
)

// hasValues reports whether the database has a file of values.
func hasValues(t *testing.T, fs vfs.FS) bool {
	t.Helper()
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".blob") })
}

// TestValuesLeaveTheDisk: what was deleted and compacted takes no space, though values are not in the tables.
// A value below the threshold is in its table, one at it is not.
func TestValuesLeaveTheDisk(t *testing.T) {
	const size, keys, versions = 1000, 500, 10
	for _, threshold := range []int{size, size + 1} {
		fs := vfs.NewMem()
		e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, SeparatedBytes: threshold, RewriteAge: 1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		write := func(of func(engine.Batch, engine.Key, []byte)) {
			rng := rand.New(rand.NewPCG(1, 1))
			for v := range int64(versions) {
				b := e.Batch()
				for k := range keys {
					value := make([]byte, size)
					for i := 0; i < size; i += 8 {
						binary.LittleEndian.PutUint64(value[i:], rng.Uint64())
					}
					of(b, engine.Key{Prefix: fmt.Appendf(nil, "k%04d", k), Main: v + 1}, value)
				}
				if err := e.Write(b); err != nil {
					t.Fatal(err)
				}
				b.Close()
				if err := e.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(func(b engine.Batch, k engine.Key, v []byte) { b.Set(k, v) })
		if got := hasValues(t, fs); got != (threshold == size) {
			t.Errorf("values of %d bytes, threshold %d: files of values %v", size, threshold, got)
		}
		if n := e.Bytes(); n < size*keys*versions {
			t.Errorf("the database has %d bytes, want at least %d", n, size*keys*versions)
		}
		write(func(b engine.Batch, k engine.Key, _ []byte) {
			if k.Main < versions {
				b.Delete(k)
			}
		})
		const most = 2 * size * keys
		for tries := 0; e.Bytes() > most; tries++ { // files of values are written again behind a compaction
			if tries == 1000 {
				t.Fatalf("threshold %d: the database still has %d bytes, want at most %d", threshold, e.Bytes(), most)
			}
			if err := e.Compact(); err != nil {
				t.Fatal(err)
			}
		}
		r := e.Read()
		write(func(_ engine.Batch, k engine.Key, want []byte) {
			if k.Main < versions {
				return
			}
			if _, got, ok, err := r.Newest(k); err != nil || !ok || !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes, %v, %v", k.Prefix, len(got), ok, err)
			}
		})
		r.Close()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpensWithoutFilesOfValues: a database of the format before is opened, and has its values in files of
// their own from then on.
func TestOpensWithoutFilesOfValues(t *testing.T) {
	fs := vfs.NewMem()
	db, err := cockroach.Open("db", &cockroach.Options{
		FS: fs, Logger: quiet{}, DisableWAL: true, FormatMajorVersion: cockroach.FormatTableFormatV6, Comparer: &cockroachkvs.Comparer,
		KeySchema: cockroachkvs.KeySchema.Name, KeySchemas: sstable.MakeKeySchemas(&cockroachkvs.KeySchema),
	})
	if err != nil {
		t.Fatal(err)
	}
	old, later := bytes.Repeat([]byte("old"), 500), bytes.Repeat([]byte("later"), 500)
	if err := db.Set([]byte("ka\x00\x00\x00\x00\x00\x00\x00\x00\x01\x09"), old, cockroach.NoSync); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		b := e.Batch()
		b.Set(engine.Key{Prefix: []byte("ka"), Main: 2}, later)
		if err := e.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
		r := e.Read()
		for main, want := range map[int64][]byte{1: old, 2: later} {
			if k, got, ok, err := r.Newest(engine.Key{Prefix: []byte("ka"), Main: main}); err != nil || !ok || k.Main != main || !bytes.Equal(got, want) {
				t.Errorf("version %d: %+v with %d bytes, %v, %v", main, k, len(got), ok, err)
			}
		}
		r.Close()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if !hasValues(t, fs) {
			t.Error("the later value is in no file of values")
		}
	}
}

// TestRotInAFileOfValues: a value whose file has rotted, or lacks its end, is an error and no panic.
func TestRotInAFileOfValues(t *testing.T) {
	for name, rot := range map[string]func([]byte) []byte{
		"a bit has changed":     func(b []byte) []byte { b[10] ^= 1; return b },
		"the end is missing":    func(b []byte) []byte { return b[:len(b)/2] },
		"the end has changed":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"nothing of it is left": func([]byte) []byte { return nil },
	} {
		fs := vfs.NewMem()
		o := pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
		e, err := pebble.Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		writeBytes(t, e, noise(1000))
		if err := errors.Join(e.Flush(), e.Close()); err != nil {
			t.Fatal(err)
		}
		paths, err := fs.List("db")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if !strings.HasSuffix(path, ".blob") {
				continue
			}
			path = fs.PathJoin("db", path)
			r, err := fs.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Write(rot(b))
			if err := errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if e, err = pebble.Open("db", o); err != nil {
			t.Fatal(err)
		}
		r := e.Read()
		k := engine.Key{Prefix: []byte("ka"), Main: 1}
		if _, b, ok, err := r.Newest(k); ok || err == nil {
			t.Errorf("%s: a look-up finds %d bytes, %v", name, len(b), err)
		}
		if _, ok, err := r.Find(k); !ok || err != nil {
			t.Errorf("%s: the key is not found: %v", name, err)
		}
		it := r.Iterate([]byte("k"), []byte("l"))
		if !it.Next() {
			t.Errorf("%s: the iterator has no key", name)
		}
		if b, err := it.Value(); err == nil {
			t.Errorf("%s: the iterator has %d bytes", name, len(b))
		}
		_ = it.Close()
		r.Close()
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// quiet is a log of Pebble that shows nothing.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
