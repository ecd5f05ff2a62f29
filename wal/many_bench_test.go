package wal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// noDisk keeps small files, but drops what is written to segments and spares. So a benchmark measures only
// the work of the log.
type noDisk struct{ vfs.FS }

type noFile struct{}

func (d noDisk) Create(name string) (vfs.File, error) {
	if strings.HasSuffix(name, record.SegmentSuffix) || strings.HasSuffix(name, spareSuffix) {
		return noFile{}, nil
	}
	return d.FS.Create(name)
}

func (noDisk) OpenDirect(string) (vfs.BlockWriter, error) { return noFile{}, nil }

func (noFile) ReadAt(p []byte, _ int64) (int, error)  { clear(p); return len(p), nil }
func (noFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (noFile) Close() error                           { return nil }
func (noFile) Sync() error                            { return nil }
func (noFile) Size() (int64, error)                   { return 0, io.EOF }
func (noFile) Truncate(int64) error                   { return nil }
func (noFile) Preallocate(_, _ int64) error           { return nil }

// BenchmarkGroupsBesideOne alternates between 500 writes of one entry for 500 groups, and 500 such writes for
// one group. It reports medians, because other processes use the machine too.
func BenchmarkGroupsBesideOne(b *testing.B) {
	const batch = 500
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			clock := env.Real().Clock
			data, hs := make([]byte, size), raftpb.HardState{Term: 1, Vote: 1}
			var logs [2]*Log
			var next [2]uint64
			var spent [2][]time.Duration
			writes, es := make([]Write, batch), make([]raftpb.Entry, batch)
			open := func(k int) {
				logs[k], next[k] = mustOpen(b, Options{FS: noDisk{vfs.Memory()}, Dir: testDir, Scheduler: &manual{}}), 1
			}
			open(0)
			open(1)
			for b.Loop() {
				for k, many := range []bool{false, true} {
					if logs[k].Stats().AppendedBytes > 1<<30 {
						open(k)
					}
					for i := range writes {
						writes[i].Group, es[i] = 1, raftpb.Entry{Term: 1, Index: next[k], Data: data}
						if many {
							writes[i].Group = uint64(i) + 1
						} else {
							next[k]++
						}
						writes[i].HardState, writes[i].Entries = hs, es[i:i+1]
					}
					if many {
						next[k]++
					}
					began := clock.Now()
					mustAppend(b, logs[k], writes...)
					mustSync(b, logs[k])
					spent[k] = append(spent[k], clock.Now()-began)
				}
			}
			var median [2]float64
			for k, name := range []string{"ns/one-group", "ns/many-groups"} {
				slices.Sort(spent[k])
				median[k] = float64(spent[k][len(spent[k])/2]) / batch
				b.ReportMetric(median[k], name)
			}
			b.ReportMetric(median[1]/median[0], "many/one")
		})
	}
}

