package host

import (
	"io"
	"log/slog"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// This file is the log as the host sees it: an interface, so that a program can bring its own log, and its
// adapter to package wal. The words of the interface (Write, Snapshot, Fence, Stats, the errors) are those of
// package wal, since a log of one's own has to say the same things. Package host/logtest checks a log
// against this contract.
//
// Rejected: an interface with raft's Storage in it. A log knows groups and indexes, and none of Raft's rules.

// Log is the log of a host, shared by all its groups.
//
// One goroutine at a time, the appender, calls Append, TakeSync and DeleteGroup. All other methods, also
// those of a Flush and of a GroupLog, may be called by any goroutine at any time.
//
// Three errors refuse an Append and change nothing: ErrInvalidWrite, ErrDiskFull and ErrBacklog of package
// wal. Any other error of Append, TakeSync, Sync, DeleteGroup or a Flush is final. Every later call of
// these returns an error, nothing more becomes durable, and the host has to open the log again. A log never
// tries a failed write or sync a second time.
type Log interface {
	// Append writes what several groups want, in order. A group may have several writes. When Append returns
	// nil, readers see all of them, and they count after the next Sync or Flush.
	//
	// Each wal.Write is atomic. A reader sees none of it, or all of it; a crash leaves none of it, or all of
	// it. What a crash leaves of the writes that do not count yet is a prefix of them, in the order of
	// appending, over all groups.
	//
	// Append does not keep the slices of writes and entries. It may keep the Data of an entry, which
	// therefore never changes.
	//
	// wal.ErrInvalidWrite, in a *wal.InvalidWriteError that names the group, means that a write breaks the
	// rules of wal.Write; wal.ErrDeleted is in it too if the group was deleted. wal.ErrDiskFull means that
	// there is no space. The same append may be tried again. A write without entries should succeed even
	// then, so that a member can vote. wal.ErrBacklog means that too many bytes wait for a flush: complete
	// one first. In all three cases nothing of the append was written, for any group.
	Append(writes []wal.Write) error

	// TakeSync begins to make durable what was appended. It does not block. If f is nil and wait is 0,
	// everything appended counts already. If f is nil and wait is above 0, the log lets the flush wait for
	// more appends, at most for that long. Call TakeSync again after that time, or after another Append.
	TakeSync() (f Flush, wait time.Duration, err error)

	// Sync returns when everything that was appended before the call counts.
	Sync() error

	// Group returns the log of one group. It is empty if the group was never written to, or was deleted.
	// After a deletion it stays empty for good.
	Group(id uint64) GroupLog

	// Groups returns the groups that have anything in the log and were not deleted, in no particular order,
	// without repetitions. It may also name groups that were only asked for.
	Groups() []uint64

	// DeleteGroup deletes a group for good and returns when that is durable. The group then has no entries,
	// no hard state and no snapshot, also after a crash. Its space is freed some time later. Append refuses
	// it with wal.ErrDeleted from then on, also after a restart. The group need not have been written to.
	// Deleting a deleted group does nothing. A wal.Write with Delete does the same without waiting for the
	// disk.
	//
	// wal.ErrDiskFull and wal.ErrInvalidWrite (the log cannot remember more deleted groups) change nothing.
	DeleteGroup(id uint64) error

	// Deleted returns the deleted groups, in order. A log remembers them for as long as it exists.
	Deleted() []uint64

	// ID returns 128 random bits, drawn when the log was made and never changed. It is the incarnation of
	// the host's directory. So a log that was made again must have another ID. A log must not take the ID
	// of a copy or of a backup as its own under a new directory.
	ID() [16]byte

	// Fence returns what the log knows of its own past. Its generation is higher each time that the log is
	// opened. It reports amnesia if something that counted may be lost; the groups of the host are then
	// without authority until they have caught up.
	Fence() wal.Fence

	// CaughtUp ends the log's amnesia, durably: everything that its groups may have lost is there again. It
	// first makes durable what was appended. An error is final. A log that never reports amnesia is never
	// asked.
	CaughtUp() error

	// Stats returns totals since the log was opened. What a log does not count is 0. It never blocks.
	Stats() wal.Stats

	// Close makes durable what was appended, and releases the log's resources. It waits for reads and flushes
	// under way. Later appends and flushes return wal.ErrClosed.
	Close() error
}

// GroupLog is the log of one group, as readers see it. It shows what was appended, durable or not.
//
// HardState, Snapshot, FirstIndex, LastIndex, Term, Typed and Recent answer from memory. They never wait for
// a disk, nor for a call that does; a group's turn depends on that. Entries may read from disk and take any
// time.
type GroupLog interface {
	// HardState returns the term, vote and commit index last appended; zero if there are none.
	HardState() raftpb.HardState

	// Snapshot returns the entry after which the log begins: the last entry that was compacted, or is
	// covered by an appended snapshot. It is zero if the log begins at index 1.
	Snapshot() wal.Snapshot

	// FirstIndex returns the index of the first entry that can be read, Snapshot().Index+1.
	FirstIndex() uint64

	// LastIndex returns the index of the last entry; FirstIndex()-1 if there is none.
	LastIndex() uint64

	// Term returns the term of entry i, or of the entry that Snapshot names. Index 0 has term 0 in a log that
	// begins at index 1. The error is wal.ErrCompacted below that, and wal.ErrUnavailable above the last
	// entry.
	Term(i uint64) (uint64, error)

	// Entries returns the entries [lo, hi), or as many of them from lo on as maxBytes allows, but at least
	// one. An entry counts with its Data and at least what raftpb's encoding adds. All returned entries were
	// in the log at one moment. The error is wal.ErrCompacted if lo was compacted and wal.ErrUnavailable if
	// hi-1 is above the last entry. Data must not be changed; the slice belongs to the caller.
	Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error)

	// Typed returns the indexes of the entries in [lo, hi) that hold no commands, by their type
	// (raftpb.EntryType.HoldsCommands), in ascending order. With them a group that is opened finds its
	// membership changes without reading its log.
	Typed(lo, hi uint64) []uint64

	// Recent is Entries from memory. It may return fewer entries than maxBytes allows. ok is false, and
	// entries is empty, if the first is not in memory, or if Entries would return an error. An empty range is
	// always there.
	Recent(lo, hi, maxBytes uint64) (entries []raftpb.Entry, ok bool)
}

