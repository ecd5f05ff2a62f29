package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Fields reads fields, from a command or from a snapshot. The first error stays, and what is read after it is
// zero. A field that ends too early is io.ErrUnexpectedEOF.
type Fields struct {
	r   source
	err error
}

type source interface {
	io.Reader
	io.ByteReader
}

// NewFields returns the fields of r.
func NewFields(r source) Fields { return Fields{r: r} }

// Err returns the first error.
func (f *Fields) Err() error {
	if errors.Is(f.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return f.err
}

// Byte reads a byte.
func (f *Fields) Byte() (b byte) {
	if f.err == nil {
		b, f.err = f.r.ReadByte()
	}
	return b
}

// Uvarint reads an unsigned number.
func (f *Fields) Uvarint() (n uint64) {
	if f.err == nil {
		n, f.err = binary.ReadUvarint(f.r)
	}
	return n
}

// Varint reads a signed number.
func (f *Fields) Varint() (n int64) {
	if f.err == nil {
		n, f.err = binary.ReadVarint(f.r)
	}
	return n
}

// Bytes reads a length n of at most limit, and n bytes.
func (f *Fields) Bytes(limit uint64) []byte {
	n := f.Uvarint()
	if f.err == nil && n > limit {
		f.err = fmt.Errorf("a field of %d bytes, want at most %d", n, limit)
	}
	return f.take(n)
}

func (f *Fields) take(n uint64) []byte {
	if f.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, f.err = io.ReadFull(f.r, b)
	return b
}
