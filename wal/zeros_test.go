package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// extents is a disk that counts what a filesystem with a journal would commit. A block is allocated or
// written. A write into an allocated block, and a change of a file's length, change the inode; the next sync
// of that file commits the inode. A sync after writes into written blocks commits nothing. That is so on ext4
// and XFS, which TestRealSyncsCommitNoInode measures.
type extents struct {
	vfs.FS
	clock *fakeClock
	pace  float64 // bytes a second that the disk takes; 0: it takes no time

	mu      sync.Mutex
	files   map[string]*extentFile // by name
	commits []string               // names of the files whose inodes syncs have committed
}

type extentFile struct {
	name    string
	size    int64
	written map[int64]bool // blocks
	changed bool           // since the last sync
}

func newExtents(clock *fakeClock) *extents {
	return &extents{FS: crashfs.New(), clock: clock, files: map[string]*extentFile{}}
}

// committed returns how many syncs have committed an inode so far.
func (d *extents) committed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.commits)
}

func (d *extents) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] = &extentFile{name: name, written: map[int64]bool{}, changed: true}
	return extentHandle{f, d, d.files[name]}, nil
}

func (d *extents) Open(name string) (vfs.File, error) {
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return extentHandle{f, d, d.files[name]}, nil
}

func (d *extents) OpenDirect(name string) (vfs.BlockWriter, error) {
	w, err := d.FS.OpenDirect(name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return extentWriter{w, d, d.files[name]}, nil
}

func (d *extents) Rename(from, to string) error {
	err := d.FS.Rename(from, to)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		f := d.files[from]
		delete(d.files, from)
		f.name, d.files[to] = to, f
	}
	return err
}

func (d *extents) wrote(f *extentFile, n int, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b := off / vfs.BlockBytes; b*vfs.BlockBytes < off+int64(n); b++ {
		f.changed = f.changed || !f.written[b]
		f.written[b] = true
	}
	f.grew(off + int64(n))
	d.spend(n)
}

// spend lets the disk take its time for n bytes. The caller holds mu.
func (d *extents) spend(n int) {
	if d.pace > 0 {
		d.clock.now += time.Duration(float64(n) / d.pace * float64(time.Second))
	}
}

func (f *extentFile) grew(size int64) {
	f.changed = f.changed || size > f.size
	f.size = max(f.size, size)
}

type extentHandle struct {
	vfs.File
	disk *extents
	file *extentFile
}

func (h extentHandle) WriteAt(p []byte, off int64) (int, error) {
	n, err := h.File.WriteAt(p, off)
	h.disk.wrote(h.file, n, off)
	return n, err
}

func (h extentHandle) Preallocate(off, n int64) error {
	err := h.File.Preallocate(off, n)
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.file.grew(off + n)
	return err
}

func (h extentHandle) WriteZeroes(off, n int64) error {
	err := vfs.WriteZeroes(h.File, off, n)
	if err == nil {
		h.disk.wrote(h.file, int(n), off)
	}
	return err
}

func (h extentHandle) Truncate(size int64) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.file.changed, h.file.size = true, size
	return h.File.Truncate(size)
}

func (h extentHandle) Sync() error {
	h.disk.mu.Lock()
	if h.file.changed {
		h.disk.commits = append(h.disk.commits, h.file.name)
		h.file.changed = false
	}
	h.disk.mu.Unlock()
	return h.File.Sync()
}

type extentWriter struct {
	vfs.BlockWriter
	disk *extents
	file *extentFile
}

func (w extentWriter) WriteAt(p []byte, off int64) (int, error) {
	n, err := w.BlockWriter.WriteAt(p, off)
	w.disk.wrote(w.file, n, off)
	return n, err
}

// steadyLog is a log on such a disk, whose helper has time after each sync.
type steadyLog struct {
	*Log
	t       *testing.T
	disk    *extents
	sched   *manual
	opts    Options
	keep    uint64 // entries; 0: all
	commits int    // of inodes, by its own syncs and appends: the helper's do not count
	last    uint64
	bytes   int64
}

func newSteadyLog(t *testing.T, segmentBytes int64) *steadyLog {
	clock := &fakeClock{}
	l := &steadyLog{t: t, disk: newExtents(clock), sched: &manual{}}
	l.opts = testOptions(l.disk, l.sched)
	l.opts.SegmentBytes, l.opts.Clock = segmentBytes, clock
	l.reopen()
	return l
}

