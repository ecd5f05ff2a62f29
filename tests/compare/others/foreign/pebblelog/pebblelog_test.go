package pebblelog

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/logtest"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// disk is a disk in memory that loses power, and whose syncs of Pebble's log hang.
type disk struct {
	own   *crashfs.FS // of the file that names the log
	files *vfs.MemFS  // of the database
	rng   *rand.Rand

	mu      sync.Mutex
	changed *sync.Cond
	hangs   bool
	hung    func()
	syncs   atomic.Int64 // of Pebble's log
}

func newDisk(t *testing.T) *disk {
	d := &disk{own: crashfs.New(), files: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(1, 1))}
	d.changed = sync.NewCond(&d.mu)
	if err := errors.Join(d.files.MkdirAll("/log", 0o755), syncDir(d.files, "/")); err != nil { // as the host does
		t.Fatal(err)
	}
	return d
}

// watch counts syncs, and lets them wait.
func (d *disk) watch(op errorfs.Op) error {
	if (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) && strings.HasSuffix(op.Path, ".log") {
		d.syncs.Add(1)
		d.mu.Lock()
		defer d.mu.Unlock()
		for d.hangs {
			d.hung()
			d.changed.Wait()
		}
	}
	return nil
}

func (d *disk) open() (host.Log, error) {
	c := host.LogConfig{FS: d.own.Mount(), Dir: "/log", Owner: 1}
	return open(c, component.Disk{}, errorfs.Wrap(d.files, errorfs.InjectorFunc(d.watch)))
}

func (d *disk) crash() {
	d.own.Crash(crashfs.LoseAll, d.rng.Uint64)
	d.files = d.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: d.rng})
}

func (d *disk) hang(_, syncs bool, hung func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs, d.hung = syncs, hung
	d.changed.Broadcast()
}

// Of a full disk and of a failed sync Pebble makes the end of the process, so the kit's cases about them need
// not be.
func TestContract(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Store {
		d := newDisk(t)
		return logtest.Store{Open: d.open, Reopens: true, Crash: d.crash, Hang: d.hang}
	})
}

// What counts was synced, a hard state alone too, and one sync covers all appends that wait.
func TestFlushesSync(t *testing.T) {
	d := newDisk(t)
	l, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	index := uint64(0)
	appendOne := func() {
		index++
		w := wal.Write{Group: 1, HardState: raftpb.HardState{Term: index, Vote: 2}}
		if index%2 == 0 {
			w = wal.Write{Group: 2, Entries: []raftpb.Entry{{Index: index / 2, Term: 1, Data: make([]byte, 1000)}}}
		}
		if err := l.Append([]wal.Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() {
		f, _, err := l.TakeSync()
		if f == nil || err != nil {
			t.Fatalf("an append needs no flush (%v)", err)
		}
		if err := f.Wait(); err != nil {
			t.Fatal(err)
		}
		if more, err := f.Complete(); more || err != nil {
			t.Fatalf("%v, %v", more, err)
		}
	}
	const rounds = 10
	for _, perRound := range []int{1, 50} {
		before, counted := d.syncs.Load(), l.Stats().Syncs
		for range rounds {
			for range perRound {
				appendOne()
			}
			flush()
		}
		have := d.syncs.Load() - before
		if counted = l.Stats().Syncs - counted; have < rounds || counted != rounds || perRound > 1 && have >= rounds*int64(perRound) {
			t.Errorf("%d appends for a flush: %d syncs of Pebble's log, %d counted, want one for each of %d flushes", perRound, have, counted, rounds)
		}
	}
}
