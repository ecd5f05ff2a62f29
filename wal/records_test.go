package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// The streaming reader, which has a window, and the scan of recovery, which has whole segments, find the same
// records, however a log was harmed.
func TestRecordsAreWhatRecoveryReads(t *testing.T) {
	flaws := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		fs := longStory(t, 20+rng.IntN(120), rng.IntN(2) == 0)
		harm(t, fs, rng)
		in := mustInspect(t, fs)
		count := map[uint64]int64{}
		err := ReadRecords(t.Context(), InspectOptions{FS: fs, Dir: testDir}, func(r Record) error {
			if r.Flaw != "" {
				flaws++
				return nil
			}
			count[r.Segment]++
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, s := range in.Segments {
			if i < len(in.scan.traces) && in.scan.traces[i].why == flawTornBefore {
				continue // its records are valid by themselves, and go with what is torn before them
			}
			var n int64
			for _, k := range s.Records.Count {
				n += k
			}
			if s.Version != 0 && n != count[s.ID] {
				t.Fatalf("seed %d: %s has %d records, %d were read", seed, s.Name, n, count[s.ID])
			}
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if flaws < 30 {
		t.Errorf("only %d flaws were met", flaws)
	}
}

// A record that is larger than the window is read whole; one whose end is cut off is not one.
func TestRecordsLargerThanTheWindow(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, &manual{}))
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 4, 1, 2*windowBytes+5)})
	mustClose(t, l)
	read := func() (sizes []int, flaw string) {
		err := ReadRecords(t.Context(), InspectOptions{FS: fs, Dir: testDir}, func(r Record) error {
			if r.Kind == "entry" {
				sizes = append(sizes, len(r.Data))
			}
			flaw += r.Flaw
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return sizes, flaw
	}
	if sizes, flaw := read(); len(sizes) != 3 || sizes[2] != 2*windowBytes+5 || flaw != "" {
		t.Errorf("%v, %q", sizes, flaw)
	}
	names := segmentNames(t, fs)
	f, err := fs.Open(testDir + "/" + names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(windowBytes); err != nil {
		t.Fatal(err)
	}
	if sizes, flaw := read(); len(sizes) != 2 || flaw != string(record.FlawShort) {
		t.Errorf("%v, %q", sizes, flaw)
	}
	for kind := range map[crashfs.OpKind]bool{crashfs.OpRead: true, crashfs.OpOpen: true, crashfs.OpReadDir: true} {
		fs.SetHook(crashfs.FailNth(kind, 1, errDisk))
		if err := ReadRecords(t.Context(), InspectOptions{FS: fs, Dir: testDir}, func(Record) error { return nil }); !errors.Is(err, errDisk) {
			t.Errorf("%v: %v", kind, err)
		}
	}
	fs.SetHook(nil)
	n := 0
	if err := ReadRecords(t.Context(), InspectOptions{FS: fs, Dir: testDir}, func(Record) error { n++; return ErrStop }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

// Every operation of the readers fails once, on a log with an entry that is larger than their window. A read
// that fails is an error or a finding, never a log that seems whole, and never an end of the records that
// seems to be the end.
func TestReadersTellOfEveryReadThatFails(t *testing.T) {
	disk := crashfs.New()
	opts := testOptions(disk, &manual{})
	opts.SegmentBytes = 1 << 20
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 200, 1, 900)},
		Write{Group: 1, Entries: entries(200, 201, 1, windowBytes+1000)}, Write{Group: 1, Entries: entries(201, 400, 1, 900)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	look := InspectOptions{FS: disk, Dir: testDir}
	count := func() (n int, err error) {
		err = ReadRecords(t.Context(), look, func(r Record) error { n++; return nil })
		return n, err
	}
	all, err := count()
	if err != nil {
		t.Fatal(err)
	}
	for k := 1; ; k++ {
		failed := false
		disk.SetHook(failOperation(k, &failed))
		n, err := count()
		disk.SetHook(nil)
		if !failed {
			if n != all || err != nil {
				t.Errorf("nothing fails: %d of %d records, %v", n, all, err)
			}
			if k < 6 {
				t.Errorf("the reader does %d operations; it has more to read", k-1)
			}
			break
		}
		if !errors.Is(err, errDisk) {
			t.Errorf("operation %d fails: %d of %d records, %v", k, n, all, err)
		}
	}
	if in := mustInspect(t, disk); len(in.Findings) != 0 {
		t.Fatalf("findings in a whole log: %v", in.Findings)
	}
	for k := 1; ; k++ {
		failed := false
		disk.SetHook(failOperation(k, &failed, crashfs.OpReadDir, crashfs.OpRead)) // opening is also how it looks for sizes, to tell progress
		in, err := Inspect(t.Context(), look)
		disk.SetHook(nil)
		if err == nil {
			if whole := in.Segments != nil && len(in.Findings) == 0 && in.Passes == 1; failed && whole {
				t.Errorf("operation %d fails, and the log is called whole at the first look", k)
			}
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !failed {
			if k < 4 {
				t.Errorf("an inspection does %d operations; it has more to read", k-1)
			}
			return
		}
	}
}

// failOperation makes the k-th operation of a disk fail, of the given kinds or of all, and notes that.
func failOperation(k int, failed *bool, kinds ...crashfs.OpKind) func(crashfs.Op) error {
	n := 0
	return func(op crashfs.Op) error {
		if len(kinds) > 0 && !slices.Contains(kinds, op.Kind) {
			return nil
		}
		if n++; n == k {
			*failed = true
			return errDisk
		}
		return nil
	}
}
