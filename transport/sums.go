package transport

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
)

// A command is summed once by its proposer, and once by each host that checks what it has received. The sum
// travels with the entry in memory (raftpb.Entry.Sum). So the checksum of a frame is joined from the sums of
// the entries in it, and a host that checks a frame learns their sums. The frame has the checksum that it
// always had.
//
// What rots in memory behind the proposer's sum makes the checksum of the frame wrong: its receiver refuses
// it.

// frameSum is the checksum of a frame, computed piece by piece.
type frameSum uint32

// newFrameSum begins with the first word of a header. The four bytes are done by hand: as a slice they would
// cost an allocation for each frame.
func newFrameSum(word uint32) frameSum {
	c := ^uint32(0)
	for range 4 {
		c = castagnoli[byte(c)^byte(word)] ^ c>>8
		word >>= 8
	}
	return frameSum(^c)
}

// add adds bytes, and passes over them.
func (s *frameSum) add(p []byte) { *s = frameSum(crcjoin.Update(uint32(*s), p)) }

// piece adds bytes, passes over them, and returns the sum of them alone.
func (s *frameSum) piece(p []byte) uint32 {
	before := uint32(*s)
	s.add(p)
	return crcjoin.Rest(uint32(*s), before, len(p))
}

// join adds bytes of which the sum is known.
func (s *frameSum) join(sum uint32, bytes int) {
	*s = frameSum(crcjoin.Join(uint32(*s), sum, bytes))
}

// Cutter cuts frames off a buffer of encoded messages, in order.
//
// A payload that the border of a frame cuts is passed over again, except for its last part. The sum of that
// part follows from those of the others and of the whole.
type Cutter struct {
	buf      []byte
	at       int // buf[:at] is cut off
	payloads raftpb.Payloads
	in       int    // bytes of the first payload that are cut off
	begun    uint32 // their sum
}

// NewCutter returns the Cutter of a buffer with these payloads, which it keeps.
func NewCutter(buf []byte, payloads raftpb.Payloads) Cutter {
	return Cutter{buf: buf, payloads: payloads}
}

// IsApart reports whether a part of what is left is not in the buffer.
func (c *Cutter) IsApart() bool { return len(c.payloads.Apart) > 0 }

// Skip leaves out bytes of the buffer, in which the caller has space for the header of a frame, and returns
// them.
func (c *Cutter) Skip(n int) []byte {
	c.at += n
	return c.buf[c.at-n : c.at]
}

// Behind returns the last bytes of the buffer that were cut off. There are as many.
func (c *Cutter) Behind(n int) []byte { return c.buf[c.at-n : c.at] }

// Cut returns the pieces of the next frame, which has a body of n bytes: the head, into which it writes the
// header, and the rest. A head that is in the buffer before the body is one piece with it. It appends the
// pieces to into.
func (c *Cutter) Cut(into [][]byte, head []byte, n int, k Kind, continued bool) [][]byte {
	h := Header{Kind: k, Continued: continued, BodyBytes: n}
	sum := newFrameSum(h.word())
	into = append(into, head)
	joins := c.at > 0 && &head[len(head)-1] == &c.buf[c.at-1] // the last piece ends at buf[at]
	for n > 0 {
		var piece []byte
		p, isApart := c.first(), false
		switch {
		case p == nil:
			piece = c.buf[c.at : c.at+n]
			sum.add(piece)
		case int(p.At) > c.at && c.in == 0:
			piece = c.buf[c.at:min(c.at+n, int(p.At))]
			sum.add(piece)
		default:
			isApart = p.Apart
			piece = c.cutPayload(p, n, &sum)
		}
		n -= len(piece)
		if !isApart {
			c.at += len(piece)
		}
		if last := len(into) - 1; joins && !isApart {
			into[last] = into[last][:len(into[last])+len(piece)]
		} else {
			into = append(into, piece)
		}
		joins = !isApart
	}
	h.put(head, sum)
	return into
}

// first returns the first payload that is not cut off to its end.
func (c *Cutter) first() *raftpb.Payload {
	if len(c.payloads.List) == 0 {
		return nil
	}
	return &c.payloads.List[0]
}

// cutPayload cuts at most n bytes off the first payload, and adds them to a sum.
func (c *Cutter) cutPayload(p *raftpb.Payload, n int, sum *frameSum) (piece []byte) {
	left := int(p.Bytes) - c.in
	if n = min(n, left); p.Apart {
		piece = c.payloads.Apart[0][c.in : c.in+n]
	} else {
		piece = c.buf[c.at : c.at+n]
	}
	switch {
	case p.Sum == 0:
		sum.add(piece)
	case n < left:
		c.begun = crcjoin.Join(c.begun, sum.piece(piece), n)
	default:
		sum.join(crcjoin.Rest(p.Sum, c.begun, n), n)
	}
	if c.in += n; n == left {
		if p.Apart {
			c.payloads.Apart = c.payloads.Apart[1:]
		}
		c.payloads.List, c.in, c.begun = c.payloads.List[1:], 0, 0
	}
	return piece
}