func (l *steadyLog) reopen() {
	if l.Log != nil {
		mustClose(l.t, l.Log)
	}
	l.Log = mustOpen(l.t, l.opts)
	l.idle()
}

// idle lets the helper work, and rest, until it has nothing to do.
func (l *steadyLog) idle() {
	for range 20 {
		l.sched.runIdle()
		l.opts.Clock.(*fakeClock).advance(20 * time.Millisecond)
	}
}

// append appends an entry of n bytes, and syncs. Then the helper has time.
func (l *steadyLog) append(n int) {
	before := l.disk.committed()
	l.last++
	w := Write{Group: 1, Entries: entries(l.last, l.last+1, 1, n)}
	if l.keep > 0 && l.last > l.keep {
		w.CompactThrough = l.last - l.keep
	}
	mustAppend(l.t, l.Log, w)
	mustSync(l.t, l.Log)
	l.commits += l.disk.committed() - before
	l.bytes += int64(n)
	l.idle()
}

// rollTo appends until the tail is this many segments further, and returns how many syncs committed an inode.
func (l *steadyLog) roll(segments uint64, n int) int {
	before, from := l.commits, l.tail.seg.id
	for l.tail.seg.id < from+segments {
		l.append(n)
	}
	return l.commits - before
}

var syncSizes = []int{100, 20 << 10, 100 << 10, 700 << 10}

// In a log that grows no sync commits an inode after the first segment, at whatever size of a sync. The
// later segments were written before they became the tail.
func TestSyncsOfAGrowingLogCommitNoInode(t *testing.T) {
	enumerates(t)
	for _, n := range syncSizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newSteadyLog(t, min(8<<20, max(256<<10, int64(n)*50)))
			if l.roll(1, n); !l.Stats().TailYoung && l.Stats().YoungTails != 1 {
				t.Errorf("after the first segment: %+v", l.Stats())
			}
			if commits := l.roll(5, n); commits > 0 {
				t.Errorf("%d syncs committed the inode of %v", commits, l.disk.commits)
			}
			if s := l.Stats(); s.TailYoung || s.YoungTails != 1 || s.Recycled != 0 {
				t.Errorf("%+v", s)
			}
			mustClose(t, l.Log)
		})
	}
}

// In a log that is compacted at a steady size the segments are spares, and the helper writes no zeros.
func TestSyncsOfASteadyLogCommitNoInode(t *testing.T) {
	enumerates(t)
	for _, n := range syncSizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			segmentBytes := min(8<<20, max(256<<10, int64(n)*50))
			l := newSteadyLog(t, segmentBytes)
			l.keep = uint64(segmentBytes / int64(n) / 2)
			l.roll(8, n)
			before := l.Stats()
			if commits := l.roll(10, n); commits > 0 {
				t.Errorf("%d syncs committed the inode of %v", commits, l.disk.commits)
			}
			s := l.Stats()
			if zeros := s.ZeroedBytes - before.ZeroedBytes; s.YoungTails != 1 || s.Recycled < before.Recycled+10 || zeros > uint64(segmentBytes) {
				t.Errorf("%d bytes of zeros, %+v", zeros, s)
			}
			if s.Spares < 1 || s.Spares > maxSpares {
				t.Errorf("%d spares", s.Spares)
			}
			mustClose(t, l.Log)
		})
	}
}

// The first segment is left early, for a large record, so it is not written to its end. When its file is the
// next segment, it gets the zeros that it lacks.
func TestSparesGetTheZerosThatTheyLack(t *testing.T) {
	const n, segmentBytes = 8 << 10, 512 << 10
	l := newSteadyLog(t, segmentBytes)
	l.keep = 4
	l.append(400 << 10)
	l.append(400 << 10) // it does not fit
	for l.Stats().Recycled == 0 {
		l.roll(1, n)
	}
	if commits := l.roll(6, n); commits > 0 {
		t.Errorf("%d syncs committed the inode of %v", commits, l.disk.commits)
	}
	l.reopen()
	l.roll(1, n)
	if commits := l.roll(8, n); commits > 0 {
		t.Errorf("in the second life %d syncs committed the inode of %v", commits, l.disk.commits)
	}
	mustClose(t, l.Log)
}

