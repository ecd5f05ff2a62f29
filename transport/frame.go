package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The frame codec works on bytes alone. Package documentation has the drawing.
//
// A body of at most FrameBodyBytes is one frame. A longer one is cut into frames: all but the last have at
// least FrameBodyBytes, and are flagged as continued. Frames of other kinds may come between them, so a pulse
// waits for one frame and not for a whole append. A sender chooses the size of a frame of kind Consensus, by
// the speed of its connection. Each frame has a checksum of its own. It covers kind, flag and length, too:
// a frame that is taken for another kind is as wrong as one with other bytes.
//
// Rejected: a body of any length with a checksum at its end. Nothing could overtake it, and 64 MiB would be
// read before the first flipped bit is noticed.

// HeaderBytes is the length of a frame's header.
const HeaderBytes = 8

// FrameBodyBytes is the largest body of one frame, except on a connection that is fast. At 10 Mbit/s a frame
// takes 52 ms.
const FrameBodyBytes = 64 << 10

// MaxFrameBodyBytes is the largest body of a frame of kind Consensus. A receiver of version 3 of the
// transport protocol refuses more than FrameBodyBytes.
const MaxFrameBodyBytes = 1 << 20

// frameBytes returns the largest body of a frame of a kind.
func (k Kind) frameBytes() int {
	if k == Consensus {
		return MaxFrameBodyBytes
	}
	return FrameBodyBytes
}

// ErrBadFrame is wrapped by every error about bytes that are not a valid frame.
var ErrBadFrame = errors.New("transport: bad frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the head of a frame.
type Header struct {
	Kind      Kind
	Continued bool // the body continues in the next frame of this kind
	BodyBytes int  // of this frame
	checksum  uint32
}

// The first word of a header: the length in the low 24 bits, then the kind, then the flag.
const (
	lengthMask    = 1<<24 - 1
	kindShift     = 24
	continuedFlag = 1 << 31
)

func (h Header) word() uint32 {
	w := uint32(h.BodyBytes) | uint32(h.Kind)<<kindShift
	if h.Continued {
		w |= continuedFlag
	}
	return w
}

// SealFrame writes the header of a frame whose body is frame[HeaderBytes:], at most what its kind allows.
func SealFrame(frame []byte, k Kind, continued bool) {
	h := Header{Kind: k, Continued: continued, BodyBytes: len(frame) - HeaderBytes}
	h.put(frame, checksum(h.word(), frame[HeaderBytes:]))
}

// checksum returns the CRC-32C of word, in little-endian order, and body.
func checksum(word uint32, body []byte) frameSum {
	sum := newFrameSum(word)
	sum.add(body)
	return sum
}

// ParseHeader reads the header at the beginning of b, which has at least HeaderBytes. It refuses a header
// of no frame: an unknown kind or flag, a length above that of its kind, or a continued frame with less than
// FrameBodyBytes.
func ParseHeader(b []byte) (Header, error) {
	word := binary.LittleEndian.Uint32(b)
	h := Header{
		Kind:      Kind(word &^ continuedFlag >> kindShift),
		Continued: word&continuedFlag != 0,
		BodyBytes: int(word & lengthMask),
		checksum:  binary.LittleEndian.Uint32(b[4:]),
	}
	switch {
	case h.Kind >= Kinds:
		return h, fmt.Errorf("%w: header %08x names no kind of frame", ErrBadFrame, word)
	case h.BodyBytes > h.Kind.frameBytes():
		return h, fmt.Errorf("%w: body of %d bytes, want at most %d", ErrBadFrame, h.BodyBytes, h.Kind.frameBytes())
	case h.Continued && h.BodyBytes < FrameBodyBytes:
		return h, fmt.Errorf("%w: a frame with %d bytes is continued; only one of at least %d may be", ErrBadFrame, h.BodyBytes, FrameBodyBytes)
	}
	return h, nil
}

// Validate compares the checksum of a frame with its header and body.
func (h Header) Validate(body []byte) error {
	if have := checksum(h.word(), body); uint32(have) != h.checksum {
		return h.mismatch(have)
	}
	return nil
}

// FramesOf returns how many frames of FrameBodyBytes a body of n bytes takes.
func FramesOf(n int) int { return max(1, (n+FrameBodyBytes-1)/FrameBodyBytes) }

// AppendFrames appends the frames of one body to dst.
func AppendFrames(dst []byte, k Kind, body []byte) []byte {
	for {
		n := min(len(body), FrameBodyBytes)
		at := len(dst)
		dst = append(dst, make([]byte, HeaderBytes)...)
		dst = append(dst, body[:n]...)
		body = body[n:]
		SealFrame(dst[at:], k, len(body) > 0)
		if len(body) == 0 {
			return dst
		}
	}
}

// OpenFrame splits the first frame off b, and checks it. Its body aliases b.
func OpenFrame(b []byte) (h Header, body, after []byte, err error) {
	if h, body, after, err = splitFrame(b); err == nil {
		err = h.Validate(body)
	}
	return h, body, after, err
}

// splitFrame is OpenFrame without a look at the checksum.
func splitFrame(b []byte) (h Header, body, after []byte, err error) {
	if len(b) < HeaderBytes {
		return h, nil, nil, fmt.Errorf("%w: header of %d bytes, want %d", ErrBadFrame, len(b), HeaderBytes)
	}
	if h, err = ParseHeader(b); err != nil {
		return h, nil, nil, err
	}
	b = b[HeaderBytes:]
	if h.BodyBytes > len(b) {
		return h, nil, nil, fmt.Errorf("%w: body of %d bytes, have %d", ErrBadFrame, h.BodyBytes, len(b))
	}
	return h, b[:h.BodyBytes:h.BodyBytes], b[h.BodyBytes:], nil
}

// OpenFrames calls deliver for each body in b, which holds whole frames of one connection of class c. A body
// is valid during the call. An error of deliver ends it, and is returned.
func OpenFrames(b []byte, c Class, maxBytes int, deliver func(Body) error) error {
	a := NewAssembler(c, maxBytes)
	for len(b) > 0 {
		h, part, after, err := splitFrame(b)
		if err != nil {
			return err
		}
		b = after
		body, whole, err := a.Add(h, part)
		if err != nil {
			return err
		}
		if whole {
			if err := deliver(body); err != nil {
				return err
			}
		}
	}
	if a.Unfinished() {
		return fmt.Errorf("%w: the last body has no end", ErrBadFrame)
	}
	return nil
}
