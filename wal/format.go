package wal

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// # The format
//
// The log is a directory of segments named by their id in 16 hex digits, 0000000000000001.wal and on, without gaps;
// an id is never used twice, though the blocks of a file may be (recycling: see spare.go). All numbers are
// little-endian. A segment is a header, records back to back, and then whatever was there:
//
//	segment header, 64 bytes                      record, 48 bytes + body, padded with zeros to 8
//	 0  magic      "MILLRACE"                      0  magic   0xA7
//	 8  version    uint32 = 3                      1  version 3
//	12  generation uint32, of the log              2  kind    bits 0 to 5, see below; bit 6: begins, bit 7: ends a write
//	16  id         uint64                          3  type    the entry's type; else 0
//	24  owner      uint64, the host                4  length  uint32, of the body without padding
//	32  log id     16 bytes                        8  group   uint64
//	48  salt       uint64                         16  index   uint64
//	56  size       uint32: bits 3 to 31, of the   24  term    uint64
//	    file when it was made; bit 0: direct      32  durable uint32, the watermark
//	60  crc        CRC-32C of bytes [0, 60)       36  bodyCRC CRC-32C of body and padding, seeded with the chain
//	                                              40  check   uint64 of bytes [0, 40)
//
// The check is 64 bits: CRC-32C in the high half, a product of the words in the low half (seal.check), both seeded with the
// place, and all of it combined by exclusive or with the segment's salt. The place is a mix of segment id and offset. So a
// header is valid in one place only, and who does not know the salt cannot make one: commands come from outside, and one that is full
// of headers must not pass for records when a crash has cut off its beginning. A salt is random, drawn when the segment is
// made, and is never shown to who proposes commands; nothing else in the file or in FENCE tells it.
//
// The chain of a record is the high half of the check of the record before it, or the header's crc for the first. So a
// header proves where it stands by itself, and a body proves that it follows everything before it: neither a stale record
// of an earlier life of the same blocks, nor one moved elsewhere, can look valid.
//
// The watermark says: when this record was written, this segment was known to be synced up to here. It is what lets
// recovery tell a torn tail from corruption. It is 64 at least, which says that the segment before is synced to its end;
// 0 says nothing.
//
// The generation counts the openings of the log (fence.go). The log id is random, drawn when the log is made. Direct means
// that every append to the segment is a direct write, which a kill does not cut short on this filesystem. A file that is smaller than its
// header says has lost its end.
//
// A write of one group is atomic. Its records stand behind one another: the first begins it, the last ends it, and one
// record alone does both. A group gets all records of a write that has its end, and nothing of a write that lacks it.
// Kinds 1, 2, 5, 6, 7 and 11 are parts of writes; one that the log writes for itself (a state that is written again) is a
// write of one record. The other kinds stand outside of writes and have neither bit.
//
//	1 entry       index and term are the entry's; the body is its Data. Replaces the group's entries at and above index.
//	2 hard state  term is the current term; the body is vote and commit, 8 bytes each. One record: never half a vote.
//	3 link        first in every segment: index is the id of the segment before (0: none), term its end offset; the
//	              body is 8 bytes, the chain at that end. Its watermark says whether all of that segment is synced.
//	4 mark        says nothing but its watermark, and in index the generation of the log; written on close and after a
//	              recovery.
//	5 truncation  the group's entries at and above index are gone.
//	6 base        the group's log begins after index, an entry or a snapshot of that term. Entries up to it are gone.
//	7 reset       as a base, and the entries above index are gone too: a snapshot took the log's place.
//	8 moved       a copy of the entry at index, which stood in a segment that is about to go. Replaces nothing else.
//	9 front       segments before the one with id index are not needed any more, and may be missing.
//	10 void       the group's write that stands before it has no end, and never gets one. Written by a recovery.
//	11 deletion   the group is as if it was never written. It pins no segment: what it is about goes before it does.
//
// A record is valid if and only if
//
//	R1  it starts at a multiple of 8, at or after byte 64, and ends within the file;
//	R2  magic and version are right, and the check matches;
//	R3  kind is known to the version, type is 0 unless kind is entry or moved, the length suits the kind, the
//	    watermark is not above its own start, and only a part of a write begins or ends one;
//	R4  bodyCRC matches, which includes that all records before it are valid;
//	R5  it is a link if and only if it stands at byte 64;
//	R6  an index, where the kind has one, is at least 1 (a base's may be 0);
//	R11 a write's records follow one another, of one group, the first begins it and no other does. Between them stands
//	    at most a link (a write may lie across a roll). After a write without its end stands its group's void, or
//	    nothing. Of a log whose front was dropped the first write may lack its beginning.
//
// A log is valid if and only if
//
//	R7  its first segment has no segment before it, or a front allows it to be missing; behind it the ids have no gap, and
//	    each but the highest has a valid header and its whole length;
//	R8  each link is right about the segment before it;
//	R9  when all records were applied in order, each group's entries are contiguous from after its base on;
//	R10 what ends the records of a segment is the end of the file, or 48 zeros: they are written behind each append.
//	    Only the last segment of a crash may have anything else there, above every watermark: its torn tail;
//	R12 it agrees with FENCE (fence.go): all segments are of one log, and the log ends where that says.
//
// R2 fails with magic and check right but a newer version: the directory is refused (ErrVersion). R9 fails with all
// others right: somebody removed a file, or we have a bug (ErrCorrupt, which names the entries).
//
// Version 1 had kinds 1 to 4, version 2 had kinds 1 to 9, and in both each record counted by itself: bits 6 and 7 are 0,
// and R11 does not hold. Their segment headers end after the owner, with zeros up to the crc, and the last 16 bytes of their
// record headers are these, without any salt; the chain is the headCRC:
//
//	32  durable uint64
//	40  bodyCRC uint32
//	44  headCRC uint32, CRC-32C of bytes [0, 44), seeded with the place
//
// They are read, and never written: Open begins a new segment after such a tail. So a segment holds records of its header's
// rules only: of version 3 if that says 3, of 1 or 2 if it says either (R3); and no segment of version 3 stands before one
// of an older version (R8).

