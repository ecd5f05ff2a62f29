package journal

import (
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/logtest"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a storage in memory: a list of writes as bytes, the first of which are durable. It outlives the
// logs that are opened on it.
type disk struct {
	writeSyncs bool
	files      *crashfs.FS
	maxBytes   int64
	log        *Log

	mu      sync.Mutex
	changed *sync.Cond
	writes  [][]byte
	durable int
	hangs   bool
	hung    func()
	fails   bool
}

func newDisk(writeSyncs bool) *disk {
	d := &disk{writeSyncs: writeSyncs, files: crashfs.New()}
	d.changed = sync.NewCond(&d.mu)
	return d
}

func (d *disk) open() (host.Log, error) {
	o := Options{LogConfig: host.LogConfig{FS: d.files.Mount(), Dir: "/log", Owner: 1}, WriteSyncs: d.writeSyncs, MaxBytes: d.maxBytes}
	o.Store = func(string) (Store, error) { return d, nil }
	l, err := Open(o)
	d.log = l
	return l, err
}

func (d *disk) Load(add func(wal.Write) error) error {
	for _, w := range d.writes {
		if err := ReadWrites(w, add); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) Write(changes []Change) (n int, err error) {
	d.mu.Lock()
	for i := range changes {
		d.writes = append(d.writes, AppendWrites(nil, changes[i:i+1]))
		n += len(d.writes[len(d.writes)-1])
	}
	d.mu.Unlock()
	if d.writeSyncs {
		err = d.Sync()
	}
	return n, err
}

var errSync = errors.New("input/output error")

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.writes)
	for d.hangs {
		d.hung()
		d.changed.Wait()
	}
	if d.fails {
		return errSync
	}
	d.durable = n
	return nil
}

func (d *disk) Close() error { return nil }

func (d *disk) crash() {
	d.writes = d.writes[:(d.durable+len(d.writes)+1)/2]
	d.durable = len(d.writes)
	d.files.Crash(crashfs.LoseAll, func() uint64 { return 1 })
}

func (d *disk) fill(full bool) {
	if d.maxBytes = 0; full {
		d.maxBytes = 1 << 20
	}
	d.log.o.MaxBytes = max(d.maxBytes, 1<<20)
	if !full {
		d.log.o.MaxBytes = DefaultMaxBytes
	}
}

func (d *disk) hang(_, syncs bool, hung func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs, d.hung = syncs, hung
	d.changed.Broadcast()
}

func (d *disk) failSyncs(fail bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fail
}

// The log keeps the contract of host.Log on storage that keeps that of Store, whether Write or Sync makes
// durable.
func TestContract(t *testing.T) {
	for name, writeSyncs := range map[string]bool{"Sync syncs": false, "Write syncs": true} {
		t.Run(name, func(t *testing.T) {
			logtest.Run(t, func(*testing.T) logtest.Store {
				d := newDisk(writeSyncs)
				s := logtest.Store{Open: d.open, Reopens: true, Crash: d.crash, Fill: d.fill, FailSyncs: d.failSyncs}
				if !writeSyncs { // else an append is a sync
					s.Hang = d.hang
				}
				return s
			})
		})
	}
}

// A log that is another host's, or whose bytes are cut, is refused with what is wrong.
func TestOpenRefuses(t *testing.T) {
	d := newDisk(false)
	l, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append([]wal.Write{{Group: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: []byte("data")}}}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{LogConfig: host.LogConfig{FS: d.files.Mount(), Dir: "/log", Owner: 2}, Store: func(string) (Store, error) { return d, nil }}
	if _, err := Open(o); !errors.Is(err, wal.ErrOwner) {
		t.Errorf("of another host: %v", err)
	}
	d.writes[0] = d.writes[0][:len(d.writes[0])-1]
	if _, err := d.open(); !errors.Is(err, errShort) {
		t.Errorf("cut: %v", err)
	}
	d.writes = [][]byte{AppendWrites(nil, []Change{{Write: wal.Write{Group: 1, Entries: []raftpb.Entry{{Index: 7, Term: 1}}}}})}
	if _, err := d.open(); err == nil {
		t.Error("a gap was taken")
	}
}

// The figures are those of what was appended, and a slow disk takes its time for just that.
func TestTotals(t *testing.T) {
	d := newDisk(false)
	wrote, synced := 0, 0
	o := Options{LogConfig: host.LogConfig{FS: d.files.Mount(), Dir: "/log", Owner: 1}, Store: func(string) (Store, error) { return d, nil }}
	o.Wrote, o.Synced = func(n int) { wrote += n }, func() { synced++ }
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if err := l.Append([]wal.Write{{Group: 1, Entries: []raftpb.Entry{{Index: 2*i + 1, Term: 1, Data: make([]byte, 100)}, {Index: 2*i + 2, Term: 1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Stats(); s.Syncs != 0 || s.PendingBytes != uint64(wrote) {
		t.Errorf("before the sync: %+v, %d bytes written", s, wrote)
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(); err != nil { // of nothing
		t.Fatal(err)
	}
	s := l.Stats()
	if s.Appends != 3 || s.AppendedEntries != 6 || s.Syncs != 1 || s.SyncedBytes != uint64(wrote) || s.PendingBytes != 0 || synced != 1 || wrote < 300 {
		t.Errorf("%+v, %d bytes written, %d syncs", s, wrote, synced)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
