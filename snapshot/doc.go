// Package snapshot keeps the snapshots of a group on disk: it writes them, publishes them, reads them back,
// receives them block by block, and removes them.
//
// A snapshot is a directory of parts and a MANIFEST. Parts are files that never change once they are
// complete. The manifest names every part with its SHA-256 and the CRC32C of each block of 64 KiB. The
// manifest is published last, by one rename, when everything that it names is durable. So a snapshot is
// there whole or not at all:
//
//	<dir>/<index>-<term>/part-00000000   complete, never written to again; may be a link
//	                     part-00000001
//	                     MANIFEST        published
//	                     OFFER           the manifest of a snapshot that is being received
//	                     recv-00000002   a part that is being received
//
// Parts hold the bare content, without frames around the blocks. So a file of the state machine, a part of
// an earlier snapshot and a part of the new snapshot can be the same file. What did not change is linked
// and not written. Rejected: blocks that carry their checksums. Each file of a machine would have to be
// copied, and a receiver would have only its sender's word for a block.
//
// Invariant: a file gets its name part-N only after its content was synced and, in a receiver, its SHA-256
// verified. It is never written to after that.
//
// The package has no goroutine, no clock and no randomness. Its callers do the blocking work where blocking
// is allowed (the snapshot lane of package host); methods that answer from memory say so.
// docs/internals/snapshots.md has the rules with their reasons.
package snapshot