const (
	segmentMagic   = "MILLRACE"
	formatVersion  = 3
	firstVersion   = 1 // the oldest that is read
	writesVersion  = 3 // the oldest with atomic writes, and with salts
	segmentHead    = 64
	recordMagic    = 0xA7
	recordHead     = 48
	recordAlign    = 8
	hardStateBytes = 16
	linkBytes      = 8
)

type kind uint8

const (
	kindEntry     kind = 1
	kindHardState kind = 2
	kindLink      kind = 3
	kindMark      kind = 4
	kindTruncate  kind = 5
	kindBase      kind = 6
	kindReset     kind = 7
	kindMoved     kind = 8
	kindFront     kind = 9
	kindVoid      kind = 10
	kindDelete    kind = 11
)

// edge is where a record stands in its write: the two high bits of the kind byte. Neither means in the middle, or outside
// of any write.
type edge uint8

const (
	begins edge = 0x40
	ends   edge = 0x80
	whole       = begins | ends
)

// kindNames are in the order of kinds.
var kindNames = [...]string{"kind 0", "entry", "hard state", "link", "mark", "truncation", "base", "reset", "moved entry", "front", "void", "deletion"}

// lastKind is the highest kind of a format version.
func lastKind(version uint8) kind {
	switch version {
	case 1:
		return kindMark
	case 2:
		return kindFront
	}
	return kindDelete
}

// inWrite reports whether records of the kind are parts of writes.
func (k kind) inWrite() bool {
	switch k {
	case kindEntry, kindHardState, kindTruncate, kindBase, kindReset, kindDelete:
		return true
	}
	return false
}

func (k kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// header is the decoded head of a record.
type header struct {
	version uint8 // of a record that was read; what is written has formatVersion
	kind    kind
	edge    edge
	typ     uint8
	length  uint32
	group   uint64
	index   uint64
	term    uint64
	durable uint64
	bodyCRC uint32
	chain   uint32 // what the header adds to the chain
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// align rounds n up to the next record boundary.
func align(n int64) int64 { return (n + recordAlign - 1) &^ (recordAlign - 1) }

// recordBytes is the room that a body of n bytes takes in a segment.
func recordBytes(n int) int64 { return recordHead + align(int64(n)) }

// seal is what the headers of one segment's records are made and checked with.
type seal struct {
	segment uint64
	salt    uint64
	version uint32 // of the segment: before writesVersion there is no salt
}

// place mixes a position into a seed. For one segment, or for one offset, different positions give different seeds,
// and as CRC is a bijection of its seed, a header is valid in one place only.
func (s seal) place(off int64) uint32 {
	return uint32(s.segment)*0x9E3779B1 ^ uint32(s.segment>>32) ^ uint32(off/recordAlign)
}

// check returns what stands in a header at off behind its first checkAt bytes, which are b. The CRC finds each small error;
// the product, another 32 bits that depend on every one of b, is there because 32 are too few: a command of 8 MiB
// has room for 175,000 guesses. It takes a quarter of the time that a second CRC takes.
func (s seal) check(b []byte, off int64) uint64 {
	_ = b[checkAt-1]
	place := s.place(off)
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) ^ checkKeys[i] }
	mix := fold(word(0), word(1)) ^ fold(word(2), word(3)) ^ fold(word(4), uint64(place)^checkKeys[5])
	return (uint64(crc32.Update(place, castagnoli, b))<<32 | (mix^mix>>32)&math.MaxUint32) ^ s.salt
}

