package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// tornStory writes a log whose last write is {vote of term 2, entries 4 to 6}, and puts a wrong byte into the
// body of the last record. It returns the bytes of that record, which a recovery cuts.
func tornStory(t *testing.T, opts Options, fs *crashfs.FS) (cut []byte) {
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustSync(t, l)
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3}, Entries: entries(4, 7, 2, 50)})
	end := l.tail.seg.end
	fs.Crash(crashfs.LoseNothing, nil)
	f, err := fs.Open(l.tail.seg.path)
	if err == nil {
		_, err = f.WriteAt([]byte{0xEE}, end-20)
	}
	cut = make([]byte, record.Bytes(50))
	if _, rerr := f.ReadAt(cut, end-record.Bytes(50)); err != nil || rerr != nil {
		t.Fatal(err, rerr)
	}
	return cut
}

// noDirect is a disk without direct writes, or, if refuse is set, one that refuses them while *refuse is
// true.
type noDirect struct {
	vfs.FS
	refuse *bool
}

type moodyWriter struct {
	vfs.BlockWriter
	refuse *bool
}

func (d noDirect) OpenDirect(name string) (vfs.BlockWriter, error) {
	if d.refuse == nil {
		return nil, errors.ErrUnsupported
	}
	w, err := d.FS.OpenDirect(name)
	return moodyWriter{w, d.refuse}, err
}

func (r moodyWriter) WriteAt(p []byte, off int64) (int, error) {
	if *r.refuse {
		return 0, syscall.EINVAL
	}
	return r.BlockWriter.WriteAt(p, off)
}

// A record with a wrong body at the end of the log is damage if it was written directly and the machine has
// been up since. Otherwise a crash may have left it.
func TestWrongBodyAtTheEnd(t *testing.T) {
	for _, row := range []struct {
		name   string
		disk   func(fs *crashfs.FS) vfs.FS
		then   func(t *testing.T, fs *crashfs.FS, opts *Options)
		damage bool
	}{
		{name: "a direct write, the same boot", damage: true},
		{name: "a direct write, another boot", then: func(t *testing.T, fs *crashfs.FS, opts *Options) {
			opts.FS = fs.Image(crashfs.LoseNothing, nil)
		}},
		{name: "a buffered write, the same boot", disk: func(fs *crashfs.FS) vfs.FS { return noDirect{FS: fs} }},
		{name: "a filesystem that takes direct writes to its page cache, the same boot", disk: func(fs *crashfs.FS) vfs.FS {
			fs.SetPlacement(vfs.Placement{Cuts: true})
			return fs
		}},
		{name: "a machine that does not know its boot", disk: func(fs *crashfs.FS) vfs.FS { return bootless{FS: fs} }},
		{name: "zeros behind the last record, the same boot", then: func(t *testing.T, fs *crashfs.FS, opts *Options) {
			sc := newScan(opts.withDefaults(), nil)
			if err := sc.read(); !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			s := sc.table.segments[1]
			if _, err := s.file.WriteAt(make([]byte, 4096-sc.tip.Offset), sc.tip.Offset); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "the filesystem was shut down, and mounted again", then: func(_ *testing.T, fs *crashfs.FS, _ *Options) { fs.Remount() }},
		{name: "a recovery that failed in the middle, after a power cut", then: func(t *testing.T, fs *crashfs.FS, opts *Options) {
			image := fs.Image(crashfs.LoseNothing, nil)
			opts.FS = image
			image.SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, record.SegmentSuffix) {
					return errDisk
				}
				return nil
			})
			if _, err := Open(*opts); !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			image.SetHook(nil)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			fs := crashfs.New()
			opts := testOptions(fs, &manual{})
			if row.disk != nil {
				opts.FS = row.disk(fs)
			}
			tornStory(t, opts, fs)
			if row.then != nil {
				row.then(t, fs, &opts)
			}
			in, err := Inspect(t.Context(), InspectOptions{FS: opts.FS, Dir: testDir})
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(opts)
			if damaged := in.worst() == Damaged; errors.Is(err, ErrCorrupt) != row.damage || damaged != row.damage {
				t.Fatalf("opened: %v; inspected: %+v; want damage: %t", err, in.Findings, row.damage)
			}
			if row.damage {
				if !strings.Contains(err.Error(), "the machine has not lost power since") {
					t.Error(err)
				}
				return
			}
			if err != nil || l.Group(1).LastIndex() != 3 || l.Group(1).HardState().Term != 0 {
				t.Fatalf("%v", err)
			}
			if again := mustReopen(t, l, opts); len(again.Doubt()) > 0 {
				t.Errorf("closed, and opened again: %+v", again.Doubt())
			}
		})
	}
}

func mustReopen(t *testing.T, l *Log, opts Options) *Log {
	mustClose(t, l)
	return mustOpen(t, opts)
}

