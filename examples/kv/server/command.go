package server

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Command is what the members of the group agree on: one change of one key.
type Command struct {
	Op   Op
	When Condition
	// Version is what the key must have for the command to take effect, if When is IfVersion.
	Version uint64
	Key     string
	Value   []byte // of a Put
	Delta   int64  // of an Add
}

// Op is what a command does with its key.
type Op byte

const (
	Put    Op = iota + 1
	Delete    // a key that exists
	Add       // Delta, to the decimal number that is the value; a key that does not exist is 0
)

// Condition is what must hold for a command to take effect.
type Condition byte

const (
	Always Condition = iota
	IfAbsent
	IfVersion
)

// AppendBinary implements encoding.BinaryAppender: operation, condition, version, delta, the length of the
// key, the key, and the value as the rest.
func (c Command) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, byte(c.Op), byte(c.When))
	b = binary.AppendUvarint(b, c.Version)
	b = binary.AppendVarint(b, c.Delta)
	b = binary.AppendUvarint(b, uint64(len(c.Key)))
	return append(append(b, c.Key...), c.Value...), nil
}

// maxCommandBytes is the size of the largest command.
const maxCommandBytes = 2 + 3*binary.MaxVarintLen64 + MaxKeyBytes + MaxValueBytes

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It copies what it keeps.
func (c *Command) UnmarshalBinary(b []byte) error {
	r := reader{b: b}
	d := Command{Op: Op(r.byte()), When: Condition(r.byte()), Version: r.uvarint(), Delta: r.varint()}
	d.Key = string(r.take(r.uvarint()))
	d.Value = append([]byte{}, r.b...)
	switch {
	case r.failed:
		return fmt.Errorf("its %d bytes end inside a field", len(b))
	case d.Op < Put || d.Op > Add:
		return fmt.Errorf("it has operation %d, want %d to %d; did a newer program write it?", d.Op, Put, Add)
	case d.When > IfVersion:
		return fmt.Errorf("it has condition %d, want at most %d; did a newer program write it?", d.When, IfVersion)
	}
	*c = d
	return nil
}

// Result is what a command has done.
type Result struct {
	Verdict Verdict
	// Version is VersionOf the command that wrote the value; 0: the key does not exist.
	Version uint64
	// Value is the key's, after an Add, and if the condition did not hold.
	Value []byte
}

// Verdict says whether a command took effect, and if not, why.
type Verdict byte

const (
	Done     Verdict = iota + 1
	Mismatch         // the condition does not hold
	Missing          // there is no key to delete
	Full             // the state would have more than MaxStateBytes
	NoNumber         // the value is no number, or the sum does not fit
)

// AppendBinary implements encoding.BinaryAppender. The sessions keep results in this form.
func (r Result) AppendBinary(b []byte) ([]byte, error) {
	b = binary.AppendUvarint(append(b, byte(r.Verdict)), r.Version)
	return append(b, r.Value...), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (r *Result) UnmarshalBinary(b []byte) error {
	in := reader{b: b}
	d := Result{Verdict: Verdict(in.byte()), Version: in.uvarint()}
	if in.failed {
		return errors.New("a result ends inside a field")
	}
	d.Value = append([]byte{}, in.b...)
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
