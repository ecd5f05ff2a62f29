package pebble_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/memory"
	"github.com/millrace/millrace/server/engine/pebble"
)

// drawKey draws keys that differ in what an encoding may confuse: zero bytes at the end, short versions.
func drawKey(rng *rand.Rand) engine.Key {
	prefix := []byte{'k'}
	for range rng.IntN(4) {
		prefix = append(prefix, []byte{0, 1, 9, 13, 'a', 0xff}[rng.IntN(6)])
	}
	k := engine.Key{Prefix: prefix}
	if rng.IntN(4) > 0 {
		k.Main = []int64{1, 2, 255, 256, math.MaxInt64}[rng.IntN(5)]
		k.Sub = []uint32{0, 1, 13, 256, math.MaxUint32}[rng.IntN(5)]
	}
	return k
}

// TestTwin writes the same batches to the engine on Pebble and to that in memory, and reads both.
func TestTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	fs := vfs.NewMem()
	disk, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, SeparatedBytes: 16, RewriteAge: 1, Logger: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	engines := []engine.Engine{disk, memory.New()}
	for range 3000 {
		batches := []engine.Batch{engines[0].Batch(), engines[1].Batch()}
		for range rng.IntN(4) {
			k, v, kind := drawKey(rng), bytes.Repeat([]byte{byte(rng.IntN(256))}, 1+rng.IntN(32)), rng.IntN(20)
			hi := drawKey(rng).Prefix
			for _, b := range batches {
				switch {
				case kind == 0 && bytes.Compare(k.Prefix, hi) < 0:
					b.DeleteRange(k.Prefix, hi)
				case kind < 5:
					b.Delete(k)
				default:
					b.Set(k, v)
				}
			}
		}
		for i, e := range engines {
			if err := e.Write(batches[i]); err != nil {
				t.Fatal(err)
			}
			batches[i].Close()
		}
		if rng.IntN(100) == 0 {
			if err := disk.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		compareReads(t, rng, engines[rng.IntN(2)].Pin(), engines[0].Read(), engines[1].Read())
	}
	if !hasValues(t, fs) {
		t.Error("no value was put into a file of values")
	}
	pinned := disk.Pin()
	done := make(chan error)
	go func() { done <- disk.Close() }()
	if _, _, _, err := pinned.Newest(engine.Key{Prefix: []byte{'k'}}); err != nil {
		t.Errorf("a reader of an engine that is being closed: %v", err)
	}
	pinned.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	r := disk.Read()
	defer r.Close()
	if _, _, _, err := r.Newest(engine.Key{Prefix: []byte{'k'}}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a reader of a closed engine: %v", err)
	}
}

func compareReads(t *testing.T, rng *rand.Rand, pinned, a, b engine.Reader) {
	t.Helper()
	defer pinned.Close()
	defer a.Close()
	defer b.Close()
	k := drawKey(rng)
	ka, va, oka, erra := a.Newest(k)
	kb, vb, okb, errb := b.Newest(k)
	if oka != okb || oka && (!equal(ka, kb) || !bytes.Equal(va, vb)) || erra != nil || errb != nil {
		t.Fatalf("newest %+v: %+v %x %v %v, and %+v %x %v %v", k, ka, va, oka, erra, kb, vb, okb, errb)
	}
	fa, foa, err := a.Find(k)
	if fb, fob, errb := b.Find(k); foa != oka || fob != oka || oka && (!equal(fa, ka) || !equal(fb, ka)) || err != nil || errb != nil {
		t.Fatalf("find %+v: %+v %v %v, and %+v %v %v", k, fa, foa, err, fb, fob, errb)
	}
	lo, hi := drawKey(rng).Prefix, drawKey(rng).Prefix
	if bytes.Compare(lo, hi) >= 0 {
		return
	}
	its := []engine.Iterator{a.Iterate(lo, hi), b.Iterate(lo, hi)}
	for range 20 {
		seek, step := drawKey(rng), rng.IntN(4)
		var more [2]bool
		for i, it := range its {
			switch step {
			case 0:
				more[i] = it.SeekGE(seek)
			case 1:
				more[i] = it.NextPrefix()
			default:
				more[i] = it.Next()
			}
		}
		if more[0] != more[1] {
			t.Fatalf("step %d in [%x, %x): %v, and %v", step, lo, hi, more[0], more[1])
		}
		if !more[0] {
			break
		}
		x, errx := its[0].Value()
		y, erry := its[1].Value()
		if !equal(its[0].Key(), its[1].Key()) || !bytes.Equal(x, y) || errx != nil || erry != nil {
			t.Fatalf("step %d in [%x, %x): %+v %x, and %+v %x", step, lo, hi, its[0].Key(), x, its[1].Key(), y)
		}
	}
	for _, it := range its {
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func equal(a, b engine.Key) bool {
	return bytes.Equal(a.Prefix, b.Prefix) && a.Main == b.Main && a.Sub == b.Sub
}
