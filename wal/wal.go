// Package wal is the log of a host: one sequence of checksummed records on disk, shared by all its groups.
//
// # The idea
//
// A Raft node may answer only for what it has on stable storage, so a cluster is as fast as its logs become
// durable. Here everything that was waiting, of whichever group, goes into one buffer, one write and one
// fdatasync:
//
//	Append(writes) ── encode into one buffer ── one pwrite ──► visible to readers, not durable
//	Sync()         ── one fdatasync ───────────────────────► everything appended before the call is durable
//
// Sync is TakeSync, Flush.Wait and Flush.Complete for callers that would wait anyway (sync.go). A mode says
// what must be durable before an append counts (mode.go).
//
// Records go into segments: files of a fixed size that a helper allocates, fills with zeros and makes
// durable before they are needed, so that an fdatasync writes data and no metadata. Package record has the
// format and its rules. recover.go says how recovery tells a torn tail, which it cuts, from corruption,
// which it never cuts.
//
// # What holds
//
//  1. When Sync returns nil in a mode that is not unsafe, everything appended before the call survives any
//     crash, in order.
//  2. What was not synced survives as a prefix of the order of writes, or not at all. Nothing is invented.
//  3. A Write, which is of one group, is atomic: a crash leaves all of it or nothing. So the hard state
//     and the entries of a Write are never apart. Several Writes of an Append may be kept in part, each of
//     them whole.
//  4. Whatever Open shows is durable: it is written again and synced before Open returns.
//  5. An error of a write or a sync is final (ErrDiskFailed) and never retried: after a failed fsync the
//     kernel may have forgotten which pages were dirty, so a second attempt that succeeds proves nothing.
//  6. An invalid record below the durable watermark is ErrCorrupt, named with file and offset, and stays
//     where it is. Options.Salvage accepts what is before it, and reports the hole for repair.
//
// docs/internals/durability.md is the specification. atomic.go keeps promise 3.
//
// # In memory
//
// A reader finds an entry through a sparse index: 48 bytes for each 32 KiB of log to which a group writes
// (index.go), and fewer if Options.IndexBytes would be exceeded. Recent entries are also kept in memory,
// small ones in a ring of bytes (cache.go, ring.go). Reading older ones is a pread that holds no lock the
// appender needs. Index and ring have no pointers for a garbage collector to follow, and each counts all
// the memory that it takes.
//
// So the memory of a log follows from its options and from the number of its groups: about 0.5 KiB for each
// group, and at least 48 bytes of index for each sequence of entries of one term in a group. If IndexBytes
// is less than that, the index exceeds it, and Stats.IndexBytes says so. The price of a coarse index is in
// cold reads: a reader of old entries walks over the records of other groups, through a window of 256 KiB.
// A reader that continues where another stopped reads each segment once.
//
// # Rejected
//
// A file per group (one fsync each), a database (writes everything twice), O_APPEND on a growing file (each
// fdatasync commits a new length to the filesystem's journal), and retrying anything.
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
	// readers get the same array: it must never change, and should be an array of its own.
	Entries []raftpb.Entry
	// Delete deletes the group for good: it has no entries, no hard state and no snapshot, its records pin no
	// segment, and later writes to it are refused with ErrDeleted, also after a restart. It counts when it is
	// durable, in any mode. Such a Write carries nothing else. A group that was never written can be deleted,
	// and deleting a deleted group does nothing. The log remembers a deleted group with 48 bytes on disk and
	// about 48 in memory, and can remember 2^20 of them.
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
	// their data: 7 bytes each where a group writes many small ones, about 180 where each neighbour belongs
	// to another group. Default 32 MiB; negative means no cache.
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
