// Package record is the format of the log's segments: how records and segment headers are laid out, encoded,
// decoded and checked. It is pure: no file, no lock, no state. Package wal writes and recovers segments with
// it, wal/inspect reads them.
//
// # Segments and records
//
// The log is a directory of segments, files named by their id in 16 hex digits: 0000000000000001.wal and so
// on, without gaps. An id is never used twice, though the blocks of a file may be (wal recycles files). All
// numbers are little-endian. A segment is a header, then records back to back, then whatever the blocks held
// before:
//
//	segment header, 64 bytes                      record, 48 bytes + body, padded with zeros to 8
//	 0  magic      "MILLRACE"                      0  magic   0xA7
//	 8  version    uint32 = 3                      1  version 3
//	12  generation uint32, of the log              2  kind    bits 0 to 5; bit 6: begins a write, bit 7: ends
//	16  id         uint64                          3  type    the entry's type; else 0
//	24  owner      uint64, the host                4  length  uint32, of the body without padding
//	32  log id     16 bytes                        8  group   uint64
//	48  salt       uint64                         16  index   uint64
//	56  size       uint32: bits 3 to 31, of the   24  term    uint64
//	    file when it was made; bit 0: direct      32  durable uint32, the watermark
//	60  crc        CRC-32C of bytes [0, 60)       36  bodyCRC CRC-32C of body and padding, from the chain on
//	                                              40  check   uint64 of bytes [0, 40)
//
// The check has 64 bits. The high half is a CRC-32C, the low half a product of the words (Seal.Sum). Both
// are seeded with the place, a mix of segment id and offset, and the whole is combined with the segment's
// salt by exclusive or. So a header is valid in one place only, and it cannot be made without the salt.
// That matters because commands come from outside: a command full of headers must not pass for records when a
// crash has cut off its beginning. A salt is random, drawn when the segment is made, and never shown to those
// who propose commands. Nothing else in the segment or in FENCE reveals it.
//
// The chain of a record is the high half of the check of the record before it; for the first record it is the
// segment header's crc. So a header proves its own place, and a body proves that it follows everything before
// it. Neither a stale record from an earlier use of the same blocks nor a record that was moved elsewhere can
// look valid.
//
// The watermark says: when this record was written, this segment was known to be synced up to this offset. It
// lets recovery tell a torn tail from corruption. A watermark of 64 or more also says that the segment before
// is synced to its end; a watermark of 0 says nothing.
//
// The generation counts how often the log was opened. The log id is random, drawn when the log is made.
// Direct means that every append to the segment is a direct write, which a kill does not cut short on this
// filesystem. A file that is smaller than its header says has lost its end.
//
// # Kinds
//
// A write of one group is atomic. Its records stand one after another: the first begins the write, the last
// ends it, and a single record does both. A group gets all records of a write that has its end, and none of
// a write that lacks it. Kinds 1, 2, 5, 6, 7 and 11 are parts of writes. When the log writes such a record
// for itself (a state that it writes again), it is a whole write. The other kinds are outside of writes and
// have neither bit.
//
//	1 entry       index and term are the entry's; the body is its Data. Replaces the group's entries at and
//	              above index.
//	2 hard state  term is the current term; the body is vote and commit, 8 bytes each. One record: never half
//	              a vote.
//	3 link        first in every segment: index is the id of the segment before (0: none), term its end
//	              offset; the body is 8 bytes, the chain at that end. Its watermark says whether all of that
//	              segment is synced.
//	4 watermark   says nothing but its watermark, and in index the generation of the log. Written after a
//	              recovery, by Close, and when a log falls idle. Tools call it "mark".
//	5 truncation  the group's entries at and above index are gone.
//	6 base        the group's log begins after index, an entry or a snapshot of that term. Entries up to it
//	              are gone.
//	7 reset       as a base, and the entries above index are gone too: a snapshot took the log's place.
//	8 moved       a copy of the entry at index, which was in a segment that is about to go. Replaces nothing
//	              else.
//	9 front       segments before the one with id index are not needed any more, and may be missing.
//	10 void       the group's write before this record has no end and never gets one. Written by a recovery.
//	11 deletion   the group is gone, with all that it had, and its id is never reused. The newest one of a
//	              group is its tombstone: the log writes it again before its segment goes. Earlier builds of
//	              version 3 began a group again after it, which takes it back.
//
// # Rules
//
// A record is valid if and only if
//
//	R1  it starts at a multiple of 8, at or after byte 64, and ends within the file;
//	R2  magic and version are right, and the check matches;
//	R3  kind is known to the version, type is 0 unless kind is entry or moved, the length suits the kind, the
//	    watermark is not above the record's own start, and only a part of a write begins or ends one;
//	R4  bodyCRC matches, which includes that all records before it are valid;
//	R5  it is a link if and only if it is at byte 64;
//	R6  an index, where the kind has one, is at least 1 (a base's may be 0);
//	R11 a write's records follow one another, all of one group; the first begins the write and no other does.
//	    Between them is at most a link (a write may cross into the next segment). After a write without its
//	    end is its group's void, or nothing. If the first segments of the log were dropped, the first write
//	    may lack its beginning.
//
// A log is valid if and only if
//
//	R7  its first segment has no segment before it, or a front allows that one to be missing; after it the ids
//	    have no gap, and each segment but the highest has a valid header and its whole length;
//	R8  each link is right about the segment before it;
//	R9  when all records were applied in order, each group's entries are contiguous after its base;
//	R10 the records of a segment end at the end of the file, or in 48 zeros, which are written behind each
//	    append. Only the last segment of a crash may hold anything else there, above every watermark: its torn
//	    tail;
//	R12 it agrees with FENCE (wal/fencefile.go): all segments are of one log, and the log ends where FENCE
//	    says.
//
// This package checks R1 to R4 and R6; package wal checks the rest when it recovers a log.
//
// If R2 fails with magic and check right but a newer version, the directory is refused (wal.ErrVersion). If
// R9 fails with all others right, a file was removed or the log has a bug (wal.ErrCorrupt, which names the
// entries).
//
// # Older versions
//
// Version 1 had kinds 1 to 4, version 2 had kinds 1 to 9. In both, each record counts by itself: bits 6 and 7
// are 0, and R11 does not hold. Their segment headers end after the owner, with zeros up to the crc. The last
// 16 bytes of their record headers are as follows, without any salt, and the chain is the headCRC:
//
//	32  durable uint64
//	40  bodyCRC uint32
//	44  headCRC uint32, CRC-32C of bytes [0, 44), seeded with the place
//
// They are read and never written: Open begins a new segment after such a tail. So a segment holds records of
// its header's rules only: of version 3 if the header says 3, of 1 or 2 if it says either (R3). No segment of
// version 3 is before one of an older version (R8).
package record

