package record

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const segmentMagic = "MILLRACE"

// SegmentSuffix ends the name of a segment's file.
const SegmentSuffix = ".wal"

// SegmentName returns the file name of the segment with this id.
func SegmentName(id uint64) string { return fmt.Sprintf("%016x%s", id, SegmentSuffix) }

// ParseSegmentName returns the id in a segment's file name. It reports false for any other name.
func ParseSegmentName(name string) (id uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, SegmentSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil && id > 0 && SegmentName(id) == name
}

// LogID tells a log from all others. It is random. In what was written before there were ids it is zero.
type LogID [16]byte

// String returns the id in hex digits.
func (id LogID) String() string { return hex.EncodeToString(id[:]) }

// SegmentHeader is the decoded header of a segment.
type SegmentHeader struct {
	Version    uint32
	Generation uint32 // of the log when it made the segment; math.MaxUint32 stands for all higher ones too
	ID         uint64
	Owner      uint64 // the host
	Log        LogID
	Salt       uint64
	Size       int64  // of the file when it was made; 0 in versions that do not say it
	Direct     bool   // every append to the segment is a direct write
	CRC        uint32 // the chain before the first record
}

// flagDirect is the bit of the size field that says Direct.
const flagDirect = 1

// Seal returns what the segment's record headers are checked with.
func (h SegmentHeader) Seal() Seal { return Seal{Segment: h.ID, Salt: h.Salt, Version: h.Version} }

// AppendSegmentHeader appends h to b, and returns its crc: the chain before the first record.
func AppendSegmentHeader(b []byte, h SegmentHeader) (_ []byte, crc uint32) {
	start := len(b)
	size := uint32(h.Size) &^ (Alignment - 1)
	if h.Direct {
		size |= flagDirect
	}
	b = append(b, segmentMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.Version)
	b = binary.LittleEndian.AppendUint32(b, h.Generation)
	b = binary.LittleEndian.AppendUint64(b, h.ID)
	b = binary.LittleEndian.AppendUint64(b, h.Owner)
	b = append(b, h.Log[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.Salt)
	b = binary.LittleEndian.AppendUint32(b, size)
	crc = Checksum(b[start:])
	return binary.LittleEndian.AppendUint32(b, crc), crc
}

// ParseSegmentHeader reports false if b does not begin with a segment header.
func ParseSegmentHeader(b []byte) (SegmentHeader, bool) {
	if len(b) < SegmentHeaderBytes || string(b[:8]) != segmentMagic {
		return SegmentHeader{}, false
	}
	h := SegmentHeader{
		Version: binary.LittleEndian.Uint32(b[8:]),
		ID:      binary.LittleEndian.Uint64(b[16:]),
		Owner:   binary.LittleEndian.Uint64(b[24:]),
		CRC:     binary.LittleEndian.Uint32(b[60:]),
	}
	if h.Version >= AtomicVersion {
		size := binary.LittleEndian.Uint32(b[56:])
		h.Generation = binary.LittleEndian.Uint32(b[12:])
		h.Log = LogID(b[32:48])
		h.Salt = binary.LittleEndian.Uint64(b[48:])
		h.Size, h.Direct = int64(size&^(Alignment-1)), size&flagDirect != 0
	}
	return h, h.CRC == Checksum(b[:60])
}

// End is the place where the records of a segment end, and the chain there. A link says it of the segment
// before its own.
type End struct {
	Segment uint64 // id; 0 if there is no segment before
	Offset  int64
	Chain   uint32
}

// Link returns header and body of the link that says e.
func (e End) Link() (Header, []byte) {
	body := binary.LittleEndian.AppendUint64(nil, uint64(e.Chain))
	return Header{Kind: KindLink, Index: e.Segment, Term: uint64(e.Offset)}, body
}

// ParseLink returns what a valid link says of the segment before it.
func ParseLink(h Header, body []byte) End {
	return End{Segment: h.Index, Offset: int64(h.Term), Chain: uint32(binary.LittleEndian.Uint64(body))}
}

// ValidSegment reports whether data is a segment with this id whose records are valid by themselves and end
// as an append leaves them (R10).
func ValidSegment(id uint64, data []byte) bool {
	head, ok := ParseSegmentHeader(data)
	if !ok || head.ID != id {
		return false
	}
	off, chain := int64(SegmentHeaderBytes), head.CRC
	for {
		h, _, why := Parse(data[min(off, int64(len(data))):], head.Seal(), off, chain)
		if why != FlawNone {
			return why == FlawZero || why == FlawShort
		}
		off, chain = off+h.Bytes(), h.Chain
	}
}
