package control

import (
	"encoding/binary"
	"fmt"
)

// Most control records are a kind and then numbers, as uvarints. A record with fewer or more numbers than its
// kind has is refused whole: a form that grows gets a kind of its own.

// AppendNumbers appends numbers.
func AppendNumbers(b []byte, numbers ...uint64) []byte {
	for _, v := range numbers {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// DecodeNumbers decodes a body that has these numbers after its kind, and nothing else. about is what the
// record is about, for the error, which is ErrBad.
func DecodeNumbers(body []byte, about string, fields ...*uint64) error {
	rest := body[1:]
	for _, field := range fields {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return fmt.Errorf("%w: %d bytes about %s, and a number is cut off or too large", ErrBad, len(body), about)
		}
		*field, rest = v, rest[n:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes about %s, of which %d are too many", ErrBad, len(body), about, len(rest))
	}
	return nil
}
