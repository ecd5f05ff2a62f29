package wal

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// The streaming reader, which has a window, and the scan of recovery, which has whole segments, find the same records,
// however a log was harmed.
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
		for _, s := range in.Segments {
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
	if sizes, flaw := read(); len(sizes) != 2 || flaw != string(flawShort) {
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
