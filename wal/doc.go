// Package wal is the log of a host: one sequence of checksummed records on disk, shared by all its groups.
//
// # The idea
//
// A Raft node may answer only for what it has on stable storage, so a cluster is as fast as its logs become
// durable. Here everything that waits, of whichever group, shares a buffer, a write and an fdatasync:
//
//	Append(writes) ── encode into one buffer ── one pwrite ──► visible to readers, not durable
//	Sync()         ── one fdatasync ───────────────────────► everything appended before the call is durable
//
// Sync is TakeSync, Flush.Wait and Flush.Complete for callers that would wait anyway (sync.go). A mode says
// what must be durable before an append counts (mode.go).
//
// Records go into segments: files of a fixed size. A helper allocates them, fills them with zeros and makes
// them durable before they are needed, so an fdatasync writes data and no metadata. Package record has the
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
//  5. An error of a write or a sync is final (ErrDiskFailed) and never retried. After a failed fsync the
//     kernel may have forgotten which pages were dirty, so a second attempt that succeeds proves nothing.
//  6. An invalid record below the durable watermark is ErrCorrupt, named with file and offset, and stays
//     where it is. Options.Salvage accepts what is before it, and reports the hole for repair.
//
// docs/internals/durability.md is the specification. atomic.go keeps promise 3.
//
// # In memory
//
// A reader finds an entry through a sparse index. It takes 48 bytes for each 32 KiB of log to which a group
// writes (index.go), and fewer if Options.IndexBytes would be exceeded. Recent entries are also kept in
// memory, small ones in a ring of bytes (cache.go, ring.go). Reading older ones is a pread that holds no
// lock the appender needs. Index and ring have no pointers for a garbage collector to follow, and each
// counts all the memory that it takes.
//
// So the memory of a log follows from its options and from the number of its groups: about 0.5 KiB for each
// group. The index takes at least 48 bytes for each sequence of entries of a term in a group. If IndexBytes
// is less than that, the index exceeds it, and Stats.IndexBytes says so. The price of a coarse index is in
// cold reads: a reader of old entries walks over the records of other groups, through a window of 256 KiB.
// A reader that continues where another stopped reads each segment once.
//
// # Rejected
//
// A file per group: one fsync each. A database: it writes everything twice. O_APPEND on a growing file:
// each fdatasync commits a new length to the filesystem's journal. Retrying anything.
package wal