// put writes a header and its checksum.
func (h Header) put(frame []byte, sum frameSum) {
	binary.LittleEndian.PutUint32(frame, h.word())
	binary.LittleEndian.PutUint32(frame[4:], uint32(sum))
}

// AppendBatch appends the frames of one body that holds the messages, each with at most frameBytes: from
// FrameBodyBytes to MaxFrameBodyBytes. With FrameBodyBytes it is AppendFrames of AppendBody. It does not pass
// over entries whose sum is known, except where a border cuts them.
func AppendBatch(dst []byte, frameBytes int, batch []Envelope) []byte {
	var body []byte
	var payloads raftpb.Payloads
	for i := range batch {
		body = AppendPayloads(body, &payloads, math.MaxInt, batch[i].Group, &batch[i].Message)
	}
	c := NewCutter(body, payloads)
	for left := len(body); ; {
		n := min(left, frameBytes)
		left -= n
		for _, piece := range c.Cut(nil, make([]byte, HeaderBytes), n, Consensus, left > 0) {
			dst = append(dst, piece...)
		}
		if left == 0 {
			return dst
		}
	}
}

// Body is a whole body that has arrived. It is valid until the next one of its connection.
type Body struct {
	Kind   Kind
	Bytes  []byte
	check  *checker  // of kind Consensus: its checksums are not compared yet
	joined *assembly // whose memory Bytes is; nil: it came in one frame
}

// Frames returns in how many frames the body came.
func (b Body) Frames() int {
	if b.check == nil {
		return FramesOf(len(b.Bytes))
	}
	return len(b.check.frames)
}

// Messages appends the messages of a body of kind Consensus to into, as DecodeBody does. It compares the
// checksum of each frame, in one pass that also finds the sum of each entry. If it returns an error, the
// caller must not believe any of the messages.
func (b Body) Messages(into []Envelope) ([]Envelope, error) {
	b.check.begin(b.Bytes)
	into, err := decodeBody(b.Bytes, into, b.check)
	if bad := b.check.end(); bad != nil {
		return into, bad
	}
	return into, err
}

// Detach is the function Detach for the messages of this body. One entry may have nearly all of a body that
// came in several frames. It keeps the memory in which they were joined, and no copy is made of it. So it
// keeps a seventh of its bytes beside it, at most. In memory of an earlier and larger body it does not
// stay.
func (b Body) Detach(batch []Envelope) {
	if b.joined == nil {
		Detach(batch)
	} else if all := cap(b.joined.bytes); detach(batch, max(1, all-all/8)) {
		b.joined.bytes = nil
	}
}

// Validate compares the checksums of a body that is not decoded. A body of another kind is valid already.
func (b Body) Validate() error {
	if b.check == nil {
		return nil
	}
	b.check.begin(b.Bytes)
	return b.check.end()
}

// checker compares the checksums of the frames of a body, in a pass that follows the decoder.
type checker struct {
	frames []Header // of the body

	body    []byte
	message int      // where the message that is decoded begins
	at      int      // body[:at] is summed
	next    int      // the number of the frame after the one that is being summed
	left    int      // bytes of that one that are not
	sum     frameSum // of the rest of it
	err     error    // of the first frame with a wrong checksum
}

func (c *checker) begin(body []byte) {
	c.body, c.message, c.at, c.next, c.err = body, 0, 0, 0, nil
	c.open()
}

// open goes to the next frame.
func (c *checker) open() {
	h := &c.frames[c.next]
	c.next++
	c.left, c.sum = h.BodyBytes, newFrameSum(h.word())
}

// close compares the checksum of a frame that is summed, and goes to the next one.
func (c *checker) close() {
	if h := &c.frames[c.next-1]; uint32(c.sum) != h.checksum && c.err == nil {
		c.err = h.mismatch(c.sum)
	}
	if c.next < len(c.frames) {
		c.open()
	}
}

// pass sums the bytes before end, which are no entry's.
func (c *checker) pass(end int) {
	for c.at < end {
		n := min(end-c.at, c.left)
		c.sum.add(c.body[c.at : c.at+n])
		c.took(n)
	}
}

// took notes that n more bytes are summed. A frame that is not the last is closed by its last byte.
func (c *checker) took(n int) {
	c.at += n
	if c.left -= n; c.left == 0 && c.next < len(c.frames) {
		c.close()
	}
}

// Sum is raftpb.Summer.
func (c *checker) Sum(end int, data []byte) (sum uint32) {
	end += c.message
	c.pass(end - len(data))
	for c.at < end {
		n := min(end-c.at, c.left)
		sum = crcjoin.Join(sum, c.sum.piece(c.body[c.at:c.at+n]), n)
		c.took(n)
	}
	return sum
}

// end returns the error of the first frame whose checksum is wrong.
func (c *checker) end() error {
	c.pass(len(c.body))
	c.close()
	c.body = nil
	return c.err
}

// mismatch is the error for a frame that has another checksum than its header says.
func (h Header) mismatch(have frameSum) error {
	return fmt.Errorf("%w: checksum of a %v frame of %d bytes is %08x, want %08x", ErrBadFrame, h.Kind, h.BodyBytes, uint32(have), h.checksum)
}
