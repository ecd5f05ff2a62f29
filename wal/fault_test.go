package wal

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// faulty is a disk whose n-th operation, of any kind, does nothing and returns an error. This includes
// operations that always succeed in package crashfs, such as Size and Close.
type faulty struct {
	disk vfs.FS
	n    int // operations until the error
	err  error
	hit  bool
}

func (f *faulty) fault() error {
	f.n--
	if f.n != 0 {
		return nil
	}
	f.hit = true
	return f.err
}

func (f *faulty) wrap(file vfs.File, err error) (vfs.File, error) {
	return faultyFile{file, f}, err
}

func (f *faulty) Create(name string) (vfs.File, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.wrap(f.disk.Create(name))
}

func (f *faulty) Open(name string) (vfs.File, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.wrap(f.disk.Open(name))
}

func (f *faulty) Rename(from, to string) error {
	return errors.Join(f.fault(), f.unless(func() error { return f.disk.Rename(from, to) }))
}

func (f *faulty) Remove(name string) error {
	return errors.Join(f.fault(), f.unless(func() error { return f.disk.Remove(name) }))
}

func (f *faulty) Link(from, to string) error {
	return errors.Join(f.fault(), f.unless(func() error { return f.disk.Link(from, to) }))
}

func (f *faulty) RemoveDir(dir string) error {
	return errors.Join(f.fault(), f.unless(func() error { return f.disk.RemoveDir(dir) }))
}

// unless calls do, unless this operation is the one that fails.
func (f *faulty) unless(do func() error) error {
	if f.n == 0 {
		return nil
	}
	return do()
}

func (f *faulty) ReadDir(dir string) ([]string, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.disk.ReadDir(dir)
}

func (f *faulty) MkdirAll(dir string) error {
	return errors.Join(f.fault(), f.unless(func() error { return f.disk.MkdirAll(dir) }))
}

func (f *faulty) OpenDir(dir string) (vfs.Dir, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	d, err := f.disk.OpenDir(dir)
	return faultyDir{d, f}, err
}

type faultyDir struct {
	vfs.Dir
	f *faulty
}

func (d faultyDir) Sync() error { return errors.Join(d.f.fault(), d.f.unless(d.Dir.Sync)) }

func (f *faulty) OpenDirect(name string) (vfs.BlockWriter, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	w, err := f.disk.OpenDirect(name)
	return faultyWriter{w, f}, err
}

func (f *faulty) BootID() (string, error) {
	if err := f.fault(); err != nil {
		return "", err
	}
	return f.disk.BootID()
}

func (f *faulty) Lock(path string) (io.Closer, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.disk.Lock(path)
}

type faultyFile struct {
	vfs.File
	f *faulty
}

func (w faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := w.f.fault(); err != nil {
		return 0, err
	}
	return w.File.ReadAt(p, off)
}

func (w faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := w.f.fault(); err != nil {
		return 0, err
	}
	return w.File.WriteAt(p, off)
}

func (w faultyFile) Sync() error {
	if err := w.f.fault(); err != nil {
		return err
	}
	return w.File.Sync()
}

func (w faultyFile) Size() (int64, error) {
	if err := w.f.fault(); err != nil {
		return 0, err
	}
	return w.File.Size()
}

func (w faultyFile) Preallocate(off, n int64) error {
	if err := w.f.fault(); err != nil {
		return err
	}
	return w.File.Preallocate(off, n)
}

func (w faultyFile) WriteZeroes(off, n int64) error {
	if err := w.f.fault(); err != nil {
		return err
	}
	return vfs.WriteZeroes(w.File, off, n)
}

func (w faultyFile) Close() error { return errors.Join(w.f.fault(), w.File.Close()) }

type faultyWriter struct {
	vfs.BlockWriter
	f *faulty
}

func (w faultyWriter) WriteAt(p []byte, off int64) (int, error) {
	if err := w.f.fault(); err != nil {
		return 0, err
	}
	return w.BlockWriter.WriteAt(p, off)
}

func (w faultyWriter) Close() error { return errors.Join(w.f.fault(), w.BlockWriter.Close()) }

// life is one life of a log that does everything, in an empty directory or after an earlier life: the log
// appends, rolls over, grows a segment, truncates, compacts, moves, drops, recycles, reads and closes.
type life struct {
	synced twin    // the last state that Sync made durable
	after  history // the states after each write of the current append
	err    error   // the first error
}

func (w *life) live(opts Options, sched *manual) {
	l, err := Open(opts)
	if err != nil {
		w.err = err
		return
	}
	now := w.synced.clone()
	do := func(writes ...Write) {
		if w.err != nil {
			return
		}
		w.after = history{}
		w.after.add(now, writes)
		if w.err = l.Append(writes); w.err == nil {
			now = now.clone()
			now.apply(writes)
			if w.err = l.Sync(); w.err == nil {
				w.synced = now
			}
		}
		sched.runIdle()
	}
	term := now[1].hs.Term
	for range 14 {
		term++
		next := now[1].last() + 1
		do(Write{Group: 1, HardState: raftpb.HardState{Term: term, Vote: 1}, Entries: entries(next, next+3, term, 900)},
			Write{Group: 2, Entries: entries(now[2].last()+1, now[2].last()+2, 1, 20)})
		do(Write{Group: 1, TruncateFrom: next + 2}, Write{Group: 1, CompactThrough: next + 1})
	}
	do(Write{Group: 1, Entries: entries(now[1].last()+1, now[1].last()+2, term, 20_000)})
	do(Write{Group: 3, Snapshot: Snapshot{now[3].last() + 10, 3}})
	if w.err == nil {
		_, w.err = l.Group(2).Entries(now[2].start.Index+1, now[2].last()+1, ^uint64(0))
	}
	if err := l.Close(); w.err == nil {
		w.err = err
	}
}

// TestEveryOperationFails makes each disk operation of two lives of a log fail, one at a time. The log must
// report the error, unless it does no harm. When the disk works again, everything that was synced must be
// there.
func TestEveryOperationFails(t *testing.T) {
	enumerates(t)
	for _, cause := range []error{errDisk, syscall.ENOSPC} {
		for _, direct := range []bool{true, false} {
			if raceEnabled && (direct || cause != errDisk) {
				continue // the same code again, and slow
			}
			told, harmless := 0, 0
			for n := 1; ; n++ {
				disk := crashfs.New()
				disk.SetWriteZeroes(direct) // else segments are only allocated
				f := &faulty{disk: disk, n: n, err: cause}
				sched := &manual{}
				opts := testOptions(f, sched)
				opts.CacheBytes, opts.SegmentBytes = -1, 4096
				if !direct {
					opts.SegmentBytes = 4000
				}
				w := &life{synced: twin{}}
				w.live(opts, sched)
				if w.err == nil {
					w.live(opts, sched)
				}
				if !f.hit {
					if w.err != nil {
						t.Fatal(w.err)
					}
					break
				}
				switch {
				case w.err == nil:
					harmless++
				case errors.Is(w.err, cause):
					told++
				default:
					t.Fatalf("operation %d: %v", n, w.err)
				}
				disk.Crash(crashfs.LoseNothing, nil)
				opts.FS = disk
				l := mustOpen(t, opts)
				if pick(t, l, w.synced, w.after) == nil {
					t.Fatalf("operation %d failed, and the log returned %v", n, w.err)
				}
				mustClose(t, l)
			}
			t.Logf("%v, direct writes %v: %d operations failed with an error, %d without harm", cause, direct, told, harmless)
			if told == 0 || harmless == 0 {
				t.Error("want operations of both kinds")
			}
		}
	}
}
