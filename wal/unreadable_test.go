package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// blockLog writes a log with segments of eight blocks: sealed ones, the tail, and a prepared one. It ends
// with a crash that loses nothing.
func blockLog(t testing.TB) (fs *crashfs.FS, opts Options, want twin) {
	t.Helper()
	fs, sched := crashfs.New(), &manual{}
	opts, want = testOptions(fs, sched), twin{}
	opts.SegmentBytes = 8 * vfs.BlockBytes
	l := mustOpen(t, opts)
	for i := uint64(1); i <= 19; i++ {
		want.append(t, l, Write{Group: 1 + i%2, HardState: raftpb.HardState{Term: i, Vote: i % 3}, Entries: entries((i+1)/2, (i+1)/2+1, i, 7000)})
		sched.runIdle()
	}
	fs.Crash(crashfs.LoseNothing, nil)
	return fs, opts, want
}

// The disk cannot read one block. If the block holds a durable record, the log is corrupt at that record,
// the error wraps that of the disk, and everything before the record can be salvaged. If no record needs
// the block, the log opens with all its entries. If the block holds the last records, which no watermark
// covers, a power cut may have torn them, and recovery cuts them.
func TestUnreadableBlock(t *testing.T) {
	base, _, _ := blockLog(t)
	in := mustInspect(t, base)
	tail := len(in.Segments) - 1
	for in.Segments[tail].End == record.SegmentHeaderBytes {
		tail--
	}
	if tail < 2 || tail == len(in.Segments)-1 {
		t.Fatalf("%+v has no sealed segment, or no prepared one", in.Segments)
	}
	up := func(n int64) int64 { return (n + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1) }
	if sealed := in.Segments[1]; up(sealed.End) >= sealed.Bytes {
		t.Fatalf("%+v has no block after its end", sealed)
	}
	last, end := in.Segments[tail], in.Segments[tail].End
	for name, c := range map[string]struct {
		segment string
		off     int64
		want    string // whole, cut or corrupt
	}{
		"in a sealed segment":                 {in.Segments[1].Name, 2 * vfs.BlockBytes, "corrupt"},
		"at the end of a sealed segment":      {in.Segments[1].Name, up(in.Segments[1].End) - vfs.BlockBytes, "corrupt"},
		"behind the end of a sealed segment":  {in.Segments[1].Name, up(in.Segments[1].End), "whole"},
		"the header of a sealed segment":      {in.Segments[1].Name, 0, "corrupt"},
		"the header of the tail":              {last.Name, 0, "corrupt"},
		"below the watermark of the tail":     {last.Name, vfs.BlockBytes, "corrupt"},
		"above the watermark, same boot":      {last.Name, up(end) - vfs.BlockBytes, "corrupt"}, // the death of a process does not leave that
		"above the watermark, power cut":      {last.Name, up(end) - vfs.BlockBytes, "cut"},
		"behind the end of the tail":          {last.Name, up(end), "whole"},
		"far behind the end of the tail":      {last.Name, last.Bytes - vfs.BlockBytes, "whole"},
		"in a prepared segment":               {in.Segments[tail+1].Name, 3 * vfs.BlockBytes, "whole"},
		"the header of a prepared segment":    {in.Segments[tail+1].Name, 0, "whole"},
		"all blocks behind the end, one read": {last.Name, up(end), "whole"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, opts, want := blockLog(t)
			if c.want == "cut" {
				fs.Crash(crashfs.LoseAll, nil) // loses nothing: everything is synced
			}
			bad := crashfs.BadBlock{Name: c.segment + "*", Off: c.off}
			if name == "all blocks behind the end, one read" {
				bad.Len = last.Bytes - c.off
			}
			fs.SetHook(bad.Hook())
			in := mustInspect(t, fs)
			l, err := Open(opts)
			if msg := disagreement(in, err); msg != "" {
				t.Fatalf("%s: %+v", msg, in.Findings)
			}
			if err == nil && len(in.Findings) == 0 {
				t.Error("an inspection does not mention the block")
			}
			switch c.want {
			case "whole":
				if err != nil {
					t.Fatal(err)
				}
				want.check(t, l)
			case "cut":
				if err != nil {
					t.Fatal(err)
				}
				if in.worst() != TornEnd {
					t.Errorf("inspected %+v, want a torn end", in.Findings)
				}
				if have := l.Group(2).LastIndex(); have != 9 {
					t.Errorf("the last entry of group 2 is %d, want 9", have)
				}
			case "corrupt":
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || !errors.Is(err, syscall.EIO) || filepath.Base(corrupt.File) != c.segment {
					t.Fatalf("have %v, want corruption of %s with the error of the disk", err, c.segment)
				}
				if corrupt.Offset > c.off || corrupt.Offset < c.off-8192 {
					t.Errorf("corrupt at %d, want the record that needs the block at %d", corrupt.Offset, c.off)
				}
				if r, err := repairLog(t, fs, true); err != nil || !r.Done {
					t.Fatalf("repair: %+v, %v", r, err)
				}
				l = mustOpen(t, opts)
				checkSalvaged(t, l, want)
			}
			next := l.Group(1).LastIndex() + 1
			mustAppend(t, l, Write{Group: 1, Entries: entries(next, next+12, 30, 5000)})
			mustClose(t, l)
			mustClose(t, mustOpen(t, opts))
		})
	}
}

