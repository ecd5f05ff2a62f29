package wal

import "testing"

// Every bit of a header counts, and every bit of its check: what compares half of a check is not found by damage that also
// changes the other half. (Planted: half_of_the_check.)
func TestEveryBitOfAHeaderCounts(t *testing.T) {
	s := seal{segment: 3, salt: 0x0123456789abcdef, version: formatVersion}
	b := make([]byte, recordHead)
	putHeader(b, header{kind: kindMark, index: 9, durable: segmentHead}, s, segmentHead)
	if _, why := parseHeader(b, s, segmentHead); why != flawNone {
		t.Fatal(why)
	}
	for bit := 8; bit < 8*recordHead; bit++ { // the first byte is the magic
		b[bit/8] ^= 1 << (bit % 8)
		if _, why := parseHeader(b, s, segmentHead); why != flawCheck {
			t.Errorf("with bit %d of byte %d turned over: %q, want %q", bit%8, bit/8, why, flawCheck)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}
