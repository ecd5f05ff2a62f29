// Package snapshot keeps the snapshots of a group on disk: it writes them, publishes them, reads them back,
// receives them block by block, and removes them.
//
// A snapshot is a directory of parts, files that never change once they are complete, and a MANIFEST, which
// names every part with its SHA-256 and the CRC32C of each block of 64 KiB. The manifest is published last,
// by one rename, when everything that it names is durable. So a snapshot is there whole or not at all:
//
//	<dir>/<index>-<term>/part-00000000   complete, never written to again; may be a link
//	                     part-00000001
//	                     MANIFEST        published
//	                     OFFER           the manifest of a snapshot that is being received
//	                     recv-00000002   a part that is being received
//
// Parts hold the bare content, without frames around the blocks. Therefore a file of the state machine, a
// part of an earlier snapshot and a part of the new one can be one file with several names: what did not
// change is linked and not written. Rejected: blocks that carry their checksums, for which each file of a
// machine would have to be copied, and with which a receiver has only its sender's word for a block.
//
// Invariant: a name part-N is given to a file only after its content was synced and, in a receiver, its
// SHA-256 verified; the file is never written to after that.
//
// The package has no goroutine, no clock and no randomness. Its callers do the blocking work where blocking
// is allowed (the snapshot lane of package host); methods that answer from memory say so.
// docs/internals/snapshots.md has the rules with their reasons.
package snapshot