// On a disk that writes zeros by itself no segment is ever young, and the helper writes no zeros. A disk that
// loses the way to do it on the go is no reason to stop.
func TestDisksThatWriteZeroes(t *testing.T) {
	const n = 20 << 10
	l := newSteadyLog(t, 512<<10)
	disk := l.disk.FS.(*crashfs.FS)
	disk.SetWriteZeroes(true)
	l.disk.FS = disk
	mustClose(t, l.Log)
	l.opts.Dir = "/other"
	l.Log = nil
	l.reopen()
	if commits := l.roll(6, n); commits > 0 {
		t.Errorf("%d syncs committed the inode of %v", commits, l.disk.commits)
	}
	if s := l.Stats(); s.YoungTails != 0 || s.TailYoung || s.ZeroedBytes != 0 {
		t.Errorf("%+v", s)
	}
	disk.SetWriteZeroes(false)
	l.roll(2, n)
	if commits := l.roll(4, n); commits > 0 {
		t.Errorf("afterwards %d syncs committed the inode of %v", commits, l.disk.commits)
	}
	if s := l.Stats(); s.ZeroedBytes == 0 {
		t.Errorf("%+v", s)
	}
	mustClose(t, l.Log)
}

// A power cut at any moment, while segments are made, recycled and filled, leaves what was durable. It
// leaves nothing that was not written: no record of a segment's last use, and no hole where zeros went.
func TestPowerCutsAmongZeros(t *testing.T) {
	images := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs, sched := crashfs.New(), &manual{}
		fs.SetWriteZeroes(seed%3 == 2)
		stale := seed%4 == 3
		fs.SetStale(stale)
		opts := testOptions(fs, sched)
		opts.SegmentBytes = 10 * vfs.BlockBytes
		l := mustOpen(t, opts)
		var durable, last, from uint64 = 0, 0, 1
		check := func(loss crashfs.Loss) {
			images++
			o := opts
			o.FS, o.Scheduler, o.Rand = fs.Image(loss, rng.Uint64), &manual{}, seeded(byte(images))
			again, err := Open(o)
			if stale && errors.Is(err, ErrCorrupt) {
				return // where new blocks show old bytes, a header that was never durable may look damaged
			}
			if err != nil {
				t.Fatalf("seed %d, image %d: %v", seed, images, err)
			}
			g := again.Group(1)
			if g.LastIndex() < durable || g.LastIndex() > last {
				t.Fatalf("seed %d, image %d: the log ends with %d, %d was durable and %d written", seed, images, g.LastIndex(), durable, last)
			}
			got, err := g.Entries(max(g.FirstIndex(), from), g.LastIndex()+1, math.MaxInt)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range got {
				if want := entry(e.Index, 1, 2000+int(e.Index%7)*700); !bytes.Equal(e.Data, want.Data) {
					t.Fatalf("seed %d, image %d: entry %d is another one", seed, images, e.Index)
				}
			}
			mustClose(t, again)
		}
		inside := false
		fs.SetHook(func(op crashfs.Op) error {
			if !inside && (op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpSync || op.Kind == crashfs.OpRename || op.Kind == crashfs.OpSyncDir) && rng.IntN(4) == 0 {
				inside = true
				check(crashfs.Loss(rng.IntN(2))) // LoseSome or LoseAll
				inside = false
			}
			return nil
		})
		for i := uint64(1); i < 150; i++ {
			last = i
			w := Write{Group: 1, Entries: entries(i, i+1, 1, 2000+int(i%7)*700)}
			if i > 20 && i%5 == 0 {
				from = i - 15
				w.CompactThrough = from - 1
			}
			mustAppend(t, l, w)
			if rng.IntN(3) > 0 {
				mustSync(t, l)
				durable = i
			}
			for range rng.IntN(4) {
				l.wakeHelper()
				sched.step()
			}
		}
		if s := l.Stats(); s.Recycled == 0 || s.ZeroedBytes == 0 && seed%3 != 2 {
			t.Errorf("seed %d: %+v", seed, s)
		}
		fs.SetHook(nil)
		mustClose(t, l)
	}
	t.Logf("%d images", images)
}

