package lab

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

// A value is what a client writes. Its head says who wrote it, so that the state machine can count it, and carries a
// checksum of the rest, so that a bit lost anywhere on the way is seen.
//
//	offset  bytes
//	0       4     magic
//	4       4     client
//	8       8     sequence of this client, from 0
//	16      4     CRC32C of the payload
//	20      4     check of bytes 0–19
//	24      …     payload: random, so that nothing on the way can compress it
//
// Payloads are slices of one shared random block at a few fixed offsets whose checksums are known beforehand: making
// a value costs one allocation and one copy, the same for every target.
const (
	valueHeaderBytes = 24
	valueMagic       = 0x6d696c6c // "mill"
	payloadOffsets   = 64

	// MinValueBytes and MaxValueBytes bound Plan.ValueBytes.
	MinValueBytes = 32
	MaxValueBytes = 8 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// valueID names one write.
type valueID struct {
	client uint32
	seq    uint64
}

// valueSource makes values of one size. It is read-only after newValueSource and shared by all clients.
type valueSource struct {
	valueBytes int
	block      []byte
	checksums  [payloadOffsets]uint32 // of the payload that starts at this offset of block
}

func newValueSource(valueBytes int, seed uint64) *valueSource {
	payloadBytes := valueBytes - valueHeaderBytes
	s := &valueSource{valueBytes: valueBytes, block: make([]byte, payloadBytes+payloadOffsets)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range s.block {
		s.block[i] = byte(rng.Uint32())
	}
	for i := range s.checksums {
		s.checksums[i] = crc32.Checksum(s.block[i:i+payloadBytes], castagnoli)
	}
	return s
}

// value returns a fresh value; the caller owns it.
func (s *valueSource) value(id valueID) []byte {
	offset := int((id.seq + uint64(id.client)) % payloadOffsets)
	v := make([]byte, s.valueBytes)
	binary.LittleEndian.PutUint32(v[0:], valueMagic)
	binary.LittleEndian.PutUint32(v[4:], id.client)
	binary.LittleEndian.PutUint64(v[8:], id.seq)
	binary.LittleEndian.PutUint32(v[16:], s.checksums[offset])
	binary.LittleEndian.PutUint32(v[20:], headerCheck(v))
	copy(v[valueHeaderBytes:], s.block[offset:])
	return v
}

// parseValue returns the id of a value and the checksum of its payload, or false if these are not the bytes that a
// client sent.
func parseValue(v []byte) (valueID, uint32, bool) {
	if len(v) < valueHeaderBytes ||
		binary.LittleEndian.Uint32(v[0:]) != valueMagic ||
		binary.LittleEndian.Uint32(v[20:]) != headerCheck(v) {
		return valueID{}, 0, false
	}
	sum := crc32.Checksum(v[valueHeaderBytes:], castagnoli)
	if sum != binary.LittleEndian.Uint32(v[16:]) {
		return valueID{}, 0, false
	}
	return valueID{client: binary.LittleEndian.Uint32(v[4:]), seq: binary.LittleEndian.Uint64(v[8:])}, sum, true
}

// headerCheck covers bytes 0–19. It bounds what a broken value can make the Machine allocate.
func headerCheck(v []byte) uint32 {
	return crc32.Checksum(v[:20], castagnoli)
}

// bitmap is a growing set of small integers.
type bitmap []uint64

// add reports whether i was new.
func (b *bitmap) add(i uint64) bool {
	for i/64 >= uint64(len(*b)) {
		*b = append(*b, 0)
	}
	word, bit := &(*b)[i/64], uint64(1)<<(i%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
