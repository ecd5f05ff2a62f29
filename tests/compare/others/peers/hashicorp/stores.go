package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// store is a log and the store of term and vote, with what closes them.
type store struct {
	raft.LogStore
	raft.StableStore
	close func() error
}

// storeFunc opens the store of one node in a new directory. It takes its segments from a stock, as long as
// that has some.
type storeFunc func(dir string, stock *peer.Stock) (store, error)

var stores = map[string]storeFunc{"wal": openWAL, "bolt": openBolt}

// fsyncs is counted under raft-wal, by its file system, and for each transaction of bbolt, which syncs its
// pages and then the page that makes them valid. (Growing its file is not counted.)
var fsyncs atomic.Uint64

const fsyncsOfTransaction = 2

// openWAL opens raft-wal with its defaults. Its metadata, and here also term and vote, are in a bbolt.
func openWAL(dir string, stock *peer.Stock) (store, error) {
	meta := countingMeta{&metadb.BoltMetaDB{}}
	w, err := wal.Open(dir,
		wal.WithSegmentFiler(segment.NewFiler(dir, countingFS{fs.New(), stock})),
		wal.WithMetaStore(meta),
		wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return store{}, err
	}
	// The log leaves its metadata open when it is closed.
	return store{w, w, func() error { return errors.Join(w.Close(), meta.Close()) }}, nil
}

// openBolt opens raft-boltdb with its defaults, which sync every transaction. It has no segments.
func openBolt(dir string, _ *peer.Stock) (store, error) {
	b, err := boltdb.New(boltdb.Options{Path: filepath.Join(dir, "raft.db"), MsgpackUseNewTimeFormat: true})
	if err != nil {
		return store{}, err
	}
	counted := countingBolt{b}
	return store{counted, counted, b.Close}, nil
}

type countingBolt struct{ *boltdb.BoltStore }

func (b countingBolt) StoreLog(l *raft.Log) error { return b.StoreLogs([]*raft.Log{l}) }

func (b countingBolt) StoreLogs(logs []*raft.Log) error {
	fsyncs.Add(fsyncsOfTransaction)
	return b.BoltStore.StoreLogs(logs)
}

func (b countingBolt) Set(k, v []byte) error {
	fsyncs.Add(fsyncsOfTransaction)
	return b.BoltStore.Set(k, v)
}

func (b countingBolt) SetUint64(k []byte, v uint64) error {
	fsyncs.Add(fsyncsOfTransaction)
	return b.BoltStore.SetUint64(k, v)
}

type countingFS struct {
	*fs.FS
	stock *peer.Stock
}

func (f countingFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if size == uint64(wal.DefaultSegmentSize) {
		if ok, err := f.stock.Take(filepath.Join(dir, name)); err != nil {
			return nil, err
		} else if ok {
			return counting(f.FS.OpenWriter(dir, name))
		}
	}
	return counting(f.FS.Create(dir, name, size))
}

func counting(f types.WritableFile, err error) (types.WritableFile, error) {
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
	fsyncs.Add(fsyncsOfTransaction)
	return m.BoltMetaDB.CommitState(s)
}

func (m countingMeta) SetStable(key, value []byte) error {
	fsyncs.Add(fsyncsOfTransaction)
	return m.BoltMetaDB.SetStable(key, value)
}

func makeDir(dir string) error { return os.Mkdir(dir, 0o700) }
