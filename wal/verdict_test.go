package wal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// For any number of threads, an inspection, Open and a salvage return the same verdict on a damaged log.
func TestThreadsDoNotChangeTheVerdict(t *testing.T) {
	refused := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		disk, sched := crashfs.New(), &manual{}
		opts := testOptions(disk, sched)
		l, state := mustOpen(t, opts), twin{}
		for range 30 {
			g := rng.Uint64N(3)
			s := state[g]
			term := s.hs.Term + 1
			w := Write{Group: g, HardState: raftpb.HardState{Term: term}, Entries: entries(s.last()+1, s.last()+1+rng.Uint64N(4), term, 50+rng.IntN(1200))}
			mustAppend(t, l, w)
			state.apply([]Write{w})
			if rng.IntN(2) == 0 {
				mustSync(t, l)
			}
			sched.step()
		}
		for range 1 + rng.IntN(3) {
			spoilSegment(t, disk, rng, 1+rng.Uint64N(l.tail.seg.id))
		}
		want := ""
		for _, threads := range []int{1, 2, 4} {
			got, corrupt := verdict(t, disk.Image(crashfs.LoseNothing, nil), opts, threads)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("seed %d: %d threads say\n%s\nand one says\n%s", seed, threads, got, want)
			}
			if corrupt {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was damaged")
	}
}

// spoilSegment spoils a segment: a bit, some bytes, its length, or all of it.
func spoilSegment(t *testing.T, disk *crashfs.FS, rng *rand.Rand, id uint64) {
	path, off := testDir+"/"+record.SegmentName(id), rng.Int64N(4000)
	f, err := disk.Open(path)
	if err != nil {
		return // the segment was removed before
	}
	switch rng.IntN(4) {
	case 0:
		err = disk.FlipBit(path, off, 3)
	case 1:
		_, err = f.WriteAt(make([]byte, 90), off)
	case 2:
		err = f.Truncate(off)
	default:
		err = disk.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// verdict returns everything that an inspection, Open and a salvage report about a log.
func verdict(t *testing.T, disk *crashfs.FS, opts Options, threads int) (says string, corrupt bool) {
	opts.FS, opts.Scheduler, opts.Rand, opts.ScanThreads = disk, &manual{}, seeded(3), threads
	in, err := Inspect(t.Context(), InspectOptions{FS: disk, Dir: testDir, ScanThreads: threads})
	if err != nil {
		t.Fatal(err)
	}
	says = fmt.Sprintln(in.Findings)
	l, err := Open(opts)
	if says += fmt.Sprintln(err); err != nil {
		opts.Salvage = true
		l, corrupt = mustOpen(t, opts), true
	}
	says += fmt.Sprintln(l.Holes(), l.Doubt())
	for g := range uint64(3) {
		says += fmt.Sprintln(l.Group(g).HardState(), l.Group(g).LastIndex())
	}
	return says, corrupt
}