// A helper that was late for some tails catches up: it fills the segment after a young tail first. Here it
// has time for one piece after each append, which is less than a young tail and the next segment need.
func TestALateHelperCatchesUp(t *testing.T) {
	sched, clock := &manual{}, &fakeClock{}
	opts := testOptions(crashfs.New(), sched)
	opts.SegmentBytes, opts.Clock = 2<<20, clock
	l := mustOpen(t, opts)
	late := uint64(0)
	for i := uint64(1); l.tail.seg.id < 8; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 16<<10)})
		mustSync(t, l)
		if l.tail.seg.id < 3 {
			late = l.Stats().YoungTails
			continue
		}
		sched.step()
		clock.advance(time.Millisecond)
	}
	if s := l.Stats(); late < 2 || s.YoungTails > late+1 || s.TailYoung {
		t.Errorf("%d tails were young, and %d when the helper began", s.YoungTails, late)
	}
	mustClose(t, l)
}

// A helper that has much to fill rests as long as it works.
func TestTheHelperRests(t *testing.T) {
	clock, sched := &fakeClock{}, &manual{}
	disk := newExtents(clock)
	opts := testOptions(disk, sched)
	opts.SegmentBytes, opts.Clock = 4<<20, clock
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 3, 1, 1<<20)})
	mustSync(t, l)
	disk.pace = 1 << 30
	began, worked := clock.now, time.Duration(0)
	for before := l.Stats().ZeroedBytes; l.Stats().ZeroedBytes < before+3<<20; clock.advance(time.Microsecond) {
		from := clock.now
		sched.step()
		worked += clock.now - from
	}
	if took := clock.now - began; worked > took*11/20 || worked < took/4 {
		t.Errorf("the helper had the disk for %v of %v", worked, took)
	}
	mustClose(t, l)
}

// An idle log gets few zeros, however often the helper is asked.
func TestAnIdleLogGetsFewZeros(t *testing.T) {
	l := newSteadyLog(t, 8<<20)
	for range 100 {
		l.wakeHelper()
		l.idle()
	}
	if s := l.Stats(); s.ZeroedBytes > 8*128<<10 {
		t.Errorf("%d bytes of zeros", s.ZeroedBytes)
	}
	mustClose(t, l.Log)
}

// The helper wakes for a whole piece. If it filled what is due to the block, each sync would wake it.
func TestZerosComeInWholePieces(t *testing.T) {
	l := newSteadyLog(t, 8<<20)
	first := l.Stats().ZeroedBytes
	for range 300 {
		before := l.Stats().ZeroedBytes
		l.append(3000)
		if n := l.Stats().ZeroedBytes - before; n%uint64(pieceBytes(8<<20)) != 0 {
			t.Fatalf("%d bytes of zeros beside an append, which are no pieces of %d", n, pieceBytes(8<<20))
		}
	}
	if l.Stats().ZeroedBytes == first {
		t.Error("no zeros")
	}
	mustClose(t, l.Log)
}

// The helper has the disk for half of the time at most, and none of it if the log itself needs more than half
// of what the disk takes.
func TestZerosTakeNoBandwidthFromAppends(t *testing.T) {
	enumerates(t)
	const n, segmentBytes, pace = 16 << 10, 2 << 20, 1 << 30
	for _, c := range []struct {
		load  float64 // of the disk's pace, by the log
		zeros bool
	}{{0.05, true}, {0.2, true}, {0.8, false}, {3, false}} {
		clock := &fakeClock{}
		disk, sched := newExtents(clock), &manual{}
		disk.pace = pace
		opts := testOptions(disk, sched)
		opts.SegmentBytes, opts.Clock = segmentBytes, clock
		l := mustOpen(t, opts)
		worked, began := time.Duration(0), clock.now
		for i := uint64(1); l.tail.seg.id < 40; i++ {
			mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, n)})
			mustSync(t, l)
			next := began + time.Duration(float64(i)*n/(c.load*pace)*float64(time.Second)) // append
			for before := clock.now; ; before = clock.now {
				clock.advance(0) // timers that the disk's time has passed
				sched.step()
				worked += clock.now - before
				if clock.now >= next {
					break
				}
				clock.advance(min(next-clock.now, 5*time.Microsecond))
			}
		}
		s, took := l.Stats(), clock.now-began
		t.Logf("load %v: %d of %d bytes of zeros, %d of 40 tails young, helper busy for %v of %v", c.load, s.ZeroedBytes, s.AppendedBytes, s.YoungTails, worked, took)
		if c.zeros && s.YoungTails > 2 || !c.zeros && s.ZeroedBytes > s.AppendedBytes/8 {
			t.Errorf("load %v: %d of %d bytes of zeros, %d of 40 tails young", c.load, s.ZeroedBytes, s.AppendedBytes, s.YoungTails)
		}
		if worked > took/2 {
			t.Errorf("load %v: the helper had the disk for %v of %v", c.load, worked, took)
		}
		mustClose(t, l)
	}
}

