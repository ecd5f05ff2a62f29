// Package journal is a host.Log on storage that other people wrote, for comparison in the lab: etcd's
// write-ahead log, a Pebble database. What such storage lacks of the contract of host.Log is here, and is the
// same for all of it: the rules of a write, what readers see, flushes, deleted groups, the identity of the
// log. What makes bytes durable is theirs alone.
//
//	journal.go   the log: opened, closed, its totals
//	append.go    a write is checked, stored and shown
//	state.go     one group, and what one write does to it
//	flush.go     when something counts
//	reads.go     what readers see
//	identity.go  the file that names the log
//	bytes.go     writes as bytes, for storage that takes bytes
//
// All entries stay in memory until they are compacted, as in etcd's own storage (raft.MemoryStorage). So a
// read never waits for a disk, and Options.MaxBytes bounds the log: beyond it an append is refused as on a
// full disk. A log for production would read old entries from the storage.
package journal

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Store is the storage of a log. One goroutine at a time calls Write, and another one may be in Sync. After
// an error the log calls only Close.
type Store interface {
	// Load passes to add what the store holds, in the order in which it was written, or in any form that has
	// the same effect. It is called once, first.
	Load(add func(wal.Write) error) error
	// Write stores what one append wants. A crash leaves a prefix of the changes that are not durable, each of
	// them whole. bytes is what the log takes them for.
	Write(changes []Change) (bytes int, err error)
	// Sync makes durable everything that Write has stored before. A store whose Write does that returns nil.
	Sync() error
	Close() error
}

// Change is a write, and what it does to its group.
type Change struct {
	wal.Write
	Before Extent // the entries that the group holds before
	Kept   Extent // those of them that it holds afterwards; Entries come behind them
	After  Head
}

// Extent is the indexes (Start, Last].
type Extent struct{ Start, Last uint64 }

// Head is what a group has besides entries.
type Head struct {
	HardState raftpb.HardState
	Start     wal.Snapshot // the log begins after it
	Deleted   bool
}

// Options configure Open.
type Options struct {
	host.LogConfig // FS, Dir, Owner, Secrets
	// Store opens the storage in a directory that exists.
	Store func(dir string) (Store, error)
	// WriteSyncs says that Write makes durable what it stores.
	WriteSyncs bool
	// Wrote and Synced are called after each write with its bytes, and after each sync, to stand for a slow
	// disk: they take the time that it takes. nil: nothing.
	Wrote  func(bytes int)
	Synced func()
	// MaxBytes bounds the entries in memory, with overhead. 0: DefaultMaxBytes. Full is called with the error of
	// each append that it refuses; nil: nothing.
	MaxBytes int64
	Full     func(error)
}

// DefaultMaxBytes lets three hosts write a gibibyte each.
const DefaultMaxBytes = 1 << 30

// entryOverhead is what an entry takes besides its data.
const entryOverhead = 96

// Log is such a log. It implements host.Log.
type Log struct {
	o     Options
	store Store
	is    identity

	mu     sync.Mutex // of the appender, and of what it shares with Close
	closed bool
	bytes  int64 // of the entries of all groups

	groupsMu sync.Mutex
	groups   map[uint64]*Group

	syncing sync.Mutex    // held during a sync
	written atomic.Uint64 // appends that are stored
	durable atomic.Uint64 // of these, those that count
	pending atomic.Int64  // bytes of those that do not count
	failed  atomic.Pointer[error]

	stats struct{ appends, entries, bytes, syncs, syncedBytes, syncNanos atomic.Uint64 }
}