// After a failed write, or after the log has given up direct writes to the tail, the death of a process can
// leave a torn tail.
func TestTornOnTheSameBoot(t *testing.T) {
	for _, refused := range []bool{false, true} {
		fs, refuse := crashfs.New(), false
		opts := testOptions(noDirect{fs, &refuse}, &manual{})
		l := mustOpen(t, opts)
		mustAppend(t, l, add(1, 4, 1))
		mustSync(t, l)
		if !l.tail.seg.head.Direct {
			t.Fatal("the segment is not written directly")
		}
		if refuse = refused; refused {
			mustAppend(t, l, Write{Group: 1, Entries: entries(4, 7, 2, 50)})
			if l.tail.seg.block() > 1 {
				t.Error("the log still writes directly after a refusal")
			}
		} else {
			fs.SetHook(crashfs.When{Kind: crashfs.OpWrite, Nth: 1}.Do(crashfs.Short(600, errDisk)))
			if err := l.Append([]Write{{Group: 1, Entries: entries(4, 7, 2, 50)}}); !errors.Is(err, ErrDiskFailed) {
				t.Fatal(err)
			}
			fs.SetHook(nil)
		}
		fs.Crash(crashfs.LoseNothing, nil)
		f, err := fs.Open(testDir + "/" + record.SegmentName(1))
		if err == nil {
			_, err = f.WriteAt([]byte{0xEE}, l.tail.seg.end-record.Bytes(50)+record.HeaderBytes) // in entry 6, if it was written
		}
		if err != nil {
			t.Fatal(err)
		}
		if refuse = false; l.fence.now.flags != flagMade|flagPowerCut {
			t.Errorf("refused %t: the fence has flags %x", refused, l.fence.now.flags)
		}
		l = mustOpen(t, opts)
		if l.Group(1).LastIndex() != 3 || l.fence.now.flags != flagMade {
			t.Errorf("refused %t: the last entry is %d, the fence %+v", refused, l.Group(1).LastIndex(), l.fence.now)
		}
	}
}

// A recovery saves the bytes that it will cut, and Doubt names the entries in them whose headers are intact.
// The log keeps four such files.
func TestTornEndIsSaved(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	cut := tornStory(t, opts, fs)
	disk := fs.Image(crashfs.LoseNothing, nil)
	opts.FS = disk
	in := mustInspect(t, disk)
	l := mustOpen(t, opts)
	if got, want := l.Doubt(), []Doubt{{Group: 1, First: 4, Through: 6, Term: 2}}; !slices.Equal(got, want) {
		t.Errorf("Doubt returns %+v, want %+v", got, want)
	}
	name := record.SegmentName(1) + ".2" + tornSuffix
	if saved := files(t, disk)[name]; !bytes.Equal(saved, cut) || int64(len(saved)) != in.Findings[len(in.Findings)-1].Bytes {
		t.Errorf("saved %x, cut %x", saved, cut)
	}
	for range 6 {
		n := l.Group(1).LastIndex()
		mustAppend(t, l, Write{Group: 1, Entries: entries(n+1, n+2, 2, 50)})
		mustSync(t, l)
		if err := disk.FlipBit(l.tail.seg.path, l.tail.seg.end-20, 1); err != nil {
			t.Fatal(err)
		}
		disk = disk.Image(crashfs.LoseNothing, nil)
		opts.FS = disk
		l = mustOpen(t, opts)
	}
	var kept []string
	for name := range files(t, disk) {
		if isTornName(name) {
			kept = append(kept, name)
		}
	}
	if slices.Sort(kept); len(kept) != maxTorn || kept[0] != fmt.Sprintf("%s.5%s", record.SegmentName(1), tornSuffix) {
		t.Errorf("the log keeps the files %v", kept)
	}
	in = mustInspect(t, disk)
	if len(in.Torn) != maxTorn || len(in.Others) > 0 {
		t.Errorf("inspected: %+v, others %+v", in.Torn, in.Others)
	}
}

// The saved copy is durable before the cut: after a power cut at any moment of the recovery, the bytes are in
// the segment or in the file. On a full disk the recovery continues without a copy.
func TestTornEndIsSavedInTime(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	cut := tornStory(t, opts, fs)
	disk := fs.Image(crashfs.LoseNothing, nil)
	looked := 0
	disk.SetHook(func(op crashfs.Op) error {
		for what, image := range disk.Images(64, 1) {
			looked++
			found := false
			for name, data := range files(t, image) {
				found = found || (isTornName(name) || name == record.SegmentName(1)) && bytes.Contains(data, cut)
			}
			if !found {
				t.Errorf("a power cut before %s that left %s: the bytes that were cut are in no file", op, what)
			}
		}
		return nil
	})
	opts.FS = disk
	mustOpen(t, opts)
	if looked < 20 {
		t.Errorf("looked at %d images", looked)
	}

	disk = fs.Image(crashfs.LoseNothing, nil)
	disk.SetCapacity(disk.UsedBytes())
	saw := &warnings{}
	opts.FS, opts.Logger = disk, slog.New(saw)
	if l := mustOpen(t, opts); l.Group(1).LastIndex() != 3 || len(l.Doubt()) != 1 || !slices.Contains(saw.messages, "wal: no space to save what is cut off") {
		t.Errorf("on a full disk: %d, %+v, %q", l.Group(1).LastIndex(), l.Doubt(), saw.messages)
	}
}

// warnings keeps the warnings of a log.
type warnings struct {
	slog.Handler
	messages []string
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		w.messages = append(w.messages, r.Message)
	}
	return nil
}
