package transport

import (
	"encoding/binary"
	"fmt"

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

// Sealer seals the frames that are cut from a buffer of encoded messages, in order.
//
// A payload that the border of a frame cuts is passed over again, except for its last part. The sum of that
// part follows from those of the others and of the whole.
type Sealer struct {
	payloads []raftpb.Payload // that are not, or not to their end, in sealed frames
	begun    uint32           // the sum of the part of the first one that is
}

// NewSealer returns the Sealer of a buffer with these payloads. It keeps the slice.
func NewSealer(payloads []raftpb.Payload) Sealer { return Sealer{payloads: payloads} }

// Seal is SealFrame for a frame whose body begins at a place of the buffer.
func (s *Sealer) Seal(frame []byte, at int, k Kind, continued bool) {
	body := frame[HeaderBytes:]
	h := Header{Kind: k, Continued: continued, BodyBytes: len(body)}
	sum := newFrameSum(h.word())
	for len(body) > 0 && len(s.payloads) > 0 && int(s.payloads[0].At) < at+len(body) {
		p := &s.payloads[0]
		if before := int(p.At) - at; before > 0 {
			sum.add(body[:before])
			at, body = at+before, body[before:]
		}
		left := int(p.At) + int(p.Bytes) - at
		n := min(left, len(body))
		if n < left {
			s.begun = crcjoin.Join(s.begun, sum.piece(body[:n]), n)
		} else {
			sum.join(crcjoin.Rest(p.Sum, s.begun, n), n)
			s.payloads, s.begun = s.payloads[1:], 0
		}
		at, body = at+n, body[n:]
	}
	sum.add(body)
	h.put(frame, sum)
}

// put writes a header and its checksum.
func (h Header) put(frame []byte, sum frameSum) {
	binary.LittleEndian.PutUint32(frame, h.word())
	binary.LittleEndian.PutUint32(frame[4:], uint32(sum))
}

// AppendBatch appends the frames of one body that holds the messages. It is AppendFrames of AppendBody, and
// does not pass over entries whose sum is known.
func AppendBatch(dst []byte, batch []Envelope) []byte {
	var body []byte
	var payloads []raftpb.Payload
	for i := range batch {
		body, payloads = AppendPayloads(body, payloads, batch[i].Group, &batch[i].Message)
	}
	s := NewSealer(payloads)
	for at := 0; ; {
		n := min(len(body)-at, FrameBodyBytes)
		begin := len(dst)
		dst = append(append(dst, make([]byte, HeaderBytes)...), body[at:at+n]...)
		s.Seal(dst[begin:], at, Consensus, at+n < len(body))
		if at += n; at == len(body) {
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
