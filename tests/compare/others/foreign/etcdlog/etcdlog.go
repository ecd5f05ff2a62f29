// Package etcdlog is etcd's write-ahead log (go.etcd.io/etcd/server/v3/storage/wal) as the log of a host.
//
// What one append of the host wants, for all its groups, is one entry of etcd's log, with numbers of its own.
// So an append is one call of Save and one fdatasync, whatever it carries: that is more than etcd itself can
// do, whose log has one group. Term, vote and commit index are in that entry, and durable with it. Save syncs
// before it returns; the next append waits for it, and gathers what comes meanwhile.
//
// As in etcd, segments have 64 MB and are preallocated by the log's own helper, but not zeroed, and a segment
// is not used twice: each new one allocates blocks, which costs a journal commit of the filesystem. What is
// compacted stays in the files; clusters of the lab live for a run.
package etcdlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/tests/compare/others/foreign/journal"
	"github.com/millrace/millrace/wal"
)

// Open opens the log of a host.
func Open(c host.LogConfig, d component.Disk) (host.Log, error) { return OpenBounded(c, d, 0) }

// OpenBounded is Open for a log that keeps at most maxBytes of entries in memory; 0:
// journal.DefaultMaxBytes.
func OpenBounded(c host.LogConfig, d component.Disk, maxBytes int64) (host.Log, error) {
	return journal.Open(journal.Options{LogConfig: c, Store: openStore, WriteSyncs: true, Wrote: d.Wrote, Synced: d.Synced, Full: d.Full, MaxBytes: maxBytes})
}

// term of all entries, and of the state that etcd's log wants beside them.
const term = 1

type store struct {
	dir    string
	wal    *etcdwal.WAL
	index  uint64            // of the last entry
	loaded []*raftpb.Entry   // until Load
	state  *raftpb.HardState // the same in all calls: it is not what this package keeps
}

func openStore(dir string) (journal.Store, error) {
	s := &store{dir: filepath.Join(dir, "etcd")}
	t, vote, commit := uint64(term), uint64(1), uint64(0)
	s.state = &raftpb.HardState{Term: &t, Vote: &vote, Commit: &commit}
	if !etcdwal.Exist(s.dir) {
		var err error
		s.wal, err = etcdwal.Create(zap.NewNop(), s.dir, nil)
		return s, err
	}
	err := s.read()
	if errors.Is(err, io.ErrUnexpectedEOF) && etcdwal.Repair(zap.NewNop(), s.dir) { // as etcd does, once
		err = s.read()
	}
	return s, err
}

// read opens the files and reads them to the end. etcd's log takes entries only then.
func (s *store) read() (err error) {
	zero := uint64(0)
	if s.wal, err = etcdwal.Open(zap.NewNop(), s.dir, &walpb.Snapshot{Index: &zero, Term: &zero}); err != nil {
		return err
	}
	if _, _, s.loaded, err = s.wal.ReadAll(); err != nil {
		return errors.Join(err, s.wal.Close())
	}
	s.index = uint64(len(s.loaded))
	return nil
}

// Load implements journal.Store.
func (s *store) Load(add func(wal.Write) error) error {
	for i, e := range s.loaded {
		if have, want := e.GetIndex(), uint64(i+1); have != want {
			return fmt.Errorf("%s: entry %d where %d follows", s.dir, have, want)
		}
		if err := journal.ReadWrites(e.GetData(), add); err != nil {
			return fmt.Errorf("%s: entry %d: %w", s.dir, e.GetIndex(), err)
		}
	}
	s.loaded = nil
	return nil
}

// Write implements journal.Store. It syncs.
func (s *store) Write(changes []journal.Change) (bytes int, err error) {
	data := journal.AppendWrites(nil, changes)
	s.index++
	index, t, typ := s.index, uint64(term), raftpb.EntryNormal
	return len(data), s.wal.Save(s.state, []*raftpb.Entry{{Term: &t, Index: &index, Type: &typ, Data: data}})
}

// Sync implements journal.Store: Write has done it.
func (s *store) Sync() error { return nil }

// Close implements journal.Store.
func (s *store) Close() error { return s.wal.Close() }
