package inspect

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/record"
)

const logDir = "/log"

// openLarge opens the log in logDir with segments of 1 MiB.
func openLarge(t *testing.T, fs vfs.FS) *wal.Log {
	t.Helper()
	l, err := wal.Open(wal.Options{FS: fs, Rand: rand.NewChaCha8([32]byte{1}), Dir: logDir, Scheduler: idle{}, Owner: 7, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// large returns the entries [lo, hi) of term 1, with n bytes each.
func large(lo, hi uint64, n int) (es []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		es = append(es, raftpb.Entry{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, n)})
	}
	return es
}

// The streaming reader, which has a window, and the scan of an inspection, which has whole segments, find the
// same records in every harmed log.
func TestRecordsAreWhatAnInspectionReads(t *testing.T) {
	flaws := 0
	for _, tc := range harms {
		fs := crashfs.New()
		closed(t, story(t, fs, logDir, 7))
		tc.harm(t, fs)
		in, err := wal.Inspect(t.Context(), wal.InspectOptions{FS: fs, Dir: logDir})
		if err != nil {
			t.Fatal(err)
		}
		count := map[uint64]int64{}
		err = ReadRecords(t.Context(), wal.InspectOptions{FS: fs, Dir: logDir}, func(r Record) error {
			if r.Flaw != "" {
				flaws++
				return nil
			}
			count[r.Segment]++
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for _, s := range in.Segments {
			var n int64
			for _, k := range s.Records.Count {
				n += k
			}
			if s.Version != 0 && n != 0 && n != count[s.ID] {
				t.Errorf("%s: %s has %d records, %d were read", tc.name, s.Name, n, count[s.ID])
			}
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if flaws < 5 {
		t.Errorf("only %d flaws were met", flaws)
	}
}

// A record that is larger than the window is read completely. If its end is cut off, it is not a record.
func TestRecordsLargerThanTheWindow(t *testing.T) {
	fs := crashfs.New()
	l := open(t, fs, logDir, 7)
	add(t, l, wal.Write{Group: 1, Entries: large(1, 4, 2*recordWindowBytes+5)})
	closed(t, l)
	read := func() (sizes []int, flaw string) {
		err := ReadRecords(t.Context(), wal.InspectOptions{FS: fs, Dir: logDir}, func(r Record) error {
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
	if sizes, flaw := read(); len(sizes) != 3 || sizes[2] != 2*recordWindowBytes+5 || flaw != "" {
		t.Errorf("%v, %q", sizes, flaw)
	}
	names, err := fs.ReadDir(logDir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, record.SegmentSuffix) })
	f, err := fs.Open(logDir + "/" + names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(recordWindowBytes); err != nil {
		t.Fatal(err)
	}
	if sizes, flaw := read(); len(sizes) != 2 || flaw != string(record.FlawShort) {
		t.Errorf("%v, %q", sizes, flaw)
	}
	for kind := range map[crashfs.OpKind]bool{crashfs.OpRead: true, crashfs.OpOpen: true, crashfs.OpReadDir: true} {
		fs.SetHook(crashfs.FailNth(kind, 1, errDisk))
		if err := ReadRecords(t.Context(), wal.InspectOptions{FS: fs, Dir: logDir}, func(Record) error { return nil }); !errors.Is(err, errDisk) {
			t.Errorf("%v: %v", kind, err)
		}
	}
	fs.SetHook(nil)
	n := 0
	if err := ReadRecords(t.Context(), wal.InspectOptions{FS: fs, Dir: logDir}, func(Record) error { n++; return ErrStop }); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}

// Each operation of the readers fails once, on a log with an entry that is larger than their window. A failed
// read must give an error or a finding. The log must not seem whole, and the reader must not seem to have
// reached the end.
func TestReadersTellOfEveryReadThatFails(t *testing.T) {
	disk := crashfs.New()
	l := openLarge(t, disk)
	add(t, l, wal.Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: large(1, 200, 900)},
		wal.Write{Group: 1, Entries: large(200, 201, recordWindowBytes+1000)}, wal.Write{Group: 1, Entries: large(201, 400, 900)})
	closed(t, l)
	look := wal.InspectOptions{FS: disk, Dir: logDir}
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
	if in, err := wal.Inspect(t.Context(), look); err != nil || len(in.Findings) != 0 {
		t.Fatalf("findings in a whole log: %v", in.Findings)
	}
	for k := 1; ; k++ {
		failed := false
		disk.SetHook(failOperation(k, &failed, crashfs.OpReadDir, crashfs.OpRead)) // not OpOpen: Inspect also opens files to learn their sizes, for progress
		in, err := wal.Inspect(t.Context(), look)
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

// failOperation returns a hook that makes the k-th operation fail, of the given kinds or of all, and then
// sets *failed.
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

var errDisk = errors.New("disk is on fire")