// Flush is what TakeSync captured: everything that was appended before. The host calls Wait and then
// Complete, once each. Several flushes may be under way, and may be completed in any order.
//
// A flush that is not waited for makes nothing durable and takes nothing away: the next one covers what it
// had captured.
type Flush interface {
	// Wait makes durable what was captured, and blocks until it is. Appends and reads continue meanwhile.
	Wait() error

	// Complete reports, when Wait has returned nil, whether more was appended since TakeSync, so that another
	// flush is needed. What was captured counts then. It does not block.
	Complete() (more bool, err error)
}

// LogConfig is what a host tells the function that opens its log.
type LogConfig struct {
	FS        vfs.FS
	Dir       string // of the log, within the host's directory; it may not exist yet
	Owner     uint64 // the host's id; the log of another host must be refused
	Scheduler env.Scheduler
	Clock     env.Clock
	Secrets   io.Reader // unpredictable bytes, for Log.ID; nil means crypto/rand.Reader
	Mode      wal.Mode  // when an append counts
	// SegmentBytes and CacheBytes size the log's files and its memory; 0 means the log's defaults.
	SegmentBytes int64
	CacheBytes   int64
	Logger       *slog.Logger
	Events       func(wal.Event) // returns at once
}

// options returns the options of package wal.
func (c LogConfig) options() wal.Options {
	return wal.Options{
		FS: c.FS, Dir: c.Dir, Owner: c.Owner, Scheduler: c.Scheduler, Clock: c.Clock, Rand: c.Secrets, Mode: c.Mode,
		SegmentBytes: c.SegmentBytes, CacheBytes: c.CacheBytes, Logger: c.Logger, Events: c.Events,
	}
}

// OpenWAL opens the log of package wal. It is what a host uses unless it is given another one.
func OpenWAL(c LogConfig) (Log, error) {
	l, err := wal.Open(c.options())
	if err != nil {
		return nil, err
	}
	return NewLog(l), nil
}

// NewLog returns an open log of package wal as a Log. The Log owns it.
func NewLog(l *wal.Log) Log { return ownLog{l} }

// ownLog is the log of package wal. Its methods that are not here have the right types already.
type ownLog struct{ *wal.Log }

func (l ownLog) Group(id uint64) GroupLog { return l.Log.Group(id) }

func (l ownLog) TakeSync() (Flush, time.Duration, error) {
	f, wait, err := l.Log.TakeSync()
	if f == nil { // a nil *wal.Flush in the interface would not be nil
		return nil, wait, err
	}
	return f, wait, err
}

func (l ownLog) DeleteGroup(id uint64) error {
	if err := l.Append([]wal.Write{{Group: id, Delete: true}}); err != nil {
		return err
	}
	return l.Sync()
}

// hostStorage is the log of all groups, and who writes and reads it.
type hostStorage struct {
	log       Log
	lane      *appendlane.Lane
	readers   *storage.Readers
	shortages storage.Shortages
}
