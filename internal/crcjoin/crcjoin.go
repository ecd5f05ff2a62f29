// Package crcjoin joins CRC-32C sums: from the sums of A and of B it makes the sum of A followed by B,
// without a look at their bytes. So bytes whose sum is known can be a part of a record and of several
// frames, and no host passes over them again.
//
// It is pure. The zero value of a sum is the sum of no bytes.
package crcjoin

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the CRC-32C of b.
func Sum(b []byte) uint32 { return crc32.Update(0, castagnoli, b) }

// Update returns the sum of A followed by b, where sum is that of A. It passes over b.
func Update(sum uint32, b []byte) uint32 {
	if len(b) == 0 {
		return sum
	}
	return crc32.Update(sum, castagnoli, b)
}

// Join returns the sum of A followed by B, where a and b are their sums and B has bytesB bytes, which must
// not be negative.
func Join(a, b uint32, bytesB int) uint32 { return shift(a, bytesB) ^ b }

// Rest returns the sum of B, where whole is the sum of A followed by B, a that of A, and B has bytesB bytes.
func Rest(whole, a uint32, bytesB int) uint32 { return shift(a, bytesB) ^ whole }

// A sum is a polynomial over GF(2), of which the highest bit is the coefficient of 1. Bytes behind those that
// were summed multiply it by x^8 each, modulo the polynomial of CRC-32C. The beginning and the end of a CRC,
// which invert it, cancel out in Join.
//
// shifts[k] multiplies by x^(8·2^k). It is linear, so it has a row for each of the eight digits of a sum, and
// 512 bytes. A payload of a few KiB takes three to six of them.
var shifts = makeShifts()

const (
	digits     = 8
	digitMask  = 15
	maxShifts  = 63 // a number of bytes has as many bits
	polynomial = crc32.Castagnoli
)

type shiftTable [digits][digitMask + 1]uint32

func (t *shiftTable) apply(v uint32) uint32 {
	return t[0][v&digitMask] ^ t[1][v>>4&digitMask] ^ t[2][v>>8&digitMask] ^ t[3][v>>12&digitMask] ^
		t[4][v>>16&digitMask] ^ t[5][v>>20&digitMask] ^ t[6][v>>24&digitMask] ^ t[7][v>>28]
}

func makeShifts() (all [maxShifts]shiftTable) {
	for k := range all {
		for d := range digits {
			for v := range uint32(digitMask + 1) {
				all[k][d][v] = double(all[:k], v<<(4*d))
			}
		}
	}
	return all
}

// double multiplies v by x^(8·2^len(smaller)): it applies the last of the smaller shifts twice.
func double(smaller []shiftTable, v uint32) uint32 {
	if k := len(smaller) - 1; k >= 0 {
		return smaller[k].apply(smaller[k].apply(v))
	}
	for range 8 {
		v = v>>1 ^ polynomial&-(v&1)
	}
	return v
}

// shift multiplies v by x^(8n).
func shift(v uint32, n int) uint32 {
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			v = shifts[k].apply(v)
		}
	}
	return v
}
