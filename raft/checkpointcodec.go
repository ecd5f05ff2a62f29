package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// checkpoint is a walk over the state of a node that writes it to b or, if reads is set, reads it from b. A
// walk that has failed reads zeros from then on.
type checkpoint struct {
	b       []byte // what was written, or what is still to be read
	reads   bool
	entries EntryCodec
	err     error
}

var errShort = errors.New("it ends too early")

func (c *checkpoint) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	c.b = nil
}

// took consumes what n says was decoded from the front of b; n < 1 is an error.
func (c *checkpoint) took(n int) {
	if n < 1 {
		c.fail("%w", errShort)
		return
	}
	c.b = c.b[n:]
}

func (c *checkpoint) uints(values ...*uint64) {
	for _, v := range values {
		if !c.reads {
			c.b = binary.AppendUvarint(c.b, *v)
			continue
		}
		var n int
		*v, n = binary.Uvarint(c.b)
		c.took(n)
	}
}

func (c *checkpoint) ints(values ...*int) {
	for _, v := range values {
		if !c.reads {
			c.b = binary.AppendVarint(c.b, int64(*v))
			continue
		}
		x, n := binary.Varint(c.b)
		*v = int(x)
		c.took(n)
	}
}

func (c *checkpoint) bools(values ...*bool) {
	for _, v := range values {
		var x uint64
		if *v {
			x = 1
		}
		if c.uints(&x); x > 1 {
			c.fail("a flag is %d", x)
		}
		*v = x == 1
	}
}

// bytes walks over bytes. nil stays nil, which a read's context may be.
func (c *checkpoint) bytes(v *[]byte) {
	n := uint64(0)
	if *v != nil {
		n = uint64(len(*v)) + 1
	}
	c.uints(&n)
	switch {
	case !c.reads:
		c.b = append(c.b, *v...)
	case n == 0:
		*v = nil
	case n-1 > uint64(len(c.b)):
		c.fail("%w", errShort)
	default:
		*v = slices.Clone(c.b[: n-1 : n-1])
		c.b = c.b[n-1:]
	}
}

// count walks over the number of things that follow. Each takes a byte at least.
func (c *checkpoint) count(n int) int {
	x := uint64(n)
	if c.uints(&x); c.reads && x > uint64(len(c.b)) {
		c.fail("%w", errShort)
		return 0
	}
	return int(x)
}

// walk walks over the elements of a slice.
func walk[T any](c *checkpoint, s *[]T, each func(*T)) {
	n := c.count(len(*s))
	if c.reads && n > 0 {
		*s = make([]T, n)
	}
	for i := range *s {
		each(&(*s)[i])
	}
}

func walkQueue[T any](c *checkpoint, q *fifo[T], each func(*T)) {
	items := q.items()
	walk(c, &items, each)
	if c.reads {
		*q = fifo[T]{array: items}
	}
}

// walkMap walks over a map in the order of its keys. An empty one may become nil, which the core treats
// alike.
func walkMap[T any](c *checkpoint, m *map[uint64]T, each func(*T)) {
	keys := slices.Sorted(maps.Keys(*m))
	walk(c, &keys, func(k *uint64) {
		c.uints(k)
		v := (*m)[*k]
		if each(&v); c.reads {
			if *m == nil {
				*m = map[uint64]T{}
			}
			(*m)[*k] = v
		}
	})
}

func walkPointers[T any](c *checkpoint, m *map[uint64]*T, each func(*T)) {
	walkMap(c, m, func(v **T) {
		if c.reads {
			*v = new(T)
		}
		each(*v)
	})
}
