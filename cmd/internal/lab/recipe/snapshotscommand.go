package recipe

import (
	"encoding/binary"
	"fmt"
)

// stateCommand is what the group replicates.
//
//	offset  bytes
//	0       1     kind
//	write:  4     number of the window, then a value of package load
//	fill:   8, 8  first unit, and how many: each gets other content
//	        8     seed of that content
//	pad:    …     bytes that change nothing but the length of the log
type stateCommand struct {
	kind   byte
	window uint32
	value  []byte // of a write; the bytes of a pad
	first  uint64
	n      uint64
	seed   uint64
}

const (
	writeCommand = 'w'
	fillCommand  = 'f'
	padCommand   = 'p'
)

// commandCodec is the codec of commands. What it decodes shares memory with the log.
type commandCodec struct{}

// Append implements millrace.Codec.
func (commandCodec) Append(dst []byte, c stateCommand) ([]byte, error) {
	dst = append(dst, c.kind)
	switch c.kind {
	case writeCommand:
		return append(binary.LittleEndian.AppendUint32(dst, c.window), c.value...), nil
	case padCommand:
		return append(dst, c.value...), nil
	}
	for _, n := range []uint64{c.first, c.n, c.seed} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst, nil
}

// Decode implements millrace.Codec.
func (commandCodec) Decode(b []byte) (c stateCommand, err error) {
	if len(b) == 0 {
		return c, fmt.Errorf("a command has no bytes")
	}
	c.kind, b = b[0], b[1:]
	switch {
	case c.kind == padCommand:
		c.value = b
	case c.kind == writeCommand && len(b) > 4:
		c.window, c.value = binary.LittleEndian.Uint32(b), b[4:]
	case c.kind == fillCommand && len(b) == 24:
		c.first, c.n, c.seed = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	default:
		return c, fmt.Errorf("a command of kind %q has %d bytes, which none has", c.kind, len(b)+1)
	}
	return c, nil
}