// BenchmarkIndex reports the memory of the index for few and for many groups, with IndexBytes 1 MiB, and
// what it would be for 100 GiB of such a log. It also reports the cost of cold reads at the resulting
// stride: of one random entry, and of all entries of a group in order.
func BenchmarkIndex(b *testing.B) {
	for _, row := range []struct {
		groups uint64
		size   int
	}{{1, 100}, {1000, 100}, {10_000, 100}, {1, 1024}, {1000, 1024}, {10_000, 1024}} {
		b.Run(fmt.Sprintf("groups=%d/bytes=%d", row.groups, row.size), func(b *testing.B) {
			opts := Options{FS: vfs.Memory(), Dir: testDir, Scheduler: &manual{}, SegmentBytes: 16 << 20, CacheBytes: -1, IndexBytes: 1 << 20}
			l := mustOpen(b, opts)
			rounds := 400_000 / row.groups
			if row.size > 500 {
				rounds = 150_000 / row.groups
			}
			appendRounds(b, l, row.groups, 1, rounds, row.size)
			s := l.Stats()
			share := float64(s.IndexBytes) / float64(s.AppendedBytes)
			clock := env.Real().Clock
			var one time.Duration
			const reads = 20
			for i := range uint64(reads) {
				at := 1 + i*7919%rounds
				began := clock.Now()
				if _, err := l.Group(1+i*row.groups/reads).Entries(at, at+1, 0); err != nil {
					b.Fatal(err)
				}
				one += clock.Now() - began
			}
			before := l.Stats().ColdReads
			began := clock.Now()
			g, batches := l.Group(row.groups), 0
			for next := uint64(1); next <= rounds; batches++ {
				es, err := g.Entries(next, rounds+1, 64<<10)
				if err != nil {
					b.Fatal(err)
				}
				next += uint64(len(es))
			}
			all := clock.Now() - began
			for b.Loop() { // measured above
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(s.AppendedBytes>>20), "log-MiB")
			b.ReportMetric(float64(s.IndexBytes>>10), "index-KiB")
			b.ReportMetric(100*share, "%-of-log")
			b.ReportMetric(min(share*100*1024, max(1, float64(row.groups)*runBytes/(1<<20))), "most-MiB-for-100GiB")
			b.ReportMetric(float64(min(l.table.indexes.indexStride, 1<<40)>>10), "stride-KiB")
			b.ReportMetric(float64(one)/reads/1e3, "us/cold-entry")
			b.ReportMetric(float64(all)/1e3, "us/all-of-a-group")
			b.ReportMetric(float64(l.Stats().ColdReads-before), "reads/all-of-a-group")
		})
	}
}

// BenchmarkFreeSegment measures the freeing of a segment that holds a hard state and a small entry of each of
// many groups, on a real disk, also with an index that is as coarse as possible.
func BenchmarkFreeSegment(b *testing.B) {
	for _, groups := range []uint64{100, 1000, 4000, 10_000} {
		for _, coarse := range []bool{false, true} {
			b.Run(fmt.Sprintf("groups=%d/coarse=%v", groups, coarse), func(b *testing.B) {
				var spent, longest time.Duration
				var pieces int
				for b.Loop() {
					b.StopTimer()
					took, most, n := freeSegment(b, groups, coarse)
					spent, longest, pieces = spent+took, max(longest, most), n
					b.StartTimer()
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(spent.Seconds()*1e3/float64(b.N), "ms/segment")
				b.ReportMetric(float64(pieces), "pieces")
				b.ReportMetric(float64(longest)/1e6, "longest-piece-ms")
			})
		}
	}
}

func freeSegment(b *testing.B, groups uint64, coarse bool) (spent, longest time.Duration, pieces int) {
	sched := &manual{}
	opts := Options{Dir: b.TempDir(), Scheduler: sched, SegmentBytes: 16 << 20, CacheBytes: -1}
	if coarse {
		opts.IndexBytes = 1
	}
	l := mustOpen(b, opts)
	defer mustClose(b, l)
	var writes []Write
	for g := range groups {
		writes = append(writes, Write{Group: g + 2, HardState: raftpb.HardState{Term: 1, Vote: 1}, Entries: entries(1, 2, 1, 100)})
	}
	mustAppend(b, l, writes...)
	for i := uint64(1); l.tail.seg.id < 5; i++ {
		mustAppend(b, l, Write{Group: 1, Entries: entries(i, i+1, 1, 1<<20)}, Write{Group: 1, CompactThrough: i})
		if coarse && i%16 == 0 { // the groups' runs span segments
			for k := range writes {
				writes[k].HardState, writes[k].Entries = raftpb.HardState{}, entries(1+i/16, 2+i/16, 1, 100)
			}
			mustAppend(b, l, writes...)
		}
	}
	mustSync(b, l)
	clock := env.Real().Clock
	for w := sched.tasks[0]; w.woken.Load() && l.Stats().Segments > 0; pieces++ {
		began := clock.Now()
		sched.step()
		took := clock.Now() - began
		spent, longest = spent+took, max(longest, took)
	}
	if l.Stats().Dropped == 0 {
		b.Error("no segment was freed")
	}
	return spent, longest, pieces
}