// Open opens the log in Dir, which it makes if there is none.
func Open(o Options) (_ *Log, err error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	l := &Log{o: o, groups: map[uint64]*Group{}}
	if err := l.identify(); err != nil {
		return nil, err
	}
	if l.store, err = o.Store(o.Dir); err != nil {
		return nil, fmt.Errorf("open the storage of the log in %s: %w", o.Dir, err)
	}
	err = l.store.Load(func(w wal.Write) error {
		g := l.group(w.Group)
		next, reason := g.state.Load().after(w)
		if reason != "" {
			return fmt.Errorf("group %d: %s", w.Group, reason)
		}
		l.bytes += next.bytes - g.state.Load().bytes
		g.state.Store(&next)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log in %s: %w", o.Dir, join(err, l.store.Close()))
	}
	return l, nil
}

func join(err, closed error) error {
	if closed != nil {
		return fmt.Errorf("%w (and its close: %w)", err, closed)
	}
	return err
}

// group returns one group, and makes it if it was never asked for.
func (l *Log) group(id uint64) *Group {
	l.groupsMu.Lock()
	defer l.groupsMu.Unlock()
	g := l.groups[id]
	if g == nil {
		g = &Group{}
		g.state.Store(&state{})
		l.groups[id] = g
	}
	return g
}

// Group implements host.Log.
func (l *Log) Group(id uint64) host.GroupLog { return l.group(id) }

// Groups implements host.Log.
func (l *Log) Groups() (ids []uint64) {
	return l.which(func(s *state) bool { return !s.deleted })
}

// Deleted implements host.Log.
func (l *Log) Deleted() []uint64 {
	ids := l.which(func(s *state) bool { return s.deleted })
	slices.Sort(ids)
	return ids
}

func (l *Log) which(has func(*state) bool) (ids []uint64) {
	l.groupsMu.Lock()
	defer l.groupsMu.Unlock()
	for id, g := range l.groups {
		if has(g.state.Load()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// DeleteGroup implements host.Log.
func (l *Log) DeleteGroup(id uint64) error {
	if err := l.Append([]wal.Write{{Group: id, Delete: true}}); err != nil {
		return err
	}
	return l.Sync()
}

// ID implements host.Log.
func (l *Log) ID() [16]byte { return l.is.ID }

// Fence implements host.Log. Such a log has no amnesia: what counts is durable.
func (l *Log) Fence() wal.Fence { return wal.Fence{Generation: l.is.Generation} }

// CaughtUp implements host.Log.
func (l *Log) CaughtUp() error { return l.Sync() }

// Stats implements host.Log. A sync is one that the log has asked its storage for; what a storage syncs
// besides (a new file, a table of Pebble) is not counted.
func (l *Log) Stats() wal.Stats {
	return wal.Stats{
		Appends: l.stats.appends.Load(), AppendedEntries: l.stats.entries.Load(), AppendedBytes: l.stats.bytes.Load(),
		Syncs: l.stats.syncs.Load(), SyncedBytes: l.stats.syncedBytes.Load(), SyncNanos: l.stats.syncNanos.Load(),
		PendingBytes: uint64(max(l.pending.Load(), 0)),
	}
}

// Close implements host.Log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := l.failure()
	if err == nil {
		err = l.syncThrough(l.written.Load())
	}
	l.closed = true
	l.syncing.Lock() // for flushes under way
	defer l.syncing.Unlock()
	if closed := l.store.Close(); err == nil {
		err = closed
	}
	return err
}

// usable returns why nothing may be appended any more, or nil. mu is held.
func (l *Log) usable() error {
	if l.closed {
		return wal.ErrClosed
	}
	return l.failure()
}

func (l *Log) failure() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail makes an error final. The first one stays.
func (l *Log) fail(op string, err error) error {
	err = &wal.FailedError{Op: op, File: l.o.Dir, Err: err}
	l.failed.CompareAndSwap(nil, &err)
	return l.failure()
}

// tooMuch is the error of an append for which there is no memory.
func (l *Log) tooMuch(bytes int64) error {
	err := &wal.DiskFullError{Op: fmt.Sprintf("append beyond %d bytes of entries in memory, which is the bound of such a log", l.o.MaxBytes), Dir: l.o.Dir, Bytes: bytes, Err: syscall.ENOSPC}
	if l.o.Full != nil {
		l.o.Full(err)
	}
	return err
}

var _ host.Log = (*Log)(nil)
