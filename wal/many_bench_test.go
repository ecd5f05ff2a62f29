package wal

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// noDisk is a disk that takes everything and keeps nothing: what is left is the log's own work.
type noDisk struct{ vfs.FS }

type noFile struct{}

func (noDisk) Create(string) (vfs.File, error)            { return noFile{}, nil }
func (noDisk) OpenDirect(string) (vfs.BlockWriter, error) { return noFile{}, nil }
func (noDisk) Rename(string, string) error                { return nil }
func (noDisk) Remove(string) error                        { return nil }
func (noFile) ReadAt(p []byte, _ int64) (int, error)      { clear(p); return len(p), nil }
func (noFile) WriteAt(p []byte, _ int64) (int, error)     { return len(p), nil }
func (noFile) Close() error                               { return nil }
func (noFile) Sync() error                                { return nil }
func (noFile) Size() (int64, error)                       { return 0, io.EOF }
func (noFile) Truncate(int64) error                       { return nil }
func (noFile) Preallocate(_, _ int64) error               { return nil }

// BenchmarkGroupsBesideOne measures, round by round in turn, 500 writes of one entry for 500 groups, and 500 for one
// group: medians, since others use the machine, too.
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
