package etcdlog

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/logtest"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/tests/compare/others/foreign/journal"
	"github.com/millrace/millrace/wal"
)

// tearing is a log whose last append a crash may tear, until the test was told that it counts.
type tearing struct {
	host.Log
	dir   string
	tail  string // before the last append
	end   int    // of what was in it
	tears bool
}

// opened is where a log is kept, and what is open in it.
type opened struct {
	t     *testing.T
	dir   string
	store *store
	log   *tearing
}

func (o *opened) open() (host.Log, error) {
	l, err := journal.Open(journal.Options{
		LogConfig: host.LogConfig{Dir: o.dir, Owner: 1}, WriteSyncs: true,
		Store: func(dir string) (journal.Store, error) {
			s, err := openStore(dir)
			if err == nil {
				o.store = s.(*store)
			}
			return s, err
		},
	})
	if err != nil {
		return nil, err
	}
	o.log = &tearing{Log: l, dir: filepath.Join(o.dir, "etcd")}
	return o.log, nil
}

// last returns the last segment, what it holds, and where that ends.
func (l *tearing) last() (path string, content []byte, end int) {
	names, err := filepath.Glob(filepath.Join(l.dir, "*.wal"))
	if err != nil || len(names) == 0 {
		return "", nil, 0
	}
	slices.Sort(names)
	path = names[len(names)-1]
	content, err = os.ReadFile(path)
	if err != nil {
		return "", nil, 0
	}
	return path, content, len(bytes.TrimRight(content, "\x00"))
}

func (l *tearing) Append(writes []wal.Write) error {
	l.tail, _, l.end = l.last()
	l.tears = true
	return l.Log.Append(writes)
}

func (l *tearing) TakeSync() (host.Flush, time.Duration, error) {
	l.tears = false
	return l.Log.TakeSync()
}

func (l *tearing) Sync() error {
	l.tears = false
	return l.Log.Sync()
}

func (l *tearing) DeleteGroup(id uint64) error {
	err := l.Log.DeleteGroup(id)
	l.tears = false
	return err
}

// crash takes the last sector of the last append, if the test was not told yet that it counts: the power went
// while it was written.
func (o *opened) crash() {
	if err := o.store.Close(); err != nil {
		o.t.Fatal(err)
	}
	path, content, end := o.log.last()
	if !o.log.tears || path != o.log.tail || end <= o.log.end {
		return
	}
	clear(content[max((end-1)&^511, o.log.end):])
	if err := os.WriteFile(path, content, 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// smallSegments makes the histories need many segments.
func smallSegments(t *testing.T) {
	was := etcdwal.SegmentSizeBytes
	etcdwal.SegmentSizeBytes = 256 << 10
	t.Cleanup(func() { etcdwal.SegmentSizeBytes = was })
}

func TestContract(t *testing.T) {
	smallSegments(t)
	logtest.Run(t, func(t *testing.T) logtest.Store {
		o := &opened{t: t, dir: t.TempDir()}
		return logtest.Store{Open: o.open, Reopens: true, Crash: o.crash}
	})
}

// Every append that counts has an fdatasync of its own, a hard state alone too: etcd's own metric says so. A
// slow disk takes its time for each.
func TestEachAppendIsSynced(t *testing.T) {
	wrote, synced := 0, uint64(0)
	l, err := Open(host.LogConfig{Dir: t.TempDir(), Owner: 1}, component.Disk{Wrote: func(n int) { wrote += n }, Synced: func() { synced++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := fsyncs(t)
	const appends = 20
	for i := range uint64(appends) {
		w := wal.Write{Group: 1, HardState: raftpb.HardState{Term: i + 1, Vote: 2}}
		if i%2 == 0 {
			w.Entries = []raftpb.Entry{{Index: i/2 + 1, Term: i + 1, Data: make([]byte, 1000)}}
		}
		if err := l.Append([]wal.Write{w, {Group: 2, HardState: raftpb.HardState{Term: i + 1}}}); err != nil {
			t.Fatal(err)
		}
		if f, _, err := l.TakeSync(); f != nil || err != nil {
			t.Fatalf("an append needs a flush: %v", err)
		}
	}
	if have := fsyncs(t) - before; have < appends || l.Stats().Syncs != appends || synced != appends || wrote < 1000*appends/2 {
		t.Errorf("%d fsyncs, %d counted, %d on the slow disk with %d bytes, for %d appends", have, l.Stats().Syncs, synced, wrote, appends)
	}
}

// fsyncs reads etcd's metric.
func fsyncs(t *testing.T) uint64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_disk_wal_fsync_duration_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("etcd has another metric")
	return 0
}