// checkKeys are the first 64 bits of the fractions of the square roots of 2, 3, 5, 7, 11 and 13: numbers without a pattern.
var checkKeys = [6]uint64{0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F}

// fold multiplies, and combines both halves of the product.
func fold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

const (
	checkAt = 40 // where the check of a header begins
	// allBits is what of a check is compared. Tests compare less, to see how often guesses hit.
	allBits = ^uint64(0)
)

// proves reports whether the header b was made for offset off of the segment, by those bits of its check that mask has.
func (s seal) proves(b []byte, off int64, mask uint64) bool {
	return (binary.LittleEndian.Uint64(b[checkAt:])^s.check(b[:checkAt], off))&mask == 0
}

// logID tells a log from all others. It is random, and all zeros in what was written before there were any.
type logID [16]byte

func (id logID) String() string { return hex.EncodeToString(id[:]) }

// segmentHeader is the decoded header of a segment.
type segmentHeader struct {
	version    uint32
	generation uint32 // that made it; the highest number if that is higher
	id         uint64
	owner      uint64
	log        logID
	salt       uint64
	size       int64 // of the file when it was made; 0 if nothing says so
	direct     bool  // every append to it is a direct write
	crc        uint32
}

const flagDirect = 1

func (h segmentHeader) seal() seal { return seal{segment: h.id, salt: h.salt, version: h.version} }