import (
	"fmt"
	"math"
)

// Versions of the format.
const (
	FormatVersion = 3 // what is written
	FirstVersion  = 1 // the oldest that is read
	AtomicVersion = 3 // the oldest with atomic writes (R11) and with salts
)

// Sizes in bytes.
const (
	SegmentHeaderBytes = 64
	HeaderBytes        = 48 // of a record
	Alignment          = 8  // of records
	HardStateBytes     = 16 // the body of a hard state
	LinkBytes          = 8  // the body of a link

	// MaxEntryBytes is the largest body of an entry.
	MaxEntryBytes = math.MaxInt32 / 2
)

// Magic is the first byte of every record.
const Magic = 0xA7

// Kind says what a record means.
type Kind uint8

// The kinds, as the package comment defines them.
const (
	KindEntry      Kind = 1
	KindHardState  Kind = 2
	KindLink       Kind = 3
	KindWatermark  Kind = 4
	KindTruncation Kind = 5
	KindBase       Kind = 6
	KindReset      Kind = 7
	KindMoved      Kind = 8
	KindFront      Kind = 9
	KindVoid       Kind = 10
	KindDeletion   Kind = 11
)

// kindNames are in the order of kinds. Tools print them, also as JSON, so they stay as they are.
var kindNames = [...]string{"kind 0", "entry", "hard state", "link", "mark", "truncation", "base", "reset", "moved entry", "front", "void", "deletion"}

// LastKind returns the highest kind of a format version.
func LastKind(version uint8) Kind {
	switch version {
	case 1:
		return KindWatermark
	case 2:
		return KindFront
	}
	return KindDeletion
}

// InWrite reports whether records of the kind are parts of writes.
func (k Kind) InWrite() bool {
	switch k {
	case KindEntry, KindHardState, KindTruncation, KindBase, KindReset, KindDeletion:
		return true
	}
	return false
}

// String returns the kind as tools print it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Edge is the place of a record in its write: the two high bits of the kind byte. The zero value means in
// the middle, or outside of any write.
type Edge uint8

// The edges of a write.
const (
	Begins Edge = 0x40
	Ends   Edge = 0x80
	Whole       = Begins | Ends
)

// Align rounds n up to the next record boundary.
func Align(n int64) int64 { return (n + Alignment - 1) &^ (Alignment - 1) }

// Bytes returns the space that a record with a body of n bytes takes in a segment.
func Bytes(n int) int64 { return HeaderBytes + Align(int64(n)) }
