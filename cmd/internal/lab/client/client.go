// Package client is a small protocol between a client and the hosts of a cluster, as the dissertation's
// benchmark has it: a client has one TCP connection to the leader, on which any number of its goroutines wait
// for answers, and finds the leader by asking a host, which names it (thesis §6.2). It is for measurements: a
// command whose connection breaks may have been committed, and is not repeated.
//
//	request   length of the rest u32, id u64, value
//	answer    length of the rest u32, id u64, status u8, text: the leader's address, or what went wrong
//
// All numbers are little endian. Answers come in any order.
package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Status is how a request ended.
type Status byte

// The statuses.
const (
	Done     Status = iota // the leader's state machine has applied the command
	NotTaken               // by a host that does not lead; it names the leader, if it knows one
	Failed                 // the command may have been committed, or not
)

const (
	idBytes     = 8
	maxMessage  = 9 << 20
	minBackoff  = time.Millisecond
	maxBackoff  = 50 * time.Millisecond
	bufferBytes = 64 << 10
)

// ErrIndeterminate is the error of a command whose connection broke before its answer.
var ErrIndeterminate = errors.New("the connection broke before the answer: the command may have been committed")

// Options say how a client finds the leader.
type Options struct {
	Seeds          []string      // addresses of hosts, in any order; some may be dead
	IgnoreHints    bool          // ask seeds at random until one leads
	ConnectTimeout time.Duration // to connect to one host
	AnswerTimeout  time.Duration // after which a host that answers nothing counts as dead; 0: never
	Seed           uint64
}

// Client is a client. Its methods may be called from any goroutine.
type Client struct {
	options Options

	mu       sync.Mutex
	random   *rand.Rand
	conn     *conn  // nil: there is none
	hint     string // where to look first
	attempts uint64
	misses   int    // since the last host that led
	next     uint64 // id
	closed   bool
}

// New returns a client, which connects when it has something to send.
func New(o Options) *Client {
	return &Client{options: o, random: rand.New(rand.NewPCG(o.Seed, 5))}
}

// Attempts returns how many connections the client has tried.
func (c *Client) Attempts() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attempts
}

// Close ends the client. Commands without an answer get ErrIndeterminate.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		c.conn.fail()
	}
	return nil
}

// Propose sends a command to the leader, and returns when that has applied it. A host that has not taken the
// command is left for another one.
func (c *Client) Propose(ctx context.Context, value []byte) error {
	for {
		conn, id, err := c.connection(ctx)
		if err != nil {
			return err
		}
		a, err := conn.ask(ctx, id, value, c.options.AnswerTimeout)
		switch {
		case err != nil:
			conn.fail()
			c.leave(conn, "")
			return err
		case a.status == Done:
			c.found()
			return nil
		case a.status == Failed:
			return fmt.Errorf("%s: %s", conn.addr, a.text)
		}
		if c.options.IgnoreHints {
			a.text = ""
		}
		if a.text == conn.addr { // it will lead, and does not know yet
			a.text = ""
		}
		c.leave(conn, a.text)
		if a.text == "" {
			if err := pause(ctx, c.missed()); err != nil {
				return err
			}
		}
	}
}

// leave sends nothing more over a connection, and remembers where to look next.
func (c *Client) leave(conn *conn, hint string) {
	conn.retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == conn {
		c.conn, c.hint = nil, hint
	}
}

// missed counts a search that led nowhere, and found ends the count.
func (c *Client) missed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.misses++
	return c.misses
}

func (c *Client) found() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.misses = 0
}

// pause waits longer after each miss in a row.
func pause(ctx context.Context, misses int) error {
	timer := time.NewTimer(min(minBackoff<<min(misses, 10), maxBackoff))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connection returns the connection to the host that leads, as far as the client knows, and an id.
func (c *Client) connection(ctx context.Context) (*conn, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for failures := 0; c.conn == nil; failures++ {
		if c.closed {
			return nil, 0, net.ErrClosed
		}
		addr, hinted := c.hint, c.hint != ""
		if c.hint = ""; addr == "" {
			addr = c.options.Seeds[c.random.IntN(len(c.options.Seeds))]
		}
		c.attempts++
		dialer := net.Dialer{Timeout: c.options.ConnectTimeout}
		tcp, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			c.conn = newConn(tcp, addr)
			break
		}
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		// A leader that is gone is still named by those that have not missed it yet.
		if hinted || failures >= len(c.options.Seeds) {
			c.misses++
			if err := pause(ctx, c.misses); err != nil {
				return nil, 0, err
			}
		}
	}
	c.next++
	return c.conn, c.next, nil
}

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
func (c *conn) ask(ctx context.Context, id uint64, value []byte, timeout time.Duration) (answer, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return answer{status: NotTaken}, nil // nothing was sent
	}
	c.waiting[id] = ch
	c.mu.Unlock()
	c.write(id, value)
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
func (c *conn) write(id uint64, value []byte) {
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	writeMessage(c.out, id, value)
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
