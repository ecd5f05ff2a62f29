package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// The header with which the entry of a command begins. Integers are uvarints.
//
//	first    1 byte: the version in the upper four bits, what follows in the lower ones
//	stamp    nanoseconds of log time, if bit 0 is set
//	client   16 bytes, if bit 1 is set, and then
//	birth    nanoseconds of log time
//	number
//	behind   number - lowest unanswered number
//
// The header comes before the command, not after it: it is written into room that the client's buffer has, so
// that no command is copied. A header without stamp and session is one byte.
const (
	headerVersion = 1

	hasStamp = 1 << 0
	hasMark  = 1 << 1
	allFlags = hasStamp | hasMark

	maxTime = time.Duration(math.MaxInt64)
)

// Room is the number of bytes before a command in which each header fits.
const Room = 64

// maxHeaderBytes is the size of the largest header.
const maxHeaderBytes = 1 + binary.MaxVarintLen64 + 16 + 3*binary.MaxVarintLen64

var _ [Room - maxHeaderBytes]struct{} // each header fits

// Header is what precedes a command in its entry.
type Header struct {
	// Stamp is the leader's log time when it proposed the command; HasStamp says whether there is one.
	Stamp    time.Duration
	HasStamp bool
	// Mark is the place of the command in a session; HasMark says whether it has one.
	Mark    Mark
	HasMark bool
}

// ErrHeader says that the beginning of an entry is no header that this program can read.
var ErrHeader = errors.New("millrace: the header of a command cannot be read")

// Put writes the header right before data[Room:], and returns the entry: header and command. data has at
// least Room bytes, and the entry is a part of it. Put may be called again for the same data, with another
// header. A negative stamp counts as 0, and a Mark must be valid (Mark.Validate).
func (h *Header) Put(data []byte) (entry []byte) {
	var buffer [Room]byte
	b := append(buffer[:0], headerVersion<<4)
	if h.HasStamp {
		b[0] |= hasStamp
		b = binary.AppendUvarint(b, uint64(max(h.Stamp, 0)))
	}
	if h.HasMark {
		m := &h.Mark
		b[0] |= hasMark
		b = append(b, m.Client[:]...)
		b = binary.AppendUvarint(b, uint64(m.Birth))
		b = binary.AppendUvarint(b, m.Number)
		b = binary.AppendUvarint(b, m.Number-m.Low)
	}
	start := Room - len(b)
	copy(data[start:], b)
	return data[start:]
}

// Decode splits an entry into header and command. The command is a part of entry. The errors are ErrHeader,
// and say what is wrong; they depend on the bytes alone, so all members of a group meet the same one.
func Decode(entry []byte) (h Header, command []byte, err error) {
	if len(entry) == 0 {
		return h, nil, fmt.Errorf("%w: the entry is empty", ErrHeader)
	}
	first, r := entry[0], reader{rest: entry[1:]}
	switch {
	case first == headerVersion<<4:
		return h, r.rest, nil
	case first>>4 != headerVersion:
		return h, nil, fmt.Errorf("%w: it begins with %#02x, version %d; this program knows version %d, so use a newer program", ErrHeader, first, first>>4, headerVersion)
	case first&^(headerVersion<<4) > allFlags:
		return h, nil, fmt.Errorf("%w: it begins with %#02x, which has flags that this program does not know; use a newer program", ErrHeader, first)
	}
	if first&hasStamp != 0 {
		h.HasStamp, h.Stamp = true, r.time("stamp")
	}
	if first&hasMark != 0 {
		h.HasMark = true
		h.Mark = r.mark()
	}
	if r.err != nil {
		return Header{}, nil, fmt.Errorf("%w: %w", ErrHeader, r.err)
	}
	return h, r.rest, nil
}

// reader reads numbers from the front of rest. After the first error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.rest = nil
}

func (r *reader) number(what string) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("its %s is cut off or too large", what)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) time(what string) time.Duration {
	v := r.number(what)
	if v > uint64(maxTime) {
		r.fail("its %s is %d ns, want at most %d", what, v, int64(maxTime))
		return 0
	}
	return time.Duration(v)
}

func (r *reader) bytes(n uint64, what string) []byte {
	if n > uint64(len(r.rest)) {
		r.fail("its %s has %d bytes, want %d", what, len(r.rest), n)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) id() (id ID) {
	copy(id.Client[:], r.bytes(uint64(len(id.Client)), "client id"))
	id.Birth = r.time("birth")
	return id
}

func (r *reader) mark() (m Mark) {
	m.ID = r.id()
	m.Number = r.number("number")
	behind := r.number("lowest unanswered number")
	m.Low = m.Number - behind
	switch {
	case r.err != nil:
	case m.IsZero():
		r.fail("its session has no id")
	case m.Number == 0 || behind >= m.Number:
		r.fail("its number is %d, and the lowest unanswered one is %d below it; want both at least 1", m.Number, behind)
	}
	return m
}