// A disk that has no space for zeros is asked once for a tail. The log continues.
func TestZerosOnAFullDiskAreAFavour(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 256 << 10
	l := mustOpen(t, opts)
	asked := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && op.Direct && op.Len == vfs.BlockBytes && op.Off > l.tail.seg.end+vfs.BlockBytes {
			asked++
			return syscall.ENOSPC
		}
		return nil
	})
	for i := uint64(1); l.tail.seg.id < 4; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 2*vfs.BlockBytes)})
		mustSync(t, l)
		sched.runIdle()
	}
	if asked == 0 || asked > 4 || l.failure() != nil {
		t.Errorf("asked %d times, the log says %v", asked, l.failure())
	}
	mustClose(t, l)
}

// A filesystem that finds space late says at the sync of the zeros that there is none. Only zeros are lost,
// unless an append has reached the segment meanwhile: its records may be lost too, and the log stops.
func TestZerosThatFindNoSpaceLate(t *testing.T) {
	for _, c := range []struct{ direct, reached bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			disk, sched := crashfs.New(), &manual{}
			opts := testOptions(disk, sched)
			if opts.SegmentBytes = 256 << 10; !c.direct {
				opts.SegmentBytes += record.Alignment
			}
			l, last, asked := mustOpen(t, opts), uint64(0), 0
			sched.step() // makes the next segment
			add := func() {
				last++
				mustAppend(t, l, Write{Group: 1, Entries: entries(last, last+1, 1, 2*vfs.BlockBytes)})
			}
			disk.SetHook(func(op crashfs.Op) error {
				if op.Kind != crashfs.OpSync || op.Name != l.table.segmentPath(2) || asked > 0 && c.reached || l.tail.seg.id >= 2 {
					return nil
				}
				for asked++; c.reached && l.tail.seg.id < 2; add() {
				}
				return syscall.ENOSPC
			})
			for l.failure() == nil && l.tail.seg.id < 4 {
				add()
				mustSync(t, l)
				sched.runIdle()
			}
			if stopped := l.failure() != nil; stopped != c.reached || asked == 0 {
				t.Errorf("the disk was asked %d times; the log says %v", asked, l.failure())
			}
			if !c.reached {
				mustClose(t, l)
			}
		})
	}
}

// Zeros that fail for another reason stop the log, as a failed append does.
func TestZerosThatFailStopTheLog(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 256 << 10
	l := mustOpen(t, opts)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && op.Direct && op.Off > 0 {
			return syscall.EIO
		}
		return nil
	})
	sched.runIdle()
	if err := l.Sync(); !errors.Is(err, ErrDiskFailed) {
		t.Errorf("sync: %v", err)
	}
}

// A log that gets no zeros, because the disk has no time for them, still gets its next segment from the
// helper when there is space again.
func TestSegmentsAreMadeAgainWithoutZeros(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 4 << 20
	l := mustOpen(t, opts)
	l.zeros.resume = 100
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	sched.runIdle()
	fs.SetHook(nil)
	for i := uint64(1); l.supply.segment(0) == nil && l.tail.seg.id == 1; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 100<<10)})
		mustSync(t, l)
		sched.runIdle()
	}
	if s := l.Stats(); s.SegmentsWaited != 0 || l.tail.seg.id != 1 || s.ZeroedBytes != 0 {
		t.Errorf("%+v", s)
	}
	mustClose(t, l)
}
