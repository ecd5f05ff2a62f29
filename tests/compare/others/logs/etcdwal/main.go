// Command etcdwal measures etcd's write-ahead log (go.etcd.io/etcd/server/v3/storage/wal) for `millrace bench
// wal`.
//
// It uses the log as etcd's server does: one Save for all entries that are ready, with one fdatasync;
// segments of 64 MB, preallocated by the log's own pipeline; at a snapshot a snapshot record, then the locks
// on older segments are released and those files are removed. With many groups each group has its own log,
// because etcd has one raft loop for each group, and smaller segments: 64 MB divided by the groups.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/millrace/millrace/cmd/lab/peerlog"
)

func main() {
	library := peerlog.Library{Name: "etcd-wal", Open: peerlog.LogForEach(open), Fsyncs: fsyncs}
	if err := peerlog.Serve(os.Stdin, os.Stdout, library); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	term            = 1
	minSegmentBytes = 4 << 20
)

type log struct {
	dir     string
	wal     *wal.WAL
	entries []*raftpb.Entry
}

// open makes a log or recovers one. etcd's log accepts writes only after it was read to its end.
func open(s peerlog.Setup) (peerlog.GroupLog, error) {
	wal.SegmentSizeBytes = max(64*1000*1000/int64(s.Groups), minSegmentBytes)
	l := &log{dir: filepath.Join(s.Dir, "wal")}
	if !wal.Exist(l.dir) {
		var err error
		l.wal, err = wal.Create(zap.NewNop(), l.dir, nil)
		return l, err
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), l.dir)
	if err != nil {
		return nil, err
	}
	from := snapshots[len(snapshots)-1]
	if l.wal, err = wal.Open(zap.NewNop(), l.dir, from); err != nil {
		return nil, err
	}
	_, _, l.entries, err = l.wal.ReadAll()
	return l, err
}

func (l *log) Append(batch []peerlog.Entry) error {
	entries := make([]*raftpb.Entry, len(batch))
	for i, e := range batch {
		t, typ := uint64(term), raftpb.EntryNormal
		entries[i] = &raftpb.Entry{Term: &t, Index: &batch[i].Index, Type: &typ, Data: e.Data}
	}
	last := batch[len(batch)-1].Index
	t, vote := uint64(term), uint64(1)
	return l.wal.Save(&raftpb.HardState{Term: &t, Vote: &vote, Commit: &last}, entries)
}

func (l *log) Compact(through uint64) error {
	t := uint64(term)
	voters := &raftpb.ConfState{Voters: []uint64{1}}
	if err := l.wal.SaveSnapshot(&walpb.Snapshot{Index: &through, Term: &t, ConfState: voters}); err != nil {
		return err
	}
	if err := l.wal.ReleaseLockTo(through); err != nil {
		return err
	}
	return l.purge()
}

// purge removes the segments that are not locked any more, oldest first, as etcd does in the background.
func (l *log) purge() error {
	names, err := fileutil.ReadDir(l.dir, fileutil.WithExt(".wal"))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(l.dir, name)
		lock, err := fileutil.TryLockFile(path, os.O_WRONLY, fileutil.PrivateFileMode)
		if err != nil {
			return nil // in use, and so are all segments after it
		}
		if err := errors.Join(os.Remove(path), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Read visits the entries that the log had when it was opened. A new log had none, so Read reads its files.
func (l *log) Read(visit func(index uint64, data []byte) error) error {
	entries := l.entries
	if entries == nil {
		zero := uint64(0)
		w, err := wal.OpenForRead(zap.NewNop(), l.dir, &walpb.Snapshot{Index: &zero, Term: &zero})
		if err != nil {
			return err
		}
		defer w.Close()
		if _, _, entries, err = w.ReadAll(); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := visit(e.GetIndex(), e.GetData()); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) Close() error { return l.wal.Close() }

// fsyncs reads etcd's metric, which counts each fsync of a segment and of the directory.
func fsyncs() uint64 {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return 0
	}
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "etcd_disk_wal_fsync_duration_seconds" })
	if at < 0 {
		return 0
	}
	return families[at].GetMetric()[0].GetHistogram().GetSampleCount()
}
