package tcp

import (
	"net"
	"time"

	"github.com/millrace/millrace/transport"
)

// frameReader reads frames off a connection and joins them into bodies.
//
// One buffer, in which several frames fit, takes everything that the socket has, so a burst of small frames
// costs one read. A body of one frame is returned in place; a longer one in the memory of the assembler.
// Either is valid until the next call: messages are decoded in place and their bytes are copied out
// (transport.Detach), so acknowledgements allocate nothing, and keeping one entry keeps no other in memory.
//
// Invariant: memory grows with the bytes that have arrived, not with the length in a header. The buffer of
// a connection of class consensus begins with two frames of 64 KiB. It doubles, up to 2 MiB, when a read has
// filled it: the socket has more than it takes. So a burst costs few reads, and a peer that says little costs
// little. It also doubles when it is full and has a part of one frame alone.
//
// # Time
//
// The wait for the first byte of a body has no limit, since a peer may have nothing to say. From then on each
// frame of the body has one StallTimeout, whatever the reads bring: a peer that sends a byte now and then
// counts as silent. So does a peer that sends pulses, and not the rest of an append. Each further 64 KiB of a
// large frame has a StallTimeout, which begins when those before have come. Their number is rounded, as it is
// at the sender (link.writeAll). What counts is the time that the reader waits, not the time in which a
// receiver works.
type frameReader struct {
	conn       net.Conn
	stall      time.Duration
	assembler  *transport.Assembler
	buf        []byte
	maxBytes   int           // of buf
	start, end int           // buf[start:end] is read but not consumed
	filled     bool          // the last read brought a frame and more, as much as there was space for
	budget     time.Duration // how long the reader may still wait for the frame that is due
}

const (
	readBufferBytes = 2 * (transport.HeaderBytes + transport.FrameBodyBytes)
	maxReadBytes    = 2 << 20
)

func newFrameReader(conn net.Conn, class transport.Class, maxBytes int, stall time.Duration) *frameReader {
	r := &frameReader{
		conn: conn, stall: stall, budget: stall,
		assembler: transport.NewAssembler(class, maxBytes), buf: make([]byte, readBufferBytes), maxBytes: readBufferBytes,
	}
	if class == transport.ClassConsensus {
		r.maxBytes = maxReadBytes
	}
	return r
}

// next returns the next body, valid until the next call.
func (r *frameReader) next() (transport.Body, error) {
	for {
		h, part, err := r.frame()
		if err != nil {
			return transport.Body{}, err
		}
		body, whole, err := r.assembler.Add(h, part)
		if err != nil {
			return transport.Body{}, err
		}
		if h.Kind != transport.Pulse || !r.assembler.Begun(transport.Consensus) {
			r.budget = r.stall
		}
		if whole {
			return body, nil
		}
	}
}

// frame returns the next frame. Its checksum is not compared yet. Its body is valid until the next call.
func (r *frameReader) frame() (transport.Header, []byte, error) {
	if err := r.fill(transport.HeaderBytes); err != nil {
		return transport.Header{}, nil, err
	}
	h, err := transport.ParseHeader(r.buf[r.start:])
	if err == nil {
		err = r.assembler.Reject(h)
	}
	if err != nil {
		return h, nil, err
	}
	whole := transport.HeaderBytes + h.BodyBytes
	if err := r.fill(whole); err != nil {
		return h, nil, err
	}
	body := r.buf[r.start+transport.HeaderBytes : r.start+whole]
	r.start += whole
	return h, body, nil
}

// grow doubles the buffer.
func (r *frameReader) grow() {
	grown := make([]byte, min(2*len(r.buf), r.maxBytes))
	r.start, r.end, r.buf = 0, copy(grown, r.buf[r.start:r.end]), grown
}

// fill reads until n bytes, at most a frame, are ready.
func (r *frameReader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.filled && len(r.buf) < r.maxBytes {
		r.grow()
	} else if r.start == r.end {
		r.start, r.end = 0, 0
	} else if r.start+n > len(r.buf) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	var since time.Time                                     // when the wait with a limit began
	due := transport.HeaderBytes + transport.FrameBodyBytes // what must have come when the budget is spent
	for r.end-r.start < n {
		if more := r.end - r.start - due; more >= 0 && n-due > transport.FrameBodyBytes/2 {
			due += (1 + more/transport.FrameBodyBytes) * transport.FrameBodyBytes
			since, r.budget = time.Time{}, r.stall
		}
		if since.IsZero() && (r.end > r.start || r.assembler.Unfinished()) {
			since = time.Now()
			if err := r.conn.SetReadDeadline(since.Add(r.budget)); err != nil {
				return err
			}
		}
		if r.end == len(r.buf) {
			r.grow()
		}
		free := r.buf[r.end:]
		got, err := r.conn.Read(free)
		r.end += got
		r.filled = got == len(free) && got >= transport.FrameBodyBytes
		if err != nil && r.end-r.start < n {
			return err
		}
	}
	if since.IsZero() {
		return nil
	}
	r.budget -= time.Since(since)
	return r.conn.SetReadDeadline(time.Time{})
}
