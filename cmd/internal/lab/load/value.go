package load

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

// A value is what a client writes. Its header says which client wrote it, so the state machine can count
// it. The header also has a checksum of the payload, so a bit that is lost anywhere on the way is seen.
//
//	offset  bytes
//	0       4     magic
//	4       4     client
//	8       8     sequence of this client, from 0
//	16      4     CRC32C of the payload
//	20      4     check of bytes 0–19
//	24      …     payload: random, so that nothing on the way can compress it
//
// Payloads are slices of one shared random block at a few fixed offsets whose checksums are known beforehand.
// Making a value costs one allocation and one copy, the same for every target.
const (
	valueHeaderBytes = 24
	valueMagic       = 0x6d696c6c // "mill"
	payloadOffsets   = 64

	// MinValueBytes and MaxValueBytes bound the size of a value in a plan.
	MinValueBytes = 32
	MaxValueBytes = 8 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ValueID names one write.
type ValueID struct {
	Client uint32
	Seq    uint64
}

// Source makes values of one size. It is read-only after NewSource, and all clients share it.
type Source struct {
	valueBytes int
	block      []byte
	checksums  [payloadOffsets]uint32 // of the payload that starts at this offset of block
}

// NewSource returns a source of values of valueBytes, at least MinValueBytes each.
func NewSource(valueBytes int, seed uint64) *Source {
	payloadBytes := valueBytes - valueHeaderBytes
	s := &Source{valueBytes: valueBytes, block: make([]byte, payloadBytes+payloadOffsets)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range s.block {
		s.block[i] = byte(rng.Uint32())
	}
	for i := range s.checksums {
		s.checksums[i] = crc32.Checksum(s.block[i:i+payloadBytes], castagnoli)
	}
	return s
}

// ValueBytes returns the size of every value.
func (s *Source) ValueBytes() int { return s.valueBytes }

// Value returns a new value, which the caller owns.
func (s *Source) Value(id ValueID) []byte {
	v := make([]byte, s.valueBytes)
	s.fill(v, id)
	return v
}

// fill makes v the value of an id.
func (s *Source) fill(v []byte, id ValueID) {
	offset := int((id.Seq + uint64(id.Client)) % payloadOffsets)
	binary.LittleEndian.PutUint32(v[0:], valueMagic)
	binary.LittleEndian.PutUint32(v[4:], id.Client)
	binary.LittleEndian.PutUint64(v[8:], id.Seq)
	binary.LittleEndian.PutUint32(v[16:], s.checksums[offset])
	binary.LittleEndian.PutUint32(v[20:], headerCheck(v))
	copy(v[valueHeaderBytes:], s.block[offset:])
}

// ParseValue returns the id of a value and the checksum of its payload, or false if these are not the bytes
// that a client sent.
func ParseValue(v []byte) (ValueID, uint32, bool) {
	if len(v) < valueHeaderBytes ||
		binary.LittleEndian.Uint32(v[0:]) != valueMagic ||
		binary.LittleEndian.Uint32(v[20:]) != headerCheck(v) {
		return ValueID{}, 0, false
	}
	sum := crc32.Checksum(v[valueHeaderBytes:], castagnoli)
	if sum != binary.LittleEndian.Uint32(v[16:]) {
		return ValueID{}, 0, false
	}
	return IDOf(v), sum, true
}

// IDOf reads the id of a value that this process has made, without a check.
func IDOf(v []byte) ValueID {
	return ValueID{Client: binary.LittleEndian.Uint32(v[4:]), Seq: binary.LittleEndian.Uint64(v[8:])}
}

// headerCheck covers bytes 0–19. It bounds what a broken value can make the Machine allocate.
func headerCheck(v []byte) uint32 {
	return crc32.Checksum(v[:20], castagnoli)
}