// A block cannot be read the first time, but can the second time. The log opens with all its entries. The log
// and an inspection report the failed read.
func TestBlockThatIsReadTheSecondTime(t *testing.T) {
	fs, opts, want := blockLog(t)
	once := func() func(crashfs.Op) error {
		failed := false
		return func(op crashfs.Op) error {
			if failed || op.Kind != crashfs.OpRead || op.Len <= record.SegmentHeaderBytes || filepath.Base(op.Name) != record.SegmentName(2) {
				return nil
			}
			failed = true
			return fmt.Errorf("just once: %w", syscall.EIO)
		}
	}
	fs.SetHook(once())
	l := mustOpen(t, opts)
	want.check(t, l)
	mustClose(t, l)
	fs.SetHook(once())
	in := mustInspect(t, fs)
	if len(in.Findings) != 1 || in.Findings[0].Kind != Warned {
		t.Errorf("inspected %+v, want a warning", in.Findings)
	}
}

// One copy of FENCE is spoiled, or cannot be read. An inspection warns about it, and the next Open writes it
// again.
func TestBadCopyOfTheFence(t *testing.T) {
	for i := range int64(fenceCopies) {
		for _, lost := range []bool{false, true} {
			fs, opts, want := blockLog(t)
			if lost {
				fs.SetHook(crashfs.BadBlock{Name: fenceName, Off: i * fenceBlock}.Hook())
			} else if err := fs.FlipBit(filepath.Join(testDir, fenceName), i*fenceBlock+20, 3); err != nil {
				t.Fatal(err)
			}
			in := mustInspect(t, fs)
			if len(in.Findings) != 1 || in.Findings[0].Kind != Warned || in.Findings[0].Rule != ruleFence || in.Findings[0].Offset != i*fenceBlock || !in.Fence.Found {
				t.Errorf("copy %d, lost: %v: inspected %+v, %+v; want a warning", i, lost, in.Findings, in.Fence)
			}
			l, err := Open(opts)
			if err != nil {
				t.Errorf("copy %d, lost: %v: %v", i, lost, err)
				continue
			}
			want.check(t, l)
			mustClose(t, l)
			if in := mustInspect(t, fs); len(in.Findings) > 0 {
				t.Errorf("copy %d, lost: %v: after an open still %+v", i, lost, in.Findings)
			}
		}
	}
}

// No copy of FENCE can be read. The error says so and wraps the error of the disk, because the next read may
// succeed.
func TestFenceThatCannotBeRead(t *testing.T) {
	fs, opts, want := blockLog(t)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && filepath.Base(op.Name) == fenceName {
			return syscall.EIO
		}
		return nil
	})
	_, err := Open(opts)
	if !errors.Is(err, ErrCorrupt) || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "cannot read") {
		t.Errorf("opened: %v; want an error that says that the disk cannot read FENCE", err)
	}
	if in := mustInspect(t, fs); len(in.Findings) == 0 || !strings.Contains(in.Findings[0].Reason, "cannot read") {
		t.Errorf("inspected: %+v", in.Findings)
	}
	fs.SetHook(nil)
	want.check(t, mustOpen(t, opts))
}
