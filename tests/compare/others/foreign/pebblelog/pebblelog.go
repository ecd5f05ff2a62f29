// Package pebblelog is a log in a Pebble database, as the log of a host.
//
// Each entry is a key of its group and its index, and each group has a key for its hard state and for where
// it begins. One append of the host is one batch, which Pebble's own write-ahead log holds whole or not at
// all. Batches are committed without a sync; a flush syncs that write-ahead log, so one fdatasync covers what
// has come meanwhile, for all groups, and appends go on beside it. The database's other files (tables, which
// a flush of its memory makes in the background) are synced by Pebble when it makes them.
//
// Entries that are replaced or compacted get a range deletion. Space comes back with Pebble's compactions.
package pebblelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/tests/compare/others/foreign/journal"
	"github.com/millrace/millrace/wal"
)

// Open opens the log of a host.
func Open(c host.LogConfig, d component.Disk) (host.Log, error) {
	return open(c, d, vfs.Default)
}

func open(c host.LogConfig, d component.Disk, files vfs.FS) (host.Log, error) {
	return journal.Open(journal.Options{
		LogConfig: c, Wrote: d.Wrote, Synced: d.Synced, Full: d.Full,
		Store: func(dir string) (journal.Store, error) { return openStore(files, filepath.Join(dir, "pebble")) },
	})
}

// memTableBytes is larger than Pebble's default, as CockroachDB's is, so that entries become tables less
// often.
const memTableBytes = 64 << 20

type store struct{ db *pebble.DB }

func openStore(files vfs.FS, dir string) (*store, error) {
	if err := makeDir(files, dir); err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, &pebble.Options{FS: files, MemTableSize: memTableBytes, Logger: silent{}})
	if err != nil {
		return nil, err
	}
	return &store{db}, nil
}

// makeDir makes the directory of the database, durably. Pebble syncs what is in it, and not its name.
func makeDir(files vfs.FS, dir string) error {
	if err := files.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(files, files.PathDir(dir))
}

func syncDir(files vfs.FS, dir string) error {
	d, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// The keys: the group, a kind, and of an entry its index. All integers are big-endian, so that the keys of a
// group are together and its entries in order.
const (
	kindHead  = 0 // hard state, start, whether the group was deleted
	kindEntry = 1
	keyBytes  = 17
)

func key(group uint64, kind byte, index uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, keyBytes), group)
	return binary.BigEndian.AppendUint64(append(b, kind), index)
}

const headBytes = 5*8 + 1

func appendHead(b []byte, h journal.Head) []byte {
	for _, v := range []uint64{h.HardState.Term, h.HardState.Vote, h.HardState.Commit, h.Start.Index, h.Start.Term} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if h.Deleted {
		return append(b, 1)
	}
	return append(b, 0)
}

func readHead(b []byte) (h journal.Head, err error) {
	if len(b) != headBytes {
		return h, fmt.Errorf("the head of a group has %d bytes, want %d", len(b), headBytes)
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	h.HardState = raftpb.HardState{Term: at(0), Vote: at(1), Commit: at(2)}
	h.Start, h.Deleted = wal.Snapshot{Index: at(3), Term: at(4)}, b[headBytes-1] == 1
	return h, nil
}

// Load implements journal.Store. It passes on one write for each group.
func (s *store) Load(add func(wal.Write) error) (err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var w *wal.Write
	flush := func() error {
		if w == nil {
			return nil
		}
		return add(*w)
	}
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if len(k) != keyBytes {
			return fmt.Errorf("a key of %d bytes, want %d", len(k), keyBytes)
		}
		group, kind := binary.BigEndian.Uint64(k), k[8]
		if kind == kindHead {
			if err := flush(); err != nil {
				return err
			}
			h, err := readHead(it.Value())
			if err != nil {
				return err
			}
			w = &wal.Write{Group: group, HardState: h.HardState, Snapshot: h.Start, Delete: h.Deleted}
			continue
		}
		if w == nil || group != w.Group {
			return fmt.Errorf("group %d has entries and no head", group)
		}
		var e raftpb.Entry
		if err := e.Unmarshal(it.Value()); err != nil {
			return fmt.Errorf("entry %d of group %d: %w", binary.BigEndian.Uint64(k[9:]), group, err)
		}
		w.Entries = append(w.Entries, e)
	}
	return errors.Join(it.Error(), flush())
}

// Write implements journal.Store. The whole append is one batch.
func (s *store) Write(changes []journal.Change) (bytes int, err error) {
	b := s.db.NewBatch()
	for i := range changes {
		if err := change(b, &changes[i]); err != nil {
			return 0, errors.Join(err, b.Close())
		}
	}
	bytes = b.Len()
	return bytes, errors.Join(b.Commit(pebble.NoSync), b.Close()) // Pebble takes its memory for the next one
}

// change adds what one write does to a batch.
func change(b *pebble.Batch, c *journal.Change) error {
	if err := b.Set(key(c.Group, kindHead, 0), appendHead(make([]byte, 0, headBytes), c.After), nil); err != nil {
		return err
	}
	for _, gone := range []journal.Extent{{Start: c.Before.Start, Last: min(c.Kept.Start, c.Before.Last)}, {Start: max(c.Kept.Last, c.Before.Start), Last: c.Before.Last}} {
		if gone.Start >= gone.Last {
			continue
		}
		if err := b.DeleteRange(key(c.Group, kindEntry, gone.Start+1), key(c.Group, kindEntry, gone.Last+1), nil); err != nil {
			return err
		}
	}
	for i := range c.Entries {
		e := &c.Entries[i]
		size := e.Size()
		set := b.SetDeferred(keyBytes, size)
		copy(set.Key, key(c.Group, kindEntry, e.Index))
		e.Append(set.Value[:0])
		if err := set.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// Sync implements journal.Store: it syncs Pebble's write-ahead log, with everything that is in it.
func (s *store) Sync() error { return s.db.LogData(nil, pebble.Sync) }

// Close implements journal.Store.
func (s *store) Close() error { return s.db.Close() }

// silent is Pebble's logger. Pebble calls Fatalf when a write or a sync of its log fails: it cannot go on.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf("pebble: "+format, args...)) }
