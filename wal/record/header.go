package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/millrace/millrace/internal/crcjoin"
)

// Header is the decoded head of a record.
type Header struct {
	Version uint8 // of a record that was read; PutHeader writes FormatVersion
	Kind    Kind
	Edge    Edge
	Type    uint8  // of an entry
	Length  uint32 // of the body, without padding
	Group   uint64
	Index   uint64
	Term    uint64
	Durable uint64 // the watermark
	BodyCRC uint32
	Chain   uint32 // the chain of what follows
}

// Bytes returns the space that the record takes: header, body and padding.
func (h Header) Bytes() int64 { return Bytes(int(h.Length)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b, the checksum of everything in a log's directory.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// ChainBody returns the BodyCRC of a record: of its body with the padding, seeded with the chain before the
// record.
func ChainBody(chain uint32, padded []byte) uint32 { return crc32.Update(chain, castagnoli, padded) }

// ChainSum returns what ChainBody does for a body of the given bytes, of which the sum is known. It does not
// pass over the body.
func ChainSum(chain, sum uint32, bytes int) uint32 {
	padded := int(Align(int64(bytes)))
	return crcjoin.Join(chain, crcjoin.Update(sum, padding[:padded-bytes]), padded)
}

// padding is what follows a body, at most. It is a variable, so that it is not allocated for each record.
var padding [Alignment]byte

// PutHeader writes h into b[:HeaderBytes], for offset off of the segment with the seal s. It returns the
// chain of what follows.
func PutHeader(b []byte, h Header, s Seal, off int64) (chain uint32) {
	_ = b[HeaderBytes-1]
	b[0], b[1], b[2], b[3] = Magic, FormatVersion, byte(h.Kind)|byte(h.Edge), h.Type
	binary.LittleEndian.PutUint32(b[4:], h.Length)
	binary.LittleEndian.PutUint64(b[8:], h.Group)
	binary.LittleEndian.PutUint64(b[16:], h.Index)
	binary.LittleEndian.PutUint64(b[24:], h.Term)
	binary.LittleEndian.PutUint32(b[32:], uint32(h.Durable))
	binary.LittleEndian.PutUint32(b[36:], h.BodyCRC)
	check := s.Sum(b[:CheckAt], off)
	binary.LittleEndian.PutUint64(b[CheckAt:], check)
	return uint32(check >> 32)
}

// Flaw says why bytes are not a valid record; FlawNone means that they are one. Its text completes "at this
// offset …" in errors. Package wal adds flaws of its own, which no single record can show.
type Flaw string

// What can be wrong with a single record.
const (
	FlawNone    Flaw = ""
	FlawZero    Flaw = "there are zeros where a record should start"
	FlawShort   Flaw = "the file ends inside a record"
	FlawMagic   Flaw = "the record does not start with its magic byte"
	FlawCheck   Flaw = "the record header does not match its checksum"
	FlawVersion Flaw = "the record has an unknown version"
	FlawShape   Flaw = "the record header contradicts itself"
	FlawBodyCRC Flaw = "the record body does not match its checksum"

	// FlawUnreadable is for readers: the disk returned no bytes to look at.
	FlawUnreadable Flaw = "the disk cannot read the record"
)

// Rule returns the rule that bytes with this flaw break where a record is expected; "disk" for
// FlawUnreadable.
func (f Flaw) Rule() string {
	switch f {
	case FlawShort:
		return "R1"
	case FlawMagic, FlawCheck, FlawVersion:
		return "R2"
	case FlawShape:
		return "R3"
	case FlawBodyCRC:
		return "R4"
	case FlawUnreadable:
		return "disk"
	}
	return "R10"
}

// ParseHeader decodes the record header at the beginning of b by rules R1 to R3 and R6. b holds the segment
// from off to its end. It trusts nothing in b. With FlawShort and FlawShape the header is returned as far as
// it is proven.
func ParseHeader(b []byte, s Seal, off int64) (Header, Flaw) {
	if len(b) < HeaderBytes {
		return Header{}, FlawShort
	}
	space := int64(len(b))
	b = b[:HeaderBytes]
	if b[0] != Magic {
		if b[0] == 0 && AllZero(b) {
			return Header{}, FlawZero
		}
		return Header{}, FlawMagic
	}
	h := Header{
		Version: b[1],
		Kind:    Kind(b[2] &^ byte(Whole)),
		Edge:    Edge(b[2]) & Whole,
		Type:    b[3],
		Length:  binary.LittleEndian.Uint32(b[4:]),
		Group:   binary.LittleEndian.Uint64(b[8:]),
		Index:   binary.LittleEndian.Uint64(b[16:]),
		Term:    binary.LittleEndian.Uint64(b[24:]),
	}
	var proven bool
	if s.Version >= AtomicVersion {
		h.Durable = uint64(binary.LittleEndian.Uint32(b[32:]))
		h.BodyCRC = binary.LittleEndian.Uint32(b[36:])
		h.Chain = binary.LittleEndian.Uint32(b[CheckAt+4:])
		proven = s.proves(b, off, allBits)
	} else {
		h.Durable = binary.LittleEndian.Uint64(b[32:])
		h.BodyCRC = binary.LittleEndian.Uint32(b[40:])
		h.Chain = binary.LittleEndian.Uint32(b[44:])
		proven = h.Chain == crc32.Update(s.seedAt(off), castagnoli, b[:44])
	}
	switch {
	case !proven:
		return Header{}, FlawCheck
	case h.Version < FirstVersion || h.Version > FormatVersion:
		return h, FlawVersion
	case !h.consistent(off):
		return h, FlawShape
	case h.Bytes() > space:
		return h, FlawShort
	}
	return h, FlawNone
}

// consistent checks rules R3 and R6.
func (h Header) consistent(off int64) bool {
	holdsEntry := h.Kind == KindEntry || h.Kind == KindMoved
	if h.Kind > LastKind(h.Version) || h.Durable > uint64(off) || (h.Type != 0 && !holdsEntry) {
		return false
	}
	if h.Edge != 0 && (h.Version < AtomicVersion || !h.Kind.InWrite()) {
		return false
	}
	switch h.Kind {
	case KindEntry, KindMoved:
		return h.Length <= MaxEntryBytes && h.Index > 0
	case KindHardState:
		return h.Length == HardStateBytes
	case KindLink:
		return h.Length == LinkBytes
	case KindTruncation, KindReset, KindFront:
		return h.Length == 0 && h.Index > 0
	case KindWatermark, KindBase, KindVoid, KindDeletion:
		return h.Length == 0
	}
	return false
}

// Parse decodes the record at the beginning of b by rules R1 to R4 and R6, given the chain before it. The
// body is a part of b.
func Parse(b []byte, s Seal, off int64, chain uint32) (h Header, body []byte, why Flaw) {
	h, why = ParseHeader(b, s, off)
	if why != FlawNone {
		return h, nil, why
	}
	body, why = ParseBody(b, h, chain)
	return h, body, why
}

// ParseBody returns the body of the record that starts at b and has header h, or FlawBodyCRC by rule R4. b
// holds the whole record.
func ParseBody(b []byte, h Header, chain uint32) ([]byte, Flaw) {
	padded := b[HeaderBytes:h.Bytes()]
	if ChainBody(chain, padded) != h.BodyCRC {
		return nil, FlawBodyCRC
	}
	return padded[:h.Length], FlawNone
}

// AllZero reports whether b holds only zeros.
func AllZero(b []byte) bool { return FirstNonZero(b) == len(b) }

// zeros are compared with what is mostly zeros: much faster than a loop over the words.
var zeros [512]byte

// FirstNonZero returns the position of the first byte that is not zero, or len(b).
func FirstNonZero(b []byte) int {
	i := 0
	for i+len(zeros) <= len(b) && bytes.Equal(b[i:i+len(zeros)], zeros[:]) {
		i += len(zeros)
	}
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
