package entry

import "encoding/binary"

// Reader reads from the front of Rest. After the first failure everything is zero.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Uvarint returns a number of at most most, in its shortest form.
func (r *Reader) Uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.Rest)
	if r.Bad || n <= 0 || v > most || n > 1 && r.Rest[n-1] == 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Bytes returns the next n bytes, without a copy.
func (r *Reader) Bytes(n uint64) []byte {
	if r.Bad || n > uint64(len(r.Rest)) {
		r.Bad = true
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// U64 returns a number of 8 bytes, little-endian.
func (r *Reader) U64() uint64 {
	b := r.Bytes(8)
	if r.Bad {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
