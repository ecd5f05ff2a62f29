package transport

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Assembler joins the frames of one connection into bodies.
//
// Invariant: its memory follows the bytes that arrived. It is at most three times the bytes of unfinished
// bodies: twice, and the old array while it grows. It is never more than the largest body of each kind of
// the class. A peer that begins a body and never ends it costs no more.
//
// It belongs to one goroutine.
type Assembler struct {
	class    Class
	maxBytes int
	begun    [Kinds]assembly
	check    checker // of kind Consensus
}

// assembly is a body of one kind. Its memory is kept for the next one.
type assembly struct {
	bytes []byte
	open  bool // it has begun and not ended
	size  int  // what it says of itself: the bytes that it will have; 0: it does not say
}

// keepBodyBytes is the largest assembled body whose memory is kept: an append has 1 MiB.
const keepBodyBytes = 2 << 20

// NewAssembler makes an Assembler for a connection of class c, which accepts bodies of at most maxBytes, and
// of Kind.MaxBodyBytes.
func NewAssembler(c Class, maxBytes int) *Assembler {
	return &Assembler{class: c, maxBytes: maxBytes}
}

// Reject returns why no frame with this header comes on the connection, or nil. Add asks it, too. A reader
// asks it before the body has come: another class may have larger frames than the reader has space for.
func (a *Assembler) Reject(h Header) error {
	if h.Kind >= Kinds || h.Kind.Class() != a.class {
		return fmt.Errorf("%w: a %v frame on a connection of class %v", ErrBadFrame, h.Kind, a.class)
	}
	return nil
}

// Add takes the next frame. If it completes a body it returns that, valid until the next Add: a body of one
// frame is returned in place, and is part itself. An error is an ErrBadFrame and ends the connection.
//
// Add compares the checksum of the frame, unless it is of kind Consensus: Body.Messages does that.
func (a *Assembler) Add(h Header, part []byte) (body Body, whole bool, err error) {
	if err := a.Reject(h); err != nil {
		return Body{}, false, err
	}
	body.Kind = h.Kind
	if h.Kind == Consensus {
		a.note(h)
		body.check = &a.check
	} else if err := h.Validate(part); err != nil {
		return Body{}, false, err
	}
	s, limit := &a.begun[h.Kind], h.Kind.MaxBodyBytes(a.maxBytes)
	if !s.open {
		s.empty()
	}
	have := len(s.bytes)
	switch {
	case have+len(part) > limit || h.Continued && have+len(part) == limit:
		return Body{}, false, fmt.Errorf("%w: %v body of more than %d bytes", ErrBadFrame, h.Kind, limit)
	case s.open && len(part) == 0:
		return Body{}, false, fmt.Errorf("%w: %v body that continues with nothing, after %d bytes", ErrBadFrame, h.Kind, have)
	case !s.open && !h.Continued:
		body.Bytes = part
		return body, true, nil
	}
	if !s.open && h.Kind == Consensus {
		s.size = min(sizeOf(part), limit)
	}
	s.add(part, limit)
	s.open, body.Bytes, body.joined = h.Continued, s.bytes, s
	return body, !s.open, nil
}

// note keeps the header of a frame of a body until Body.Messages compares its checksum.
func (a *Assembler) note(h Header) {
	if !a.begun[h.Kind].open {
		a.check.frames = a.check.frames[:0]
	}
	a.check.frames = append(a.check.frames, h)
}

// Begun reports whether a body of kind k has begun and not ended.
func (a *Assembler) Begun(k Kind) bool { return a.begun[k].open }

// Unfinished reports whether a body of any kind has begun and not ended.
func (a *Assembler) Unfinished() bool {
	for i := range a.begun {
		if a.begun[i].open {
			return true
		}
	}
	return false
}

// empty forgets the last body, and its memory if it was an unusually large one.
func (s *assembly) empty() {
	if s.bytes = s.bytes[:0]; cap(s.bytes) > keepBodyBytes {
		s.bytes = nil
	}
}

// sizeOf returns how many bytes a body of kind Consensus says that it has. Its first frame is part, and a
// body of several frames is a single message. It returns 0 if the body says nothing of use. The truth is not
// checked.
func sizeOf(part []byte) int {
	_, group := binary.Uvarint(part)
	if group <= 0 {
		return 0
	}
	size, n := binary.Uvarint(part[group:])
	if n <= 0 || size > math.MaxInt32/2 || group+n+int(size) <= len(part) {
		return 0
	}
	return group + n + int(size)
}

// add appends part. The memory grows by doubling. The last time it becomes as large as the body says that it
// is, if it says so.
func (s *assembly) add(part []byte, limit int) {
	if n := len(s.bytes) + len(part); n > cap(s.bytes) {
		if s.size >= n {
			limit = s.size
		}
		grown := make([]byte, len(s.bytes), min(2*n, max(limit, n)))
		copy(grown, s.bytes)
		s.bytes = grown
	}
	s.bytes = append(s.bytes, part...)
}
