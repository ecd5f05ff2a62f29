package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one connection.
type conn struct {
	addr string
	tcp  net.Conn

	writing sync.Mutex
	out     *bufio.Writer
	queued  int // goroutines that will flush

	mu      sync.Mutex
	waiting map[uint64]chan answer // nil: the connection takes nothing more
	retired bool                   // it ends with the last answer
}

type answer struct {
	status Status
	text   string
	broken bool
}

func newConn(tcp net.Conn, addr string) *conn {
	c := &conn{addr: addr, tcp: tcp, out: bufio.NewWriterSize(tcp, bufferBytes), waiting: map[uint64]chan answer{}}
	go c.read()
	return c
}

// fail ends the connection.
func (c *conn) fail() {
	_ = c.tcp.Close() // the reader ends, and answers all that wait
}

// retire ends the connection when the last answer is there: other goroutines may still wait for theirs.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	c.endRetired()
}

// endRetired ends a retired connection without requests. The caller holds mu.
func (c *conn) endRetired() {
	if c.retired && len(c.waiting) == 0 {
		c.waiting = nil
		c.fail()
	}
}

func (c *conn) read() {
	in := bufio.NewReaderSize(c.tcp, bufferBytes)
	for {
		id, body, err := readMessage(in)
		if err != nil || len(body) == 0 {
			break
		}
		c.mu.Lock()
		ch := c.waiting[id]
		delete(c.waiting, id)
		c.endRetired()
		c.mu.Unlock()
		if ch != nil {
			ch <- answer{status: Status(body[0]), text: string(body[1:])}
		}
	}
	c.fail()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.waiting {
		ch <- answer{broken: true}
	}
	c.waiting = nil
}

// ask sends one request and waits for its answer.
func (c *conn) ask(ctx context.Context, id uint64, r Request, timeout time.Duration) (answer, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return answer{status: NotTaken}, nil // nothing was sent
	}
	c.waiting[id] = ch
	c.mu.Unlock()
	var head [maxHead]byte
	c.write(id, r.appendHead(head[:0]), r.Value)
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case a := <-ch:
		if a.broken {
			return a, ErrIndeterminate
		}
		return a, nil
	case <-late:
		return answer{}, fmt.Errorf("%s has answered nothing for %v: %w", c.addr, timeout, ErrIndeterminate)
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// write sends a message. Of several goroutines that write at the same time the last one flushes for all.
func (c *conn) write(id uint64, parts ...[]byte) {
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	writeMessage(c.out, id, parts...)
	c.mu.Lock()
	c.queued--
	last := c.queued == 0
	c.mu.Unlock()
	if last {
		_ = c.out.Flush() // the reader sees a connection that has failed
	}
}

func writeMessage(w *bufio.Writer, id uint64, parts ...[]byte) {
	n := idBytes
	for _, p := range parts {
		n += len(p)
	}
	var head [4 + idBytes]byte
	binary.LittleEndian.PutUint32(head[:], uint32(n))
	binary.LittleEndian.PutUint64(head[4:], id)
	_, _ = w.Write(head[:]) // Flush returns the error
	for _, p := range parts {
		_, _ = w.Write(p)
	}
}

// readMessage reads one message. The body belongs to the caller.
func readMessage(r *bufio.Reader) (id uint64, body []byte, err error) {
	var head [4 + idBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < idBytes || n > maxMessage {
		return 0, nil, fmt.Errorf("a message of %d bytes, want %d to %d", n, idBytes, maxMessage)
	}
	body = make([]byte, n-idBytes)
	_, err = io.ReadFull(r, body)
	return binary.LittleEndian.Uint64(head[4:]), body, err
}
