package wal

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// position is a place in the log.
type position struct {
	segment uint64
	off     int64
}

func (p position) before(q position) bool {
	return p.segment < q.segment || p.segment == q.segment && p.off < q.off
}

// Log is the log of one host. One goroutine, the appender, calls Append and Sync. Log.mu keeps the log
// correct if another goroutine calls them too. Any goroutine may call Group and its methods at any time.
//
// The state of a log is divided among owners. Each owner is a struct in its own file, with its own lock if it
// needs one:
//
//	tail     the last segment, and the buffer of its records  tail.go    Log.mu
//	flusher  what is durable, and what waits for it           sync.go    Log.mu; flusher.mu during an fdatasync
//	supply   the segments after the tail, and the spares      supply.go  supply.mu; its claim to make one
//	table    groups and segments; index and cache             table.go   table.mu; Log.mu for index and cache
//	cleaner  which segments are not needed                    clean.go   Log.mu
//	fence    the file FENCE                                   fence.go   fence.mu
//
// Locks are taken in this order: the claim of supply, flusher.mu, Log.mu, Group.mu, supply.mu, table.mu,
// dirMu. Then come the locks of a segment (syncMu, zeroMu or closeMu), then coldFiles.mu, then fence.mu.
// fence.mu is last because an error that stops the log is noted in FENCE at the place that finds it,
// whatever locks are held there. Readers take only Group.mu, table.mu, closeMu and coldFiles.mu.
type Log struct {
	opts   Options
	dir    directory
	lock   io.Closer
	names  vfs.Dir // Dir, held from Open to Close: syncDir
	helper env.Task
	stats  *counters // of the table

	// Set by Open, before any other goroutine has the log.
	logID      record.LogID
	cuts       bool // a kill may cut a direct write: vfs.Placement
	generation uint64
	doubts     map[uint64]Doubt

	failed atomic.Pointer[FailedError] // set once, by fail

	// mu guards the writing end. Readers never take it.
	mu      lock.Mutex
	batch   batch
	tail    tail
	flusher flusher
	cleaner cleaner
	holes   []Hole // what the log lacked when it was opened, until CaughtUp

	supply supply
	table  *table
	fence  fenceState
	idle   idleTimer
	zeros  zeroFiller

	// dirMu makes syncs of the directory follow one another: syncDir.
	dirMu lock.Mutex
}

// newLog returns a log over a table, which was not opened yet. Options have their defaults.
func newLog(opts Options, t *table) *Log {
	l := &Log{opts: opts, dir: t.dir, table: t}
	l.stats, l.supply.released.L = t.stats, &l.supply.mu
	return l
}

// fail stops the log for good. The first error wins and is returned, whichever call reports it.
func (l *Log) fail(op string, s *segment, off int64, err error) error {
	return l.failAt(op, s.path, off, err)
}

// failAt is fail for a file that is not a segment.
func (l *Log) failAt(op, path string, off int64, err error) error {
	f := &FailedError{Op: op, File: path, Offset: off, Err: err}
	if l.failed.CompareAndSwap(nil, f) {
		l.opts.Logger.Error("wal: stopped for good", "op", op, "file", path, "offset", off, "err", err)
		_ = l.distrustBoot() // the disk may refuse that, too; then the next Open may take a half of the write for damage
	}
	return l.failed.Load()
}

// failure returns the error that stopped the log, if any.
func (l *Log) failure() error {
	if f := l.failed.Load(); f != nil {
		return f
	}
	return nil
}

// Group returns the reading end of a group's log, which is empty if the group was never written to, or was
// deleted.
func (l *Log) Group(id uint64) *Group { return l.table.group(id) }

// Groups returns the ids of all groups that the log knows and that were not deleted, in no particular order.
func (l *Log) Groups() []uint64 { return l.table.ids() }

// Close stops the helper, makes everything durable, notes in the log and in FENCE where the log ends, and
// releases the directory. It waits for reads under way. Further calls return nil.
func (l *Log) Close() error {
	if l.table.closed.Swap(true) {
		return nil
	}
	if l.flusher.interval != nil {
		l.flusher.interval.Stop()
	}
	if l.idle.timer != nil {
		l.idle.timer.Stop()
	}
	if l.zeros.timer != nil {
		l.zeros.timer.Stop()
	}
	// Seen in TestInspectionOfALogInUse: the helper may be waiting for any lock, flusher.mu too.
	l.helper.Stop()
	l.supply.claim() // after an append that makes a segment; the next one finds the log closed
	defer l.supply.release()
	l.flusher.mu.Lock() // after a flush that is under way
	defer l.flusher.mu.Unlock()
	l.mu.Lock()
	err := l.seal()
	end := record.End{Segment: l.tail.seg.id, Offset: l.tail.seg.end, Chain: l.tail.seg.chain}
	l.mu.Unlock()
	switch {
	case err == nil:
		err = l.changeFence(func(f *fence) { f.flags, f.end = f.flags&^flagDirty|flagClosed|flagMade, end })
	case l.opts.Mode.Unsafe():
		err = errors.Join(err, l.noteAmnesia())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(err, l.closeFiles())
}

// closeFiles closes everything that is open. mu is held, or no other goroutine has the log yet.
func (l *Log) closeFiles() error {
	l.supply.mu.Lock()
	defer l.supply.mu.Unlock()
	l.fence.mu.Lock()
	defer l.fence.mu.Unlock()
	l.fence.now.version = 0 // another life may begin: FENCE is not this one's any more (editFence)
	errs := l.table.closeSegments()
	for _, s := range l.supply.ready {
		errs = append(errs, s.close())
	}
	if l.fence.file != nil {
		errs = append(errs, l.fence.file.Close())
	}
	if l.names != nil {
		errs = append(errs, l.names.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
