package wal

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// heldDisk is a disk that holds one operation of a kind, the first one after armed is set, until release.
type heldDisk struct {
	*crashfs.FS
	armed   atomic.Bool
	reached chan crashfs.Op
	release chan struct{}
}

func holdOne(kind crashfs.OpKind) *heldDisk {
	d := &heldDisk{FS: crashfs.New(), reached: make(chan crashfs.Op), release: make(chan struct{})}
	d.SetHook(func(op crashfs.Op) error {
		if op.Kind == kind && d.armed.CompareAndSwap(true, false) {
			d.reached <- op
			<-d.release
		}
		return nil
	})
	return d
}

// holdHelper calls work and runs the helper, again and again, until the disk holds an operation of the
// helper. The channel gets a value when the helper is idle again.
func (d *heldDisk) holdHelper(t *testing.T, sched *manual, work func(i int)) (held crashfs.Op, rested <-chan struct{}) {
	for i := range 1000 {
		work(i)
		d.armed.Store(true)
		done := make(chan struct{}, 1)
		go func() {
			sched.runIdle()
			done <- struct{}{}
		}()
		select {
		case op := <-d.reached:
			return op, done
		case <-done:
		}
		d.armed.Store(false)
	}
	t.Fatal("the helper never does such an operation")
	return crashfs.Op{}, nil
}

var helperOperations = []crashfs.OpKind{crashfs.OpCreate, crashfs.OpPreallocate, crashfs.OpSync, crashfs.OpOpen, crashfs.OpRename, crashfs.OpSyncDir}

// While the tail has space, no append and no flush waits for the helper, whatever disk operation the helper
// hangs in.
func TestNobodyWaitsForTheHelper(t *testing.T) {
	for _, kind := range helperOperations {
		t.Run(kind.String(), func(t *testing.T) {
			disk, sched := holdOne(kind), &manual{}
			opts := testOptions(disk.FS, sched)
			opts.SegmentBytes = 8 * vfs.BlockBytes
			l, want := mustOpen(t, opts), twin{}
			do := func(w ...Write) {
				mustAppend(t, l, w...)
				want.apply(w)
			}
			op, rested := disk.holdHelper(t, sched, func(int) {
				last := want[1].last()
				do(add(last+1, last+30, 1), Write{Group: 1, CompactThrough: last + 20})
				mustSync(t, l)
			})
			t.Logf("the helper is in %v", op)
			waited := l.Stats().SegmentsWaited
			for range 8 {
				if !l.fits(2 * record.Bytes(30)) {
					break
				}
				do(add(want[1].last()+1, want[1].last()+2, 1))
				mustComplete(t, mustTake(t, l))
				mustSync(t, l)
				l.Fence()
			}
			if s := l.Stats(); s.SegmentsWaited != waited {
				t.Errorf("%d appends waited for a segment", s.SegmentsWaited-waited)
			}
			close(disk.release)
			<-rested
			want.check(t, l)
			mustClose(t, l)
			want.check(t, mustOpen(t, opts))
		})
	}
}

// An append that needs the segment that the helper is making waits for the helper. No other append waits for
// that append.
func TestAppendWaitsForASegmentAlone(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpPreallocate, crashfs.OpSync, crashfs.OpSyncDir} {
		t.Run(kind.String(), func(t *testing.T) {
			disk, sched := holdOne(kind), &manual{}
			l := mustOpen(t, testOptions(disk.FS, sched))
			mustAppend(t, l, add(1, 3, 1))
			_, rested := disk.holdHelper(t, sched, func(int) {})
			appended := make(chan error)
			go func() { appended <- l.Append([]Write{{Group: 2, Entries: entries(1, 40, 1, 500)}}) }()
			for l.Stats().SegmentsWaited == 0 {
				runtime.Gosched()
			}
			mustAppend(t, l, add(3, 4, 1))
			mustComplete(t, mustTake(t, l))
			wantDurable(t, l, 1, 3)
			l.Fence()
			close(disk.release)
			if err := <-appended; err != nil {
				t.Fatal(err)
			}
			<-rested
			mustComplete(t, mustTake(t, l))
			wantDurable(t, l, 2, 39)
			mustClose(t, l)
		})
	}
}

// Close waits for an append that is making a segment, and closes that segment too.
func TestCloseWaitsForTheMakerOfASegment(t *testing.T) {
	disk := holdOne(crashfs.OpPreallocate)
	opts := testOptions(disk.FS, &manual{})
	l := mustOpen(t, opts)
	disk.armed.Store(true)
	appended, closed := make(chan error), make(chan error)
	go func() { appended <- l.Append([]Write{{Group: 2, Entries: entries(1, 40, 1, 500)}}) }()
	<-disk.reached
	go func() { closed <- l.Close() }()
	for !l.table.closed.Load() {
		runtime.Gosched()
	}
	close(disk.release)
	appendErr, closeErr := <-appended, <-closed
	if fmt.Sprint(appendErr) != fmt.Sprint(ErrClosed) || closeErr != nil {
		t.Errorf("append: %v; close: %v", appendErr, closeErr)
	}
	mustOpen(t, opts)
}
