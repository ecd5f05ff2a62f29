package wal

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// BenchmarkAppendSync measures one goroutine that appends a batch of 1 KiB entries and syncs, and compares it
// with the minimum that any log needs: one pwrite of the same bytes and one fdatasync, on a preallocated,
// zero-filled file. Compare ns/op of the two with the same batch. /alternate measures both alternately,
// operation by operation, and reports the ratio.
func BenchmarkAppendSync(b *testing.B) {
	for _, batch := range []int{1, 16, 100, 1000} {
		b.Run(fmt.Sprintf("alternate/entries=%d", batch), func(b *testing.B) {
			clock := env.Real().Clock
			raw, log := newRaw(b, batch), newBench(b, batch)
			var rawTime, logTime int64
			b.SetBytes(int64(batch) * 1024)
			for b.Loop() {
				t0 := clock.Now()
				raw.op(b)
				t1 := clock.Now()
				log.op(b)
				rawTime += int64(t1 - t0)
				logTime += int64(clock.Now() - t1)
			}
			b.ReportMetric(float64(rawTime)/float64(logTime), "raw/log")
			b.ReportMetric(float64(logTime)/float64(b.N)/1e3, "log-us")
			b.ReportMetric(float64(rawTime)/float64(b.N)/1e3, "raw-us")
			b.ReportMetric(float64(log.log.Stats().SyncNanos)/float64(b.N)/1e3, "sync-us")
		})
		b.Run(fmt.Sprintf("log/entries=%d", batch), func(b *testing.B) {
			b.SetBytes(int64(batch) * 1024)
			b.ReportAllocs()
			log := newBench(b, batch)
			for b.Loop() {
				log.op(b)
			}
		})
		b.Run(fmt.Sprintf("raw/entries=%d", batch), func(b *testing.B) {
			b.SetBytes(int64(batch) * 1024)
			raw := newRaw(b, batch)
			for b.Loop() {
				raw.op(b)
			}
		})
	}
}

// BenchmarkAppendBesideSync compares two ways to write batches of 1 KiB entries: each batch after the
// previous sync, and each batch encoded and written while the previous sync runs. A ratio of 1.2 means that
// a fifth more batches of the same size are durable. An append worker that overlaps them has smaller
// batches, because it splits what arrives during a sync: decision 0004.
func BenchmarkAppendBesideSync(b *testing.B) {
	const batches = 20
	for _, batch := range []int{1, 16, 100, 1000} {
		b.Run(fmt.Sprintf("entries=%d", batch), func(b *testing.B) {
			clock := env.Real().Clock
			logs := [2]*benchLog{newBench(b, batch), newBench(b, batch)}
			var spent [2]time.Duration
			syncs, done := make(chan *Flush), make(chan error)
			defer close(syncs)
			go func() {
				for f := range syncs {
					done <- f.Wait()
				}
			}()
			for b.Loop() {
				began := clock.Now()
				for range batches {
					logs[0].op(b)
				}
				between := clock.Now()
				var running *Flush
				for k := range batches + 1 {
					var next *Flush
					if k < batches {
						next = logs[1].append(b)
					}
					if running != nil {
						if err := <-done; err != nil {
							b.Fatal(err)
						}
						if _, err := running.Complete(); err != nil {
							b.Fatal(err)
						}
					}
					if running = next; next != nil {
						syncs <- next
					}
				}
				spent[0] += between - began
				spent[1] += clock.Now() - between
			}
			b.ReportMetric(float64(spent[0])/float64(spent[1]), "beside/after")
			b.ReportMetric(float64(spent[0].Microseconds())/float64(b.N*batches), "us-after")
			b.ReportMetric(float64(spent[1].Microseconds())/float64(b.N*batches), "us-beside")
		})
	}
}

