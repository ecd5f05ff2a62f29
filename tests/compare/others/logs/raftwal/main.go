// Command raftwal measures hashicorp/raft-wal for `millrace bench wal`.
//
// It uses the log as hashicorp/raft does: StoreLogs with a batch, one fsync for it; DeleteRange behind a
// snapshot. Segments are 64 MiB, its default. With many groups each group has its own log, and smaller
// segments: 64 MiB divided by the groups.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/millrace/millrace/cmd/lab/peerlog"
)

func main() {
	library := peerlog.Library{Name: "raft-wal", Open: peerlog.LogForEach(open), Fsyncs: fsyncs.Load}
	if err := peerlog.Serve(os.Stdin, os.Stdout, library); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	term            = 1
	minSegmentBytes = 4 << 20
)

// fsyncs is counted under the library: by its file system, and by its store of metadata, a bbolt whose
// commits sync twice.
var fsyncs atomic.Uint64

type countingFS struct{ *fs.FS }

func (f countingFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	return counted(f.FS.Create(dir, name, size))
}

func (f countingFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	return counted(f.FS.OpenWriter(dir, name))
}

func (f countingFS) Delete(dir, name string) error {
	fsyncs.Add(1) // of the directory
	return f.FS.Delete(dir, name)
}

func counted(f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f}, nil
}

type countingFile struct{ types.WritableFile }

func (f countingFile) Sync() error {
	fsyncs.Add(1)
	return f.WritableFile.Sync()
}

type countingMeta struct{ *metadb.BoltMetaDB }

func (m countingMeta) CommitState(s types.PersistentState) error {
	fsyncs.Add(2)
	return m.BoltMetaDB.CommitState(s)
}

type log struct {
	wal  *wal.WAL
	meta countingMeta
	logs []*raft.Log
}

func open(s peerlog.Setup) (peerlog.GroupLog, error) {
	meta := countingMeta{&metadb.BoltMetaDB{}}
	w, err := wal.Open(s.Dir,
		wal.WithSegmentFiler(segment.NewFiler(s.Dir, countingFS{fs.New()})),
		wal.WithMetaStore(meta),
		wal.WithSegmentSize(max(wal.DefaultSegmentSize/s.Groups, minSegmentBytes)),
		wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	return &log{wal: w, meta: meta}, nil
}

func (l *log) Append(batch []peerlog.Entry) error {
	l.logs = l.logs[:0]
	for _, e := range batch {
		l.logs = append(l.logs, &raft.Log{Index: e.Index, Term: term, Type: raft.LogCommand, Data: e.Data})
	}
	return l.wal.StoreLogs(l.logs)
}

func (l *log) Compact(through uint64) error {
	first, err := l.wal.FirstIndex()
	if err != nil {
		return err
	}
	return l.wal.DeleteRange(first, through)
}

func (l *log) Read(visit func(index uint64, data []byte) error) error {
	first, err := l.wal.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.wal.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := l.wal.GetLog(i, &e); err != nil {
			return err
		}
		if e.Index != i {
			return errors.New("GetLog returned another entry than it was asked for")
		}
		if err := visit(i, e.Data); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the metadata too. The log leaves them open, and the next open would wait for their lock
// without end.
func (l *log) Close() error { return errors.Join(l.wal.Close(), l.meta.Close()) }
