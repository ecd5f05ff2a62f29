package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
)

// A snapshot that waits to be written is of the state that it was asked for, also if another state is
// restored before it is.
func TestRestoreBesideSnapshot(t *testing.T) {
	s, f, was, will := twoStates(t, vfs.NewMem())
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.restore(s); err != nil {
		t.Fatal(err)
	}
	s.put(t, 1000, 1010, []byte("later"))
	before := written(t, s, snap)
	if i, found, err := s.Get("1005"); err != nil || !found || string(i.Value) != "later" || s.meta.totals.Keys != will.totals.Keys+10 {
		t.Errorf("the restored store has %+v, and key 1005 is %q (%v)", s.meta, i.Value, err)
	}
	other := openIn(t, vfs.NewMem())
	if err := before.restore(other); err != nil || other.meta != was {
		t.Errorf("the snapshot has %+v (%v), want %+v", other.meta, err, was)
	}
	other.abandon()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkApplyBesideSnapshots applies batches of 1 KiB puts to a state of 256 MiB on the disk while
// snapshots are taken, and reports the longest calls.
func BenchmarkApplyBesideSnapshots(b *testing.B) {
	const keys, perBatch = 256 << 10, 64
	s, err := openStore(vfs.Default, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.abandon()
	rng, value := rand.New(rand.NewPCG(1, 1)), make([]byte, 1<<10)
	batch, results := make([]millrace.Command[server.Command], perBatch), make([]server.Result, perBatch)
	index := uint64(0)
	apply := func(key func() int) time.Duration {
		for i := range batch {
			index++
			for k := 0; k < len(value); k += 8 {
				value[k] = byte(rng.Uint32())
			}
			batch[i] = millrace.Command[server.Command]{Index: index, Value: server.Command{Op: server.Put, Key: fmt.Sprintf("%08d", key()), Value: bytes.Clone(value)}}
		}
		began := time.Now()
		if err := s.Apply(batch, results); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	next := 0
	for range keys / perBatch {
		apply(func() int { next++; return next })
	}
	if err := s.Sync(); err != nil {
		b.Fatal(err)
	}
	drawn := func() int { return rng.IntN(keys) }
	var plain, beside, capture, taking time.Duration
	b.ResetTimer()
	for range b.N {
		for range 200 {
			plain = max(plain, apply(drawn))
		}
		began := time.Now()
		snap, err := s.Snapshot()
		capture = max(capture, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- snap.WriteTo(b.Context(), io.Discard) }()
		for done := false; !done; {
			select {
			case err := <-written:
				if done = true; err != nil {
					b.Fatal(err)
				}
			default:
				beside = max(beside, apply(drawn))
			}
		}
		taking += time.Since(began)
		if err := snap.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(ms(plain), "longest-apply-ms")
	b.ReportMetric(ms(beside), "longest-apply-beside-ms")
	b.ReportMetric(ms(capture), "longest-snapshot-ms")
	b.ReportMetric(ms(taking)/float64(b.N), "checkpoint-ms")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Between Snapshot and WriteTo, Sync makes durable what the snapshot has, with its flush. Otherwise it makes
// everything durable.
func TestSyncBesideSnapshot(t *testing.T) {
	s := openIn(t, vfs.NewMem())
	s.put(t, 0, 10, nil)
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, 10, 20, nil)
	for _, want := range []uint64{10, 20} {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if held, err := s.Applied(); held != want || err != nil {
			t.Errorf("after Sync %d commands are durable (%v), want %d", held, err, want)
		}
	}
	if n := s.db.Metrics().Flush.Count; n > 2 {
		t.Errorf("%d flushes, want one for each Sync", n)
	}
	_ = written(t, s, snap)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