// BenchmarkAppend measures the cost of an append without the disk: a hard state and a batch of entries for
// each of some groups, on a disk in memory, without a sync.
func BenchmarkAppend(b *testing.B) {
	for _, row := range []struct{ groups, entries, bytes int }{{1, 1, 100}, {1, 1, 1024}, {1, 16, 100}, {1, 64, 1024}, {16, 4, 100}} {
		b.Run(fmt.Sprintf("groups=%d/entries=%d/bytes=%d", row.groups, row.entries, row.bytes), func(b *testing.B) {
			writes := make([]Write, row.groups)
			for i := range writes {
				writes[i] = Write{Group: uint64(i + 1), HardState: raftpb.HardState{Term: 1}, Entries: entries(1, uint64(row.entries)+1, 1, row.bytes)}
			}
			size := int64(row.groups) * (record.Bytes(record.HardStateBytes) + int64(row.entries)*record.Bytes(row.bytes))
			b.SetBytes(size)
			b.ReportAllocs()
			var l *Log
			var next uint64
			for left := int64(0); b.Loop(); left -= size {
				if left < size { // a roll to the next segment would cost a sync
					b.StopTimer()
					sched := &manual{}
					l = mustOpen(b, Options{FS: vfs.Memory(), Dir: testDir, Scheduler: sched, Clock: &fakeClock{}})
					sched.runIdle() // fills the segment with zeros
					next, left = 1, defaultSegmentBytes*3/4
					b.StartTimer()
				}
				for i := range writes {
					writes[i].HardState.Commit = next
					for j := range writes[i].Entries {
						writes[i].Entries[j].Index = next + uint64(j)
					}
				}
				next += uint64(row.entries)
				if err := l.Append(writes); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type benchLog struct {
	log     *Log
	entries []raftpb.Entry
	writes  []Write
	next    uint64
}

func newBench(b *testing.B, batch int) *benchLog {
	l := mustOpen(b, Options{Dir: b.TempDir(), Scheduler: env.Real().Scheduler})
	b.Cleanup(func() { mustClose(b, l) })
	fill := Write{Group: 2, Entries: entries(1, 9, 1, 64<<10)}
	for n := 0; n < 3 || l.Stats().TailYoung && n < 8; n = int(l.tail.seg.id) { // the steady state, unless the disk has no time for zeros
		mustAppend(b, l, fill)
		mustSync(b, l)
		for i := range fill.Entries {
			fill.Entries[i].Index += 8
		}
		fill.CompactThrough = fill.Entries[0].Index - 1
	}
	es := entries(1, uint64(batch)+1, 1, 1024)
	return &benchLog{log: l, entries: es, writes: []Write{{Group: 1, Entries: es}}, next: 1}
}

func (l *benchLog) op(b *testing.B) {
	f := l.append(b)
	if err := f.Wait(); err != nil {
		b.Fatal(err)
	}
	if _, err := f.Complete(); err != nil {
		b.Fatal(err)
	}
}

// append appends the next batch, and begins its flush.
func (l *benchLog) append(b *testing.B) *Flush {
	for i := range l.entries {
		l.entries[i].Index = l.next
		l.next++
	}
	if err := l.log.Append(l.writes); err != nil {
		b.Fatal(err)
	}
	f, _, err := l.log.TakeSync()
	if err != nil {
		b.Fatal(err)
	}
	return f
}

type benchRaw struct {
	file vfs.File
	buf  []byte
	off  int64
}

func newRaw(b *testing.B, batch int) *benchRaw {
	f, err := vfs.OS().Create(b.TempDir() + "/raw")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	for off := int64(0); off < rawBytes; off += zeroPieceBytes {
		if _, err := f.WriteAt(zeros[:], off); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, batch*1024)
	for i := range buf {
		buf[i] = byte(i)
	}
	return &benchRaw{file: f, buf: buf}
}

const rawBytes = 64 << 20

func (r *benchRaw) op(b *testing.B) {
	if r.off+int64(len(r.buf)) > rawBytes {
		r.off = 0
	}
	if _, err := r.file.WriteAt(r.buf, r.off); err != nil {
		b.Fatal(err)
	}
	if err := r.file.Sync(); err != nil {
		b.Fatal(err)
	}
	r.off += int64(len(r.buf))
}

// BenchmarkOpen measures recovery of 256 MiB from the page cache.
func BenchmarkOpen(b *testing.B) {
	opts := Options{Dir: b.TempDir(), Scheduler: env.Real().Scheduler}
	l := mustOpen(b, opts)
	for i := range uint64(256) {
		mustAppend(b, l, Write{Group: 1, Entries: entries(i*1000+1, i*1000+1001, 1, 1024)})
	}
	mustClose(b, l)
	b.SetBytes(int64(l.Stats().AppendedBytes))
	for b.Loop() {
		mustClose(b, mustOpen(b, opts))
	}
}

// BenchmarkSegmentChanges measures how much a change of segments costs an append, over at least 100 changes,
// while the helper makes segments, drops them and reuses their files. It reports the median, p99.9 and the
// longest time of Append, and of Append with its sync.
func BenchmarkSegmentChanges(b *testing.B) {
	const segmentBytes, entryBytes, changes = 4 << 20, 16 << 10, 110
	clock := env.Real().Clock
	var appends, both []time.Duration
	for b.Loop() {
		l := mustOpen(b, Options{Dir: b.TempDir(), Scheduler: env.Real().Scheduler, SegmentBytes: segmentBytes})
		es := entries(1, 2, 1, entryBytes)
		write := []Write{{Group: 1, Entries: es}}
		for i := uint64(1); i <= changes*segmentBytes/entryBytes; i++ {
			es[0].Index = i
			write[0].CompactThrough = 0
			if i%100 == 0 {
				write[0].CompactThrough = i - 50
			}
			start := clock.Now()
			if err := l.Append(write); err != nil {
				b.Fatal(err)
			}
			appends = append(appends, clock.Now()-start)
			if err := l.Sync(); err != nil {
				b.Fatal(err)
			}
			both = append(both, clock.Now()-start)
		}
		s := l.Stats()
		b.ReportMetric(float64(s.SegmentsWaited), "waited")
		b.ReportMetric(float64(s.Dropped), "dropped")
		mustClose(b, l)
	}
	for name, times := range map[string][]time.Duration{"append": appends, "sync": both} {
		slices.Sort(times)
		at := func(permille int) float64 { return float64(times[len(times)*permille/1000]) / 1e3 }
		b.ReportMetric(at(500), name+"-p50-us")
		b.ReportMetric(at(999), name+"-p99.9-us")
		b.ReportMetric(float64(times[len(times)-1])/1e3, name+"-max-us")
	}
}

// BenchmarkLargeBatch measures how much a batch of 16 MiB allocates in the log. The disk is in memory, the
// segments are large, and they are dropped again.
func BenchmarkLargeBatch(b *testing.B) {
	const n = 16
	sched := &manual{}
	l := mustOpen(b, Options{FS: vfs.Memory(), Dir: testDir, Scheduler: sched, Clock: &fakeClock{}, SegmentBytes: 256 << 20, CacheBytes: -1})
	sched.runIdle()
	es := entries(1, n+1, 1, 1<<20)
	writes := []Write{{Group: 1, Entries: es}}
	var before, after runtime.MemStats
	var bytes uint64
	batches := 0
	for i := uint64(1); b.Loop(); i += n {
		for j := range es {
			es[j].Index = i + uint64(j)
		}
		writes[0].CompactThrough = i - 1
		if i == 1 {
			writes[0].CompactThrough = 0
		}
		runtime.ReadMemStats(&before)
		if err := l.Append(writes); err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		bytes += after.TotalAlloc - before.TotalAlloc
		batches++
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
		sched.runIdle()
	}
	b.ReportMetric(float64(bytes)/float64(batches)/(1<<20), "MiB-allocated/batch")
}

// BenchmarkGrowingLog compares, in windows that alternate, how many batches of 100 entries of 1 KiB three
// logs make durable. The segments of the first, which is compacted, are spares. The second grows, and the
// helper writes zeros for it. The third grows and gets no zeros. It begins after two segments of each. Run
// it with
// -benchtime 5x or more: an iteration is one window of each. The metrics are medians.
func BenchmarkGrowingLog(b *testing.B) {
	const batch, window = 100, 500 * time.Millisecond
	clock := env.Real().Clock
	open := func(keep uint64, zeros bool) func(time.Duration) float64 {
		l := mustOpen(b, Options{Dir: b.TempDir(), Scheduler: env.Real().Scheduler})
		b.Cleanup(func() { mustClose(b, l) })
		if !zeros {
			l.zeros.resume = 1 << 30 // before the helper has had a reason to look
		}
		es, next := entries(1, batch+1, 1, 1024), uint64(1)
		round := func() {
			w := Write{Group: 1, Entries: es}
			for i := range es {
				es[i].Index = next
				next++
			}
			if keep > 0 && next > 2*keep && next%keep < batch {
				w.CompactThrough = next - keep
			}
			mustAppend(b, l, w)
			mustSync(b, l)
		}
		for l.Stats().AppendedBytes < 5*defaultSegmentBytes/2 {
			round()
		}
		b.Cleanup(func() {
			s := l.Stats()
			b.Logf("keep %d, zeros %v: %d MB, %d of zeros, %d of %d tails young, %d misses", keep, zeros, s.AppendedBytes>>20, s.ZeroedBytes>>20, s.YoungTails, l.tail.seg.id, l.zeros.misses)
		})
		return func(d time.Duration) float64 {
			rounds, began := 0, clock.Now()
			for ; clock.Now()-began < d; rounds++ {
				round()
			}
			return float64(rounds) / (clock.Now() - began).Seconds()
		}
	}
	written, grows, allocated := open(60<<10, true), open(0, true), open(0, false)
	var paces, zeroed, young []float64
	for b.Loop() {
		w, g, a := written(window), grows(window), allocated(window)
		paces, zeroed, young = append(paces, w), append(zeroed, g/w), append(young, a/w)
	}
	median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
	b.ReportMetric(median(paces), "written/s")
	b.ReportMetric(median(zeroed), "growing/written")
	b.ReportMetric(median(young), "allocated/written")
}
