package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// endStory writes a log of one group in segments of 16 KiB: 64 entries of 700 bytes, each with a vote and
// synced. With helped the helper runs, so a segment is prepared after the tail. With closed the log is
// closed; otherwise it ends as with a crash. endStory returns the disk and the place where the log ends.
func endStory(t testing.TB, seed byte, helped, closed bool) (*crashfs.FS, position) {
	fs, sched := crashfs.New(), &manual{}
	opts := endOptions(fs)
	opts.Scheduler, opts.Rand = sched, seeded(seed)
	l := mustOpen(t, opts)
	for i := uint64(1); i <= 64; i++ {
		mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: i, Vote: 1 + i%3, Commit: i}, Entries: entries(i, i+1, i, 700)})
		mustSync(t, l)
		if helped {
			sched.runIdle()
		}
	}
	end := position{segment: l.tail.seg.id, off: l.tail.seg.end}
	if closed {
		mustClose(t, l)
	}
	return fs.Image(crashfs.LoseNothing, nil), end // after a reboot
}

func endOptions(fs *crashfs.FS) Options {
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes, opts.CacheBytes = 16384, -1
	return opts
}

// Files of a log are removed or changed, so that its end or its FENCE is missing or belongs to another log.
// The table says when Open reports it: always, only in a log that was closed (C), or only in one with a
// prepared segment (H). In the other cases the directory does not have the information.
func TestMissingEnd(t *testing.T) {
	path := func(name string) string { return filepath.Join(testDir, name) }
	write := func(t *testing.T, fs *crashfs.FS, name string, edit func(size int64) (off int64, p []byte)) {
		f, err := fs.Open(path(name))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		off, p := edit(size)
		if _, werr := f.WriteAt(p, off); errors.Join(err, werr) != nil {
			t.Fatal(err, werr)
		}
	}
	truncate := func(n int64) func(t *testing.T, fs *crashfs.FS, end position) {
		return func(t *testing.T, fs *crashfs.FS, end position) {
			f, err := fs.Open(path(record.SegmentName(end.segment)))
			if err == nil {
				err = f.Truncate(n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, fs *crashfs.FS, names ...string) {
		for _, name := range names {
			if err := fs.Remove(path(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		name  string
		harm  func(t *testing.T, fs *crashfs.FS, end position)
		says  string // the text in the error
		ready string // the text if a segment is prepared, if it differs
		ended string // the text if the log was closed, if it differs
		only  string // C or H: Open reports it only then
	}{
		{name: "nothing", harm: func(*testing.T, *crashfs.FS, position) {}, only: "never"},
		{name: "tail deleted", only: "CH", ready: "is missing before it", ended: "FENCE says that the log reached into this segment",
			harm: func(t *testing.T, fs *crashfs.FS, end position) { remove(t, fs, record.SegmentName(end.segment)) }},
		{name: "tail deleted, and what stood ready behind it", only: "CH", ready: "FENCE says that the log reached into this segment", ended: "FENCE says that the log reached into this segment",
			harm: func(t *testing.T, fs *crashfs.FS, end position) {
				for _, name := range segmentNames(t, fs) {
					if name >= record.SegmentName(end.segment) {
						remove(t, fs, name)
					}
				}
			}},
		{name: "tail cut to 10000 bytes", harm: truncate(10000), says: "the file has 10000 bytes, and had 16384 when it was made"},
		{name: "tail cut to 64 bytes", harm: truncate(64), only: "CH", ready: "the file has 64 bytes, and had 16384", ended: "the file ends, but FENCE says that the log reached offset"},
		{name: "tail cut to nothing", harm: truncate(0), only: "CH", ready: "the segment header is damaged", ended: "FENCE says that the log reached into this segment"},
		{name: "first 4 KiB of the tail zeroed", says: "the segment header is damaged", harm: func(t *testing.T, fs *crashfs.FS, end position) {
			write(t, fs, record.SegmentName(end.segment), func(int64) (int64, []byte) { return 0, make([]byte, 4096) })
		}},
		{name: "tail zeroed", only: "CH", ready: "the segment header is damaged", ended: "FENCE says that the log reached into this segment",
			harm: func(t *testing.T, fs *crashfs.FS, end position) {
				write(t, fs, record.SegmentName(end.segment), func(size int64) (int64, []byte) { return 0, make([]byte, size) })
			}},
		{name: "tail zeroed from the middle of a record on", only: "C", ended: "the record body does not match its checksum, but FENCE says that the log reached offset",
			harm: func(t *testing.T, fs *crashfs.FS, end position) {
				write(t, fs, record.SegmentName(end.segment), func(size int64) (int64, []byte) {
					return end.off / 2, make([]byte, size-end.off/2)
				})
			}},
		{name: "rm *.wal", says: "it says that there is a log, but there is no segment",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) { removeSegments(t, fs) }},
		{name: "all segments of another log of this host", says: "another log's files were put here",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				removeSegments(t, fs)
				other, _ := endStory(t, 2, true, true)
				for name, data := range files(t, other) {
					if name != fenceName {
						putFile(t, fs, name, data)
					}
				}
			}},
		{name: "one segment of another log, in the middle", says: "another log's files were put here",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				other, _ := endStory(t, 2, true, true)
				putFile(t, fs, record.SegmentName(2), files(t, other)[record.SegmentName(2)])
			}},
		{name: "an old segment behind a newer one", says: "it has version 2, but 0000000000000001.wal before it has a newer one",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				putFile(t, fs, record.SegmentName(2), forgeOf(2, 2).linkTo(1, 999, 1).entry(1).file())
			}},
		{name: "FENCE deleted", says: "FENCE at offset 0 is corrupt: it is missing, but 0000000000000001.wal was written beside one",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) { remove(t, fs, fenceName) }},
		{name: "both copies of FENCE spoiled", says: "FENCE at offset 0 is corrupt: it does not match its checksum",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				for i := range int64(fenceCopies) {
					write(t, fs, fenceName, func(int64) (int64, []byte) { return i*fenceBlock + 20, []byte{77} })
				}
			}},
		{name: "FENCE of version 1", says: "it has version 1, but 0000000000000001.wal was written beside one of version 2",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				putFile(t, fs, fenceName, readGolden(t, "fence.hex"))
			}},
		{name: "FENCE of an earlier generation", says: "it is an older copy: it has generation 0, and the segments name 1",
			harm: func(t *testing.T, fs *crashfs.FS, _ position) {
				head, _ := record.ParseSegmentHeader(files(t, fs)[record.SegmentName(1)])
				putFile(t, fs, fenceName, fenceFile(fence{log: head.Log, owner: 7, flags: flagMade}))
			}},
	} {
		for _, closed := range []bool{false, true} {
			for _, helped := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/closed=%t,ready=%t", row.name, closed, helped), func(t *testing.T) {
					says := row.says
					switch {
					case says != "":
					case helped && strings.Contains(row.only, "H"):
						says = row.ready
					case closed && strings.Contains(row.only, "C"):
						says = row.ended
					}
					fs, end := endStory(t, 1, helped, closed)
					row.harm(t, fs, end)
					in := mustInspect(t, fs)
					l, err := Open(endOptions(fs))
					if says == "" {
						if err != nil || in.worst() == Damaged {
							t.Fatalf("opened: %v; inspected: %+v", err, in.Findings)
						}
						if whole := l.Group(1).LastIndex() == 64; whole != (row.only == "never") {
							t.Errorf("the last index is %d", l.Group(1).LastIndex())
						}
						return
					}
					var corrupt *CorruptError
					if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), says) {
						t.Fatalf("have %v, want %q", err, says)
					}
					if len(in.Findings) == 0 || in.Findings[0].Reason != corrupt.Reason || in.Findings[0].File != corrupt.File || in.Findings[0].Kind != Damaged {
						t.Errorf("Open says %q, an inspection %+v", corrupt.Reason, in.Findings)
					}
					opts := endOptions(fs)
					opts.Salvage = true
					l = mustOpen(t, opts)
					if !l.Fence().Amnesia {
						t.Error("the salvaged log may vote")
					}
					mustClose(t, l)
					opts.Salvage = false
					mustClose(t, mustOpen(t, opts))
				})
			}
		}
	}
}

// putFile writes a file, and replaces an existing one.
func putFile(t testing.TB, fs *crashfs.FS, name string, data []byte) {
	path := filepath.Join(testDir, name)
	_ = fs.Remove(path) // it may not exist
	f, err := fs.Create(path)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A process that dies while it recovers a log that was closed leaves a FENCE that still says how far the log
// reached: if the tail is deleted then, the next Open reports it.
func TestACrashDuringRecoveryRemembersTheEnd(t *testing.T) {
	closed, end := endStory(t, 1, false, true)
	for n := 1; ; n++ {
		fs := closed.Image(crashfs.LoseNothing, nil)
		operations := 0
		fs.SetHook(func(crashfs.Op) error {
			if operations++; operations == n {
				return errDisk
			}
			return nil
		})
		_, err := Open(endOptions(fs))
		fs.SetHook(nil)
		if operations < n {
			return
		}
		if err == nil {
			continue // it did without
		}
		fs.Crash(crashfs.LoseNothing, nil)
		if err := fs.Remove(filepath.Join(testDir, record.SegmentName(end.segment))); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(endOptions(fs)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a recovery failed at operation %d, and the tail was deleted: %v, want %v", n, err, ErrCorrupt)
		}
	}
}
