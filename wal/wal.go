package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Write is what one group wants to have on disk, all of it or nothing. Its parts take effect in the order
// of its fields. Each part may be left out.
type Write struct {
	Group uint64
	// HardState replaces the group's term, vote and commit; the zero value leaves them as they are. A
	// commit index below what was compacted, or below what a snapshot covers, is raised to that.
	HardState raftpb.HardState
	// Snapshot says that the caller has a durable snapshot of everything through Snapshot.Index. If the log
	// holds that entry, with that term, the entries up to it are dropped. If not, all entries are dropped,
	// and the log begins after it. A snapshot changes nothing if the log already begins at its index or
	// later.
	Snapshot Snapshot
	// CompactThrough drops the entries up to this index, which the log must hold. The term of the last
	// dropped entry stays known.
	CompactThrough uint64
	// TruncateFrom drops the entries at and above this index.
	TruncateFrom uint64
	// Entries are contiguous. The first may be at most one above the group's last entry; if it is lower, it
	// and all entries above it are replaced. The log keeps large Data in the array that was passed, and
	// readers get the same array. It must never change, and should be an array of its own.
	Entries []raftpb.Entry
	// Delete deletes the group for good. It has no entries, no hard state and no snapshot, and its records
	// pin no segment. Later writes to it are refused with ErrDeleted, also after a restart. It counts when
	// it is durable, in any mode. Such a Write carries nothing else. A group that was never written can be
	// deleted, and deleting a deleted group does nothing. The log remembers a deleted group with 48 bytes
	// on disk and about 48 in memory, and can remember 2^20 of them.
	Delete bool
}

// MaxEntryBytes is the largest Entry.Data that Append accepts.
const MaxEntryBytes = record.MaxEntryBytes

// Snapshot names the last entry that a snapshot covers.
type Snapshot struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

// Options configure Open. Dir and Scheduler must be set.
type Options struct {
	// FS holds the files. Default vfs.OS().
	FS vfs.FS
	// Dir is the log's own directory; it is created.
	Dir string
	// Scheduler runs the helper that prepares segments.
	Scheduler env.Scheduler
	// Clock times the delays of the modes that have one, and syncs for Stats. Default env.Real().Clock.
	Clock env.Clock
	// Rand draws the log's id and the salts of its segments (wal/record), which must be unknown to those
	// who propose commands. A test or a simulation passes a source of its own. Default crypto/rand.Reader.
	Rand io.Reader
	// Owner is the host the log belongs to. A directory with another owner is refused.
	Owner uint64
	// Mode says when an append counts. Default ModeGroup.
	Mode Mode
	// SegmentBytes is the size of a segment file. Sizes above 4096 are rounded up to a multiple of that.
	// Default 64 MiB.
	SegmentBytes int64
	// CacheBytes bounds the memory of the recent entries of all groups, including what they take besides
	// their data. That is 11 bytes where a group writes many small entries, and about 180 where each
	// neighbour belongs to another group. Default 32 MiB; negative means no cache.
	CacheBytes int64
	// IndexBytes bounds the memory of the index of entries, over all groups. Near the bound the index gets
	// coarser, and the first read of a group's old entries reads more: as much log as lies between two
	// known places. One append may exceed the bound for a moment. A group takes at least 48 bytes for each
	// sequence of entries of one term. Default 64 MiB.
	IndexBytes int64
	// Salvage opens a log even if it is corrupt, with what is intact from its beginning. Log.Holes says
	// what is missing and has to come from peers, and Log.Fence that the member must not vote before.
	// Damaged files are kept under other names. Default false: a corrupt log is ErrCorrupt.
	Salvage bool
	// ScanThreads is how many threads read and check segments while the log is opened, at most 64. One more
	// segment than that is in memory then. 0 means as many as the process has, at most 4, on the machine's
	// own disk, and 1 on any other FS, whose operations then keep one order.
	ScanThreads int
	// MaxPendingBytes bounds what is written and not durable: appends of more entries are refused with
	// ErrBacklog until a flush is complete. 0 means two segments: an append that needs a third one waits
	// for the sync of the first.
	MaxPendingBytes int64
	// Logger gets reports of recoveries and failures. Default: none.
	Logger *slog.Logger
	// Events, if set, is called with each Event, by the goroutine that finds it: in Open, or in the helper. It
	// must return at once, and must not call the log.
	Events func(Event)
}

const (
	defaultSegmentBytes = 64 << 20
	defaultCacheBytes   = 32 << 20
	defaultIndexBytes   = 64 << 20
	minSegmentBytes     = 1 << 10
	maxSegmentBytes     = 1 << 30
)

// Validate reports what is wrong with the options, in one sentence.
func (o Options) Validate() error {
	switch {
	case o.Dir == "" && o.Mode.Kind != KindMemory:
		return errors.New("wal: Options.Dir is empty; name the directory that holds the log")
	case o.Scheduler == nil:
		return errors.New("wal: Options.Scheduler is nil; pass env.Real().Scheduler, or the simulator's")
	case o.Mode.Validate() != nil:
		return o.Mode.Validate()
	case o.MaxPendingBytes < 0:
		return fmt.Errorf("wal: Options.MaxPendingBytes is %d; use 0 for two segments, or more", o.MaxPendingBytes)
	case o.SegmentBytes != 0 && (o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes):
		return fmt.Errorf("wal: Options.SegmentBytes is %d; use 0 for %d, or a value from %d to %d",
			o.SegmentBytes, defaultSegmentBytes, minSegmentBytes, maxSegmentBytes)
	case o.ScanThreads < 0:
		return fmt.Errorf("wal: Options.ScanThreads is %d; use 0 for the default, or more", o.ScanThreads)
	case o.IndexBytes < 0:
		return fmt.Errorf("wal: Options.IndexBytes is %d; use 0 for %d, or more", o.IndexBytes, defaultIndexBytes)
	}
	return nil
}

func (o Options) withDefaults() Options {
	switch {
	case o.Mode.Kind == KindMemory:
		o.FS, o.Dir = vfs.Memory(), "memory"
	case o.FS == nil:
		o.FS = vfs.OS()
	}
	if o.Clock == nil {
		o.Clock = env.Real().Clock
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.SegmentBytes > vfs.BlockBytes {
		o.SegmentBytes = (o.SegmentBytes + blockMask) &^ blockMask // for direct writes
	}
	o.SegmentBytes = record.Align(o.SegmentBytes)
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.IndexBytes == 0 {
		o.IndexBytes = defaultIndexBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
