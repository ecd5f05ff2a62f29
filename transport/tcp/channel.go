package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// channel is the TCP connection beneath a TLS connection. It bounds what is read before the peer is known,
// and how long a record takes after that, and collects what is written if the sender must not block.
type channel struct {
	net.Conn
	peeked  []byte // read, and not consumed
	budget  int    // how many more bytes may be read
	known   bool   // the peer is known: no budget
	writing writing
	sealed  []byte // what was collected

	// Owned by the reader. A record has a limit when the peer is known.
	stall  time.Duration // how long a record may take that has begun
	record record
	limit  time.Time // that the frames have set; zero: none
	own    bool      // there is a limit for the record
}

// record follows the records of TLS in a stream: a header of 5 bytes, of which the last two are the length.
type record struct {
	head []byte // of a record, as far as it has come
	left int    // bytes of its body that have not come
}

// pass follows b, which has come.
func (r *record) pass(b []byte) {
	for len(b) > 0 {
		if r.left == 0 {
			n := min(recordHeaderBytes-len(r.head), len(b))
			if r.head, b = append(r.head, b[:n]...), b[n:]; len(r.head) == recordHeaderBytes {
				r.left, r.head = int(r.head[3])<<8|int(r.head[4]), r.head[:0]
			}
			continue
		}
		n := min(r.left, len(b))
		r.left, b = r.left-n, b[n:]
	}
}

const recordHeaderBytes = 5

func (r *record) begun() bool { return r.left > 0 || len(r.head) > 0 }

// writing says what happens to bytes that TLS writes.
type writing int

// tlsHandshake is the first byte of a connection that begins with a TLS handshake.
const tlsHandshake = 0x16

const (
	passOn  writing = iota // the handshake, and what follows it
	collect                // a link, whose owner writes them when it wants (link.seal)
	refuse                 // an inbound connection, on which nothing is sent after the verdict
)

var (
	errHandshakeBytes = fmt.Errorf("the other end sent more than %d bytes before it was known", maxHandshakeBytes)
	errOneWay         = errors.New("nothing is sent on this connection any more")
)

func (c *channel) Read(b []byte) (int, error) {
	if len(c.peeked) > 0 {
		n := copy(b, c.peeked)
		c.peeked = c.peeked[n:]
		return n, nil
	}
	if c.known {
		return c.readRecord(b)
	}
	if c.budget == 0 {
		return 0, errHandshakeBytes
	}
	n, err := c.Conn.Read(b[:min(len(b), c.budget)])
	c.budget -= n
	c.record.pass(b[:n])
	return n, err
}

// readRecord reads when the peer is known. A frame has a time limit from its first byte on (frameReader), and
// a byte of a frame comes only with the whole record that holds it. So a record that has begun has the limit,
// if there is none yet.
func (c *channel) readRecord(b []byte) (int, error) {
	if c.record.begun() && c.limit.IsZero() && !c.own {
		c.own = true
		if err := c.Conn.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	c.record.pass(b[:n])
	if c.own && !c.record.begun() && err == nil {
		c.own, err = false, c.Conn.SetReadDeadline(c.limit)
	}
	return n, err
}

// SetReadDeadline is for the frames, and takes the place of a limit for the record.
func (c *channel) SetReadDeadline(at time.Time) error {
	c.limit, c.own = at, false
	return c.Conn.SetReadDeadline(at)
}

func (c *channel) Write(b []byte) (int, error) {
	switch c.writing {
	case collect:
		c.sealed = append(c.sealed, b...)
		return len(b), nil
	case refuse:
		return 0, errOneWay
	}
	return c.Conn.Write(b)
}

// peek returns the first byte of the connection without consuming it.
func (c *channel) peek() (byte, error) {
	var b [1]byte
	if _, err := io.ReadFull(c.Conn, b[:]); err != nil {
		return 0, err
	}
	c.budget--
	c.record.pass(b[:])
	c.peeked = b[:]
	return b[0], nil
}

// sealOn returns the function that encrypts the frames of a link, without writing them. What it returns is
// valid until the next call.
func (c *channel) sealOn(secured *tls.Conn) func(frame []byte) ([]byte, error) {
	c.writing = collect
	return func(frame []byte) ([]byte, error) {
		c.sealed = c.sealed[:0]
		_, err := secured.Write(frame)
		return c.sealed, err
	}
}
