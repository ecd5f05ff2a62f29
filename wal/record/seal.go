package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// Seal is what the record headers of one segment are made and checked with.
type Seal struct {
	Segment uint64 // its id
	Salt    uint64
	Version uint32 // of the segment; before AtomicVersion there is no salt
}

// CheckAt is the offset of the check in a record header.
const CheckAt = 40

// allBits are the bits of a check that are compared. Tests compare less, to measure how often guesses hit.
const allBits = ^uint64(0)

// seedAt mixes a position into a seed. For one segment, or for one offset, different positions give different
// seeds, and as CRC is a bijection of its seed, a header is valid in one place only.
func (s Seal) seedAt(off int64) uint32 {
	return uint32(s.Segment)*0x9E3779B1 ^ uint32(s.Segment>>32) ^ uint32(off/Alignment)
}

// Sum returns the check of the header at off, of which b holds the first CheckAt bytes. The CRC finds every
// small error. The product adds 32 bits that depend on every one of b, because 32 bits are too few: a command
// of 8 MiB has space for 175,000 guesses. The product takes a quarter of the time of a second CRC.
func (s Seal) Sum(b []byte, off int64) uint64 {
	_ = b[CheckAt-1]
	seed := s.seedAt(off)
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) ^ checkKeys[i] }
	mix := fold(word(0), word(1)) ^ fold(word(2), word(3)) ^ fold(word(4), uint64(seed)^checkKeys[5])
	return (uint64(crc32.Update(seed, castagnoli, b))<<32 | (mix^mix>>32)&math.MaxUint32) ^ s.Salt
}

// checkKeys are the first 64 bits of the fractions of the square roots of 2, 3, 5, 7, 11 and 13: numbers
// without a pattern.
var checkKeys = [6]uint64{0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F}

// fold multiplies x and y, and combines both halves of the product.
func fold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// proves reports whether the header b was made for offset off of the segment, by the bits of its check that
// mask has.
func (s Seal) proves(b []byte, off int64, mask uint64) bool {
	return (binary.LittleEndian.Uint64(b[CheckAt:])^s.Sum(b[:CheckAt], off))&mask == 0
}

// GuessSeal returns the seal of the segment with this id when its header is damaged. It derives the salt from
// the first record, the link, whose check contains it. Anyone who can write a link can choose the salt, so
// the guess serves to describe what was in the segment, and for nothing else. data is the segment from its
// first byte on.
func GuessSeal(data []byte, id uint64) Seal {
	if len(data) < SegmentHeaderBytes+HeaderBytes {
		return Seal{}
	}
	link := data[SegmentHeaderBytes:]
	salted := Seal{Segment: id, Version: FormatVersion}
	salted.Salt = binary.LittleEndian.Uint64(link[CheckAt:]) ^ salted.Sum(link[:CheckAt], SegmentHeaderBytes)
	if h, why := ParseHeader(link, salted, SegmentHeaderBytes); why == FlawNone && h.Kind == KindLink && h.Version >= AtomicVersion {
		return salted
	}
	return Seal{Segment: id, Version: FirstVersion}
}
