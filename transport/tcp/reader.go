package tcp

import (
	"fmt"
	"net"
	"time"

	"github.com/millrace/millrace/transport"
)

// frameReader reads frames off a connection.
//
// One large buffer takes everything that the socket has, so a burst of small frames costs one read. A frame
// that fits is returned in place. A larger body is read into a second buffer, which is kept for the next
// large body unless it is larger than usual frames. Either is valid until the next call: messages are decoded
// in place and their bytes are copied out (transport.Detach), so acknowledgements allocate nothing, and
// keeping one entry keeps no other in memory.
//
// Invariant: memory grows with the bytes that have arrived, not with the length in a header.
type frameReader struct {
	conn       net.Conn
	maxBytes   int
	stall      time.Duration
	buf        []byte
	start, end int    // buf[start:end] is read but not consumed
	body       []byte // the last body that was larger than buf
}

const (
	readBufferBytes = 64 << 10
	// trustBytes is how much memory a header may allocate before its body has begun to arrive.
	trustBytes = 1 << 20
	// keepBodyBytes is the largest body whose memory is reused: a frame is full at transport.BatchBytes.
	keepBodyBytes = 2 << 20
)

func newFrameReader(conn net.Conn, maxBytes int, stall time.Duration) *frameReader {
	return &frameReader{conn: conn, maxBytes: maxBytes, stall: stall, buf: make([]byte, readBufferBytes)}
}

// next returns the checked body of the next frame, valid until the next call.
func (r *frameReader) next() (body []byte, err error) {
	if cap(r.body) > keepBodyBytes {
		r.body = nil
	}
	if err := r.fill(transport.HeaderBytes); err != nil {
		return nil, err
	}
	n, sum := transport.ParseHeader(r.buf[r.start:])
	if n > r.maxBytes {
		return nil, fmt.Errorf("%w: body of %d bytes, want at most %d", transport.ErrBadFrame, n, r.maxBytes)
	}
	if whole := transport.HeaderBytes + n; whole <= len(r.buf) {
		if err := r.fill(whole); err != nil {
			return nil, err
		}
		body = r.buf[r.start+transport.HeaderBytes : r.start+whole]
		r.start += whole
		return body, transport.CheckBody(body, sum)
	}
	r.start += transport.HeaderBytes
	if r.body, err = r.large(n); err != nil {
		return nil, err
	}
	return r.body, transport.CheckBody(r.body, sum)
}

// fill reads until n bytes, at most a buffer, are ready. The wait for the first byte of a frame has no limit,
// since a peer may have nothing to say. From then on the n bytes, at most stallChunkBytes, share one
// StallTimeout: a peer that sends a byte now and then counts as silent.
func (r *frameReader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	} else if r.start+n > len(r.buf) {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	limited := false
	for r.end-r.start < n {
		if r.end > r.start && !limited {
			if err := r.limit(); err != nil {
				return err
			}
			limited = true
		}
		got, err := r.conn.Read(r.buf[r.end:])
		r.end += got
		if err != nil && r.end-r.start < n {
			return err
		}
	}
	if limited {
		return r.conn.SetReadDeadline(time.Time{})
	}
	return nil
}

func (r *frameReader) limit() error { return r.conn.SetReadDeadline(time.Now().Add(r.stall)) }

// large reads a body of n bytes that is larger than the buffer. Each stallChunkBytes of it have one
// StallTimeout.
func (r *frameReader) large(n int) ([]byte, error) {
	body := r.memory(n)
	have := copy(body, r.buf[r.start:r.end])
	r.start += have
	for due := have; have < n; {
		if have == len(body) {
			grown := make([]byte, min(n, 2*len(body)))
			copy(grown, body)
			body = grown
		}
		if have >= due {
			if err := r.limit(); err != nil {
				return nil, err
			}
			due = have + stallChunkBytes
		}
		got, err := r.conn.Read(body[have:])
		have += got
		if err != nil && have < n {
			return nil, err
		}
	}
	return body, r.conn.SetReadDeadline(time.Time{})
}

// memory returns the buffer in which a body of n bytes begins: the memory of the last body, or at most
// trustBytes of new memory.
func (r *frameReader) memory(n int) []byte {
	if cap(r.body) < min(n, trustBytes) {
		return make([]byte, min(n, trustBytes))
	}
	return r.body[:min(n, cap(r.body))]
}
