package raftpb

import (
	"encoding/binary"
	"fmt"
)

// maxFieldNumber is protobuf's limit.
const maxFieldNumber = 1<<29 - 1

// fieldReader walks the fields of one message. It holds the field that next read last: its number, its wire
// type, and its value in v or p.
type fieldReader struct {
	rest []byte
	num  uint64
	wire byte
	v    uint64
	p    []byte
	err  error
}

// next reads one field. It returns false at the end of the input and after an error.
func (r *fieldReader) next() bool {
	if r.err != nil || len(r.rest) == 0 {
		return false
	}
	key, ok := r.uvarint()
	if !ok {
		return r.fail("a field key is truncated or too large")
	}
	r.num, r.wire = key>>3, byte(key&7)
	if r.num == 0 || r.num > maxFieldNumber {
		return r.fail("field number %d is out of range", r.num)
	}
	switch r.wire {
	case wireVarint:
		if r.v, ok = r.uvarint(); !ok {
			return r.fail("field %d: its integer is truncated or too large", r.num)
		}
	case wireBytes:
		n, ok := r.uvarint()
		if !ok || n > uint64(len(r.rest)) {
			return r.fail("field %d: its length reaches past the end, have %d bytes", r.num, len(r.rest))
		}
		r.p, r.rest = r.rest[:n:n], r.rest[n:]
	default:
		return r.skip()
	}
	return true
}

// skip skips the value of a field whose wire type no known field has. Groups nest; a counter replaces the
// stack.
func (r *fieldReader) skip() bool {
	wire, depth := r.wire, 0
	for {
		switch wire {
		case wireVarint:
			if _, ok := r.uvarint(); !ok {
				return r.fail("field %d: an integer in it is truncated or too large", r.num)
			}
		case wireBytes:
			n, ok := r.uvarint()
			if !ok || !r.drop(n) {
				return r.fail("field %d: a length in it reaches past the end", r.num)
			}
		case wireFix64, wireFix32:
			n := uint64(8)
			if wire == wireFix32 {
				n = 4
			}
			if !r.drop(n) {
				return r.fail("field %d: a fixed-size integer in it is truncated", r.num)
			}
		case wireGroup:
			depth++
		case wireEnd:
			if depth--; depth < 0 {
				return r.fail("field %d ends a group that has not begun", r.num)
			}
		default:
			return r.fail("field %d: there is no wire type %d", r.num, wire)
		}
		if depth == 0 {
			return true
		}
		key, ok := r.uvarint()
		if !ok || key>>3 == 0 || key>>3 > maxFieldNumber {
			return r.fail("field %d: a group in it does not end", r.num)
		}
		wire = byte(key & 7)
	}
}

func (r *fieldReader) drop(n uint64) bool {
	if n > uint64(len(r.rest)) {
		return false
	}
	r.rest = r.rest[n:]
	return true
}

func (r *fieldReader) uvarint() (uint64, bool) {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		v := uint64(r.rest[0])
		r.rest = r.rest[1:]
		return v, true
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return 0, false
	}
	r.rest = r.rest[n:]
	return v, true
}

func (r *fieldReader) fail(format string, args ...any) bool {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	return false
}

// uint is the value of an integer field.
func (r *fieldReader) uint() uint64 {
	if r.wire != wireVarint {
		r.fail("field %d has wire type %d, want %d", r.num, r.wire, wireVarint)
		return 0
	}
	return r.v
}

func (r *fieldReader) bool() bool { return r.uint() != 0 }

// bytes is the value of a bytes field, or the encoding of a nested message. It is never nil, and it aliases
// the input.
func (r *fieldReader) bytes() []byte {
	if r.wire != wireBytes {
		r.fail("field %d has wire type %d, want %d", r.num, r.wire, wireBytes)
		return nil
	}
	return r.p
}

// uints appends the value of a repeated integer field, which may also arrive packed.
func (r *fieldReader) uints(into []uint64) []uint64 {
	if r.wire != wireBytes {
		return append(into, r.uint())
	}
	packed := fieldReader{rest: r.p}
	for len(packed.rest) > 0 {
		v, ok := packed.uvarint()
		if !ok {
			r.fail("field %d: a packed integer is truncated or too large", r.num)
			return into
		}
		into = append(into, v)
	}
	return into
}

// nested records the error of decoding a nested message.
func (r *fieldReader) nested(err error) {
	if r.err == nil {
		r.err = err
	}
}

// ahead counts the occurrences of the current field from here on, the current one included. A repeated field
// then needs one allocation.
func (r *fieldReader) ahead() int {
	n, look := 1, fieldReader{rest: r.rest}
	for look.next() {
		if look.num == r.num {
			n++
		}
	}
	return n
}