// appendSegmentHead appends h to b, and returns its crc: the chain of what follows.
func appendSegmentHead(b []byte, h segmentHeader) (_ []byte, crc uint32) {
	start := len(b)
	size := uint32(h.size) &^ (recordAlign - 1)
	if h.direct {
		size |= flagDirect
	}
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint32(b, h.generation)
	b = binary.LittleEndian.AppendUint64(b, h.id)
	b = binary.LittleEndian.AppendUint64(b, h.owner)
	b = append(b, h.log[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.salt)
	b = binary.LittleEndian.AppendUint32(b, size)
	crc = crc32.Checksum(b[start:], castagnoli)
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

// parseSegmentHead reports false if b does not begin with a segment header.
func parseSegmentHead(b []byte) (segmentHeader, bool) {
	if len(b) < segmentHead || string(b[:8]) != segmentMagic {
		return segmentHeader{}, false
	}
	h := segmentHeader{
		version: binary.LittleEndian.Uint32(b[8:]),
		id:      binary.LittleEndian.Uint64(b[16:]),
		owner:   binary.LittleEndian.Uint64(b[24:]),
		crc:     binary.LittleEndian.Uint32(b[60:]),
	}
	if h.version >= writesVersion {
		size := binary.LittleEndian.Uint32(b[56:])
		h.generation = binary.LittleEndian.Uint32(b[12:])
		h.log = logID(b[32:48])
		h.salt = binary.LittleEndian.Uint64(b[48:])
		h.size, h.direct = int64(size&^(recordAlign-1)), size&flagDirect != 0
	}
	return h, h.crc == crc32.Checksum(b[:60], castagnoli)
}

// putHeader writes h into b[:recordHead], for offset off of a segment, and returns the chain of what follows.
func putHeader(b []byte, h header, s seal, off int64) (chain uint32) {
	_ = b[recordHead-1]
	b[0], b[1], b[2], b[3] = recordMagic, formatVersion, byte(h.kind)|byte(h.edge), h.typ
	binary.LittleEndian.PutUint32(b[4:], h.length)
	binary.LittleEndian.PutUint64(b[8:], h.group)
	binary.LittleEndian.PutUint64(b[16:], h.index)
	binary.LittleEndian.PutUint64(b[24:], h.term)
	binary.LittleEndian.PutUint32(b[32:], uint32(h.durable))
	binary.LittleEndian.PutUint32(b[36:], h.bodyCRC)
	check := s.check(b[:checkAt], off)
	binary.LittleEndian.PutUint64(b[checkAt:], check)
	return uint32(check >> 32)
}

// flaw says why bytes are not a valid record; the empty flaw means that they are.
type flaw string

const (
	flawNone    flaw = ""
	flawZero    flaw = "there are zeros where a record should start"
	flawShort   flaw = "the file ends inside a record"
	flawMagic   flaw = "the record does not start with its magic byte"
	flawCheck   flaw = "the record header does not match its checksum"
	flawVersion flaw = "the record has a version that is not known"
	flawShape   flaw = "the record header contradicts itself"
	flawLeans   flaw = "it was begun before the segment before it was synced, and that one is torn"
	flawBodyCRC flaw = "the record body does not match its checksum"
	flawLost    flaw = "the disk cannot read the record"
)

// parseHeader decodes the record header at the beginning of b, the bytes of a segment from off to its end, by rules
// R1 to R3. It trusts nothing.
func parseHeader(b []byte, s seal, off int64) (header, flaw) {
	if len(b) < recordHead {
		return header{}, flawShort
	}
	room := int64(len(b))
	b = b[:recordHead]
	if b[0] != recordMagic {
		if b[0] == 0 && allZero(b) {
			return header{}, flawZero
		}
		return header{}, flawMagic
	}
	h := header{
		version: b[1],
		kind:    kind(b[2] &^ byte(whole)),
		edge:    edge(b[2]) & whole,
		typ:     b[3],
		length:  binary.LittleEndian.Uint32(b[4:]),
		group:   binary.LittleEndian.Uint64(b[8:]),
		index:   binary.LittleEndian.Uint64(b[16:]),
		term:    binary.LittleEndian.Uint64(b[24:]),
	}
	var proven bool
	if s.version >= writesVersion {
		h.durable = uint64(binary.LittleEndian.Uint32(b[32:]))
		h.bodyCRC = binary.LittleEndian.Uint32(b[36:])
		h.chain = binary.LittleEndian.Uint32(b[checkAt+4:])
		proven = s.proves(b, off, allBits)
	} else {
		h.durable = binary.LittleEndian.Uint64(b[32:])
		h.bodyCRC = binary.LittleEndian.Uint32(b[40:])
		h.chain = binary.LittleEndian.Uint32(b[44:])
		proven = h.chain == crc32.Update(s.place(off), castagnoli, b[:44])
	}
	switch {
	case !proven:
		return header{}, flawCheck
	case h.version < firstVersion || h.version > formatVersion:
		return h, flawVersion
	case !h.consistent(off):
		return h, flawShape
	case h.bytes() > room:
		return h, flawShort
	}
	return h, flawNone
}

// consistent is rules R3 and R6.
func (h header) consistent(off int64) bool {
	holdsEntry := h.kind == kindEntry || h.kind == kindMoved
	if h.kind > lastKind(h.version) || h.durable > uint64(off) || (h.typ != 0 && !holdsEntry) {
		return false
	}
	if h.edge != 0 && (h.version < writesVersion || !h.kind.inWrite()) {
		return false
	}
	switch h.kind {
	case kindEntry, kindMoved:
		return h.length <= MaxEntryBytes && h.index > 0
	case kindHardState:
		return h.length == hardStateBytes
	case kindLink:
		return h.length == linkBytes
	case kindTruncate, kindReset, kindFront:
		return h.length == 0 && h.index > 0
	case kindMark, kindBase, kindVoid, kindDelete:
		return h.length == 0
	}
	return false
}

// bytes is the room that the record takes.
func (h header) bytes() int64 { return recordBytes(int(h.length)) }

// parseRecord decodes the record at the beginning of b by rules R1 to R4, given the chain before it. The body is a
// part of b.
func parseRecord(b []byte, s seal, off int64, chain uint32) (h header, body []byte, why flaw) {
	h, why = parseHeader(b, s, off)
	if why != flawNone {
		return h, nil, why
	}
	body, why = parseBody(b, h, chain)
	return h, body, why
}

// parseBody is rule R4, for a record that starts at b and whose header is h.
func parseBody(b []byte, h header, chain uint32) ([]byte, flaw) {
	padded := b[recordHead:h.bytes()]
	if crc32.Update(chain, castagnoli, padded) != h.bodyCRC {
		return nil, flawBodyCRC
	}
	return padded[:h.length], flawNone
}

// allZero reports whether b holds only zeros.
func allZero(b []byte) bool { return firstNonZero(b) == len(b) }

// firstNonZero returns the position of the first byte that is not zero, or len(b).
func firstNonZero(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if b[i] != 0 {
			break
		}
	}
	return i
}
