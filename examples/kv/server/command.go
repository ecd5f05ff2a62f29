package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
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
	// TTL is how long the key of a PutFor exists, in log time.
	TTL time.Duration
}

// Op is what a command does with its key.
type Op byte

const (
	Put    Op = iota + 1
	Delete    // a key that exists
	Add       // Delta, to the decimal number that is the value; a key that does not exist is 0
	PutFor    // a Put of a key that goes when TTL has passed
	Tick      // nothing: keys go whose time has come (millrace.Machine.Timers)
)

// Condition is what must hold for a command to take effect.
type Condition byte

const (
	Always Condition = iota
	IfAbsent
	IfVersion
)

// AppendBinary implements encoding.BinaryAppender: operation, condition, version, delta (of a PutFor its
// TTL), the length of the key, the key, and the value as the rest.
func (c Command) AppendBinary(b []byte) ([]byte, error) {
	if c.Op == PutFor {
		c.Delta = int64(c.TTL)
	}
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
	r := bytes.NewReader(b)
	f := NewFields(r)
	d := Command{Op: Op(f.Byte()), When: Condition(f.Byte()), Version: f.Uvarint(), Delta: f.Varint()}
	d.Key = string(f.Bytes(uint64(len(b))))
	d.Value = f.take(uint64(r.Len()))
	switch {
	case f.Err() != nil:
		return fmt.Errorf("its %d bytes end inside a field: %w", len(b), f.Err())
	case d.Op < Put || d.Op > Tick:
		return fmt.Errorf("it has operation %d, want %d to %d; did a newer program write it?", d.Op, Put, Tick)
	case d.When > IfVersion:
		return fmt.Errorf("it has condition %d, want at most %d; did a newer program write it?", d.When, IfVersion)
	}
	if d.Op == PutFor {
		d.TTL, d.Delta = time.Duration(d.Delta), 0
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
	in := bytes.NewReader(b)
	f := NewFields(in)
	d := Result{Verdict: Verdict(f.Byte()), Version: f.Uvarint()}
	d.Value = f.take(uint64(in.Len()))
	if f.Err() != nil {
		return fmt.Errorf("a result of %d bytes ends inside a field: %w", len(b), f.Err())
	}
	*r = d
	return nil
}
