package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// command is what the members of the group agree on: one change of one key.
type command struct {
	op   op
	when condition
	// version is what the key must have for the command to take effect, if when is ifVersion.
	version uint64
	key     string
	value   []byte // of a put
	delta   int64  // of an add
}

// op is what a command does with its key.
type op byte

const (
	opPut    op = iota + 1
	opDelete    // a key that exists
	opAdd       // delta, to the decimal number that is the value; a key that does not exist is 0
)

// condition is what must hold for a command to take effect.
type condition byte

const (
	always condition = iota
	ifAbsent
	ifVersion
)

// AppendBinary implements encoding.BinaryAppender: operation, condition, version, delta, the length of the
// key, the key, and the value as the rest.
func (c command) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, byte(c.op), byte(c.when))
	b = binary.AppendUvarint(b, c.version)
	b = binary.AppendVarint(b, c.delta)
	b = binary.AppendUvarint(b, uint64(len(c.key)))
	return append(append(b, c.key...), c.value...), nil
}

// maxCommandBytes is the size of the largest command.
const maxCommandBytes = 2 + 3*binary.MaxVarintLen64 + maxKeyBytes + maxValueBytes

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It copies what it keeps.
func (c *command) UnmarshalBinary(b []byte) error {
	r := reader{b: b}
	d := command{op: op(r.byte()), when: condition(r.byte()), version: r.uvarint(), delta: r.varint()}
	d.key = string(r.take(r.uvarint()))
	d.value = append([]byte{}, r.b...)
	switch {
	case r.failed:
		return fmt.Errorf("its %d bytes end inside a field", len(b))
	case d.op < opPut || d.op > opAdd:
		return fmt.Errorf("it has operation %d, want %d to %d; did a newer program write it?", d.op, opPut, opAdd)
	case d.when > ifVersion:
		return fmt.Errorf("it has condition %d, want at most %d; did a newer program write it?", d.when, ifVersion)
	}
	*c = d
	return nil
}

// result is what a command has done.
type result struct {
	verdict verdict
	// version is the index of the command that wrote the value; 0: the key does not exist.
	version uint64
	// value is the key's, after an add, and if the condition did not hold.
	value []byte
}

// verdict says whether a command took effect, and if not, why.
type verdict byte

const (
	done     verdict = iota + 1
	mismatch         // the condition does not hold
	missing          // there is no key to delete
	full             // the state would have more than maxStateBytes
	noNumber         // the value is no number, or the sum does not fit
)

// AppendBinary implements encoding.BinaryAppender. The sessions keep results in this form.
func (r result) AppendBinary(b []byte) ([]byte, error) {
	b = binary.AppendUvarint(append(b, byte(r.verdict)), r.version)
	return append(b, r.value...), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (r *result) UnmarshalBinary(b []byte) error {
	in := reader{b: b}
	d := result{verdict: verdict(in.byte()), version: in.uvarint()}
	if in.failed {
		return errors.New("a result ends inside a field")
	}
	d.value = append([]byte{}, in.b...)
	*r = d
	return nil
}

// reader takes fields from the front of b. After a field that b does not hold, failed is set.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.failed = nil, true
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.take(width(n))
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.take(width(n))
	return v
}

// width is the number of bytes that encoding/binary has read, or more than there are if it could not.
func width(n int) uint64 {
	if n <= 0 {
		return 1 << 62
	}
	return uint64(n)
}
